"""Queue policies that need no plan: strict order, and the refusals that block no gang."""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from berth.core.placement.queue_policy import NOTHING_KEPT, KeptRoom
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import Gang
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import OF_THE_NODE, Code, Refusal

NEVER: Final[frozenset[Code]] = frozenset({"larger-than-cluster", "no-topology", "internal", "late"})
"""Refusals of gangs that wait for another cluster, not for room, or that Berth fails to decide: they do not block
others."""

_OF_THE_NODE: Final = np.array(sorted(OF_THE_NODE))

LastRefusal = Callable[[str], Refusal | None]
"""Last refusal of a gang (uid) in the ledger."""


class StrictOrder:
    """``fifo``: a gang that finds no room blocks all gangs behind it.

    Args:
        head: First gang that waits without being tried in this round.
        last: Last refusals.
        could_take: Whether some node could take each pod of a gang if nothing else ran there.
    """

    is_strict = True

    def __init__(
        self, head: Gang | None, last: LastRefusal, could_take: Callable[[Gang], bool] = lambda _: True
    ) -> None:
        self._head = head
        self._last = last
        self._could_take = could_take

    def should_skip(self, gang: Gang) -> Refusal | None:
        """A gang behind the head is not tried."""
        head = self._head
        return None if head is None or gang.order <= head.order else behind(gang, head)

    def may_start(self, gang: Gang, placement: Placement) -> Refusal | None:  # noqa: ARG002  # the protocol has it
        """A gang that is tried may have the room that it finds."""
        return None

    def refused(self, gang: Gang, refusal: Refusal) -> Refusal:
        """The gang becomes the head, unless it waits for another cluster, or is for ranks that no node could take."""
        if gang.is_fragile and not refusal.missing_shards and not self._could_take(gang):
            return msgspec.structs.replace(refusal, yields=True)
        if refusal.code not in NEVER and (self._head is None or gang.order < self._head.order):
            self._head = gang
        return refusal

    def kept_from(self, gang: Gang) -> KeptRoom:  # noqa: ARG002  # the protocol has it
        """There are no reservations."""
        return NOTHING_KEPT

    def note_start(self, gang: Gang, placement: Placement) -> None:
        """A gang without chips is nobody's head."""

    def note_step(self, gang: Gang, recovery: Recovery) -> None:
        """A gang that is placed is nobody's head."""

    def refusal_changed(self, gang: Gang, refusal: Refusal) -> bool:
        """A changed ``ahead`` alone is not recorded: else each start would change the refusal of every waiting gang."""
        last = self._last(gang.uid)
        return gang.fresh or last is None or (last.code, last.yields) != (refusal.code, refusal.yields)


def behind(gang: Gang, head: Gang) -> Refusal:
    """The refusal of a gang that waits behind the head of the queue."""
    return Refusal(
        code="behind",
        ahead=head.namespaced_name,
        pods_need=gang.pods,
        form=gang.form,
        form_because=gang.form_because,
    )


def could_take(scorer: Scorer, gang: Gang) -> bool:
    """Whether some node could take each pod of a gang if nothing else ran there.

    Args:
        scorer: Scoring under the settings of the epoch.
        gang: The gang.
    """
    return all(_could_take(scorer, shape) for shape, _ in gang.request_class)


def _could_take(scorer: Scorer, shape: Shape) -> bool:
    table = scorer.table
    rows = table.view()
    usable = table.chips[rows] & ~table.unhealthy[rows] & ~table.withheld[rows]
    may = ~np.isin(scorer.evaluate(shape)[0][rows], _OF_THE_NODE) & table.present[rows]
    return bool((may & (np.bitwise_count(usable) >= shape.chips)).any())
