"""What stands between a gang that finds room and its placement: the queue policies, as the choice of a round sees them."""

from collections.abc import Callable
from typing import Final, Protocol

from berth.core.requests.gangs import Gang
from berth.schemas.placement import Placement
from berth.schemas.refusal import Code, Refusal

RESERVED: Final[Code] = "reserved"
NEVER: Final[frozenset[Code]] = frozenset({"larger-than-cluster", "no-topology", "internal"})
"""Refusals of gangs that wait for another cluster, not for room, or that Berth fails to decide: they do not block others."""

LastRefusal = Callable[[str], Refusal | None]
"""Last refusal of a gang (uid) that the ledger knows."""


class QueuePolicy(Protocol):
    """Policy of one round. It is asked gang by gang, in the order of the queue.

    Attributes:
        is_strict: Gangs of a class that is known to find no room are asked for all the same.
    """

    is_strict: bool

    def should_skip(self, gang: Gang) -> Refusal | None:
        """Why a gang is not even looked at; None when it is to be decided."""

    def may_start(self, gang: Gang, placement: Placement) -> Refusal | None:
        """Why a gang may not have the room that was found for it; None when it has it."""

    def refused(self, gang: Gang, refusal: Refusal) -> Refusal:
        """A gang found no room, or waits as one of its class does; returns the refusal with what the policy has to say."""

    def refusal_changed(self, gang: Gang, refusal: Refusal) -> bool:
        """Whether a refusal differs from the last one of the gang, so that the record has to say it."""


class StrictOrder:
    """``fifo``: who finds no room bars all behind it.

    Args:
        head: First gang that waits without being tried in this round.
        last: Last refusals.
    """

    is_strict = True

    def __init__(self, head: Gang | None, last: LastRefusal) -> None:
        self._head = head
        self._last = last

    def should_skip(self, gang: Gang) -> Refusal | None:
        """Whoever is behind the head is not looked at."""
        head = self._head
        if head is None or gang.order <= head.order:
            return None
        return Refusal(
            code="behind", ahead=name_of(head), pods_need=gang.pods, form=gang.form, form_because=gang.form_because
        )

    def may_start(self, gang: Gang, placement: Placement) -> Refusal | None:  # noqa: ARG002  # as the protocol says
        """Whoever is looked at may have what it finds."""
        return None

    def refused(self, gang: Gang, refusal: Refusal) -> Refusal:
        """It is the head, unless it waits for another cluster."""
        if refusal.code not in NEVER and (self._head is None or gang.order < self._head.order):
            self._head = gang
        return refusal

    def refusal_changed(self, gang: Gang, refusal: Refusal) -> bool:
        """Who is ahead may change without a word: it would be a word to everybody each time somebody starts."""
        last = self._last(gang.uid)
        return gang.fresh or last is None or last.code != refusal.code


def name_of(gang: Gang) -> str:
    """How refusals name a gang."""
    return f"{gang.namespace}/{gang.name}"
