"""Steps of a turn: each step of the scheduler takes the value that the step before it returned.

A turn is opened (:class:`Opened`, which has an :class:`Opening` if there is something to decide), chosen
(:class:`Choice`), recorded (:class:`Recorded`), and then adopted once its record is stored, or taken back. The types
make it impossible to leave a step out; the scheduler refuses a value that was used before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from berth.core.errors import CoreError
from berth.core.faults.examination import Faulty, Unplaced
from berth.core.gangs import ClassKey, Gang, chips_of
from berth.core.placement.round_demand import NeedMoreError, more_counts
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.internal_errors import SetAside
from berth.core.topologies.leaving import LeavingPods
from berth.schemas.ledger import Admission, Release, Reservation, Round, Verdict
from berth.schemas.offers import Shape
from berth.schemas.recovery import HeldPlaces, Recovery

ASKS_MAX: Final = 20
"""Times that offers are asked for in one turn."""

T = TypeVar("T")


class MissingShards(NamedTuple):
    """Shards that did not answer, as a record states them."""

    shards: int = 0
    """How many there are; 0 when the dispatcher scores."""
    missing: Sequence[int] = ()


class Returning(NamedTuple):
    """A waiting gang that starts anew as a whole, with places that are held for it."""

    gang: Gang
    pods: LeavingPods
    """All of its pods; those whose places are held can return."""


class Opening(NamedTuple):
    """A turn that was opened and has something to decide."""

    number: int
    """Number of the round in its epoch."""
    at_ms: int
    gangs: Sequence[Gang]
    """Gangs to decide, in queue order; those of the lane without chips come last."""
    must: Due
    asks: dict[Shape, int]
    """Candidates to ask for of each shape; more may be asked for later."""
    faulty: Sequence[Faulty] = ()
    """Gangs that need a step of a recovery, in the order in which they are tried, before ``gangs``: those that only
    restart if there are places come after ``returning``."""
    growing: Sequence[Faulty] = ()
    """Gangs with ranks that they gave up, in their order: each is tried behind those of ``gangs`` before it."""
    held: Sequence[Release] = ()
    """Releases that only go with such a step."""
    returning: Sequence[Returning] = ()
    """Gangs with held places, which are tried before ``gangs``; some may be among these."""
    admissions: Sequence[Admission] = ()
    """PodGroups that are admitted, or wait for another reason than before."""
    needs: Mapping[Shape, int] = {}
    """Candidates that may be needed of each shape; empty: those of ``asks``."""
    heavy: frozenset[Shape] = frozenset()
    """Shapes that only gangs with much work need: see :mod:`berth.core.scheduling.heavy_gangs`."""
    late: Sequence[Gang] = ()
    """Gangs that are left out because of their work."""
    work_max: int = 0
    """Bound of the work, as the record states it."""


class Opened(NamedTuple):
    """Result of opening a turn."""

    opening: Opening | None
    """None when there is nothing to decide; then no turn is open."""
    set_aside: Sequence[SetAside]
    """Errors in what is due, each with the gang (uid) that was set aside for it; also when there is nothing to decide.
    """


class Choice(NamedTuple):
    """A turn whose gangs are decided."""

    opening: Opening
    verdicts: list[Verdict]
    missing_shards: MissingShards
    set_aside: Sequence[SetAside]
    """Errors of the choice, each with the gang that was set aside for it."""
    recoveries: Sequence[Recovery] = ()
    unplaced: Sequence[Unplaced] = ()
    """Gangs for whose ranks without a pod no places were found."""
    reserved: Sequence[Reservation] = ()
    """Places of gangs for which others leave."""
    unheld: Sequence[HeldPlaces] = ()
    """Reserved places that their gangs lose to one of higher priority."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is decided: gangs needed a step of a recovery, and none has what it needs."""
        opening = self.opening
        is_empty = not (self.recoveries or self.verdicts or opening.gangs or opening.must or opening.admissions)
        return bool(opening.faulty or opening.returning or opening.growing) and is_empty


class Recorded(NamedTuple):
    """A turn whose record is made; it is to be stored."""

    opening: Opening
    round: Round
    set_aside: Sequence[SetAside]
    """As in :class:`Choice`."""


Turn = Opening | Choice | Recorded
"""A turn that was opened and is neither adopted nor taken back, at whatever step it is."""


class OffersExhaustedError(CoreError):
    """Offers did not reach far enough however often more were asked for.

    Attributes:
        number: The round.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"round {number} ran out of offers {ASKS_MAX} times")
        self.number = number


class Asking:
    """Asks for offers of a turn until they reach far enough for a decision, ``ASKS_MAX`` times at most.

    Args:
        opening: The turn.
    """

    def __init__(self, opening: Opening) -> None:
        self.asks: Mapping[Shape, int] = opening.asks
        """Candidates to ask for now, by shape."""
        self._opening = opening
        self._left = ASKS_MAX

    def tried(self, decide: Callable[[], T]) -> T | None:
        """Result of a decision on offers of :attr:`asks`; None if more are needed; :attr:`asks` then has them.

        Raises:
            OffersExhaustedError: They were asked for ``ASKS_MAX`` times.
        """
        self._left -= 1
        try:
            return decide()
        except NeedMoreError as error:
            if not self._left:
                raise OffersExhaustedError(self._opening.number) from error
            self.asks = more_counts(self.asks, self._opening.needs, error)
            return None


def opening_of(turn: Turn) -> Opening:
    """The opening with which a turn began."""
    return turn if isinstance(turn, Opening) else turn.opening


def most_of_a_class(state: State) -> Callable[[ClassKey], int]:
    """How many gangs of a class a round can decide: as many as the free chips allow, and one that is refused.

    Those behind it would have no verdict, for then the class sleeps.
    """
    table = state.table
    free = int(np.bitwise_count(table.free[table.view()]).sum())
    gangs_max = state.fold.settings.round_gangs_max

    def most(key: ClassKey) -> int:
        chips = chips_of(key)
        return min(gangs_max, free // chips + 1) if chips else gangs_max

    return most
