"""What a round asks of the queue policy: which gangs it tries, and which of them may start.

The policies themselves are in ``berth.core.scheduling``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from berth.core.requests.gangs import Gang
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Code, Refusal

RESERVED: Final[Code] = "reserved"


class KeptRoom(NamedTuple):
    """Cpu and memory that reservations count, which pods of a job without chips must leave free."""

    rows: Mapping[int, tuple[int, int]] = MappingProxyType({})
    """Cpu in thousandths and memory in MiB, by row."""
    refusal: Refusal | None = None
    """Refusal of a job for which there would be room without it."""


NOTHING_KEPT: Final = KeptRoom()


class QueuePolicy(Protocol):
    """Policy of one round. The round calls it gang by gang, in queue order.

    Attributes:
        is_strict: :meth:`should_skip` is also asked about gangs of a class that was refused in this round.
    """

    is_strict: bool

    def should_skip(self, gang: Gang) -> Refusal | None:
        """Why a gang is not tried; None when it is to be decided."""

    def may_start(self, gang: Gang, placement: Placement) -> Refusal | None:
        """Why a gang may not take the placement that was found for it; None when it starts."""

    def refused(self, gang: Gang, refusal: Refusal) -> Refusal:
        """Note that a gang, or its class, found no room; returns the refusal with what the policy adds to it."""

    def kept_from(self, gang: Gang) -> KeptRoom:
        """What a gang without chips must leave free; asked only after all gangs with chips are decided."""

    def note_start(self, gang: Gang, placement: Placement) -> None:
        """Note that a gang without chips starts."""

    def note_step(self, gang: Gang, recovery: Recovery) -> None:
        """Note a step of the recovery of a placed gang; all steps of a round come before its gangs."""

    def refusal_changed(self, gang: Gang, refusal: Refusal) -> bool:
        """Whether a refusal differs from the last one of the gang, so that the record must contain it."""
