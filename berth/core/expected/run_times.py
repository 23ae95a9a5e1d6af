"""How long jobs are taken to run for an expected start: as they declare, else as their like did, else nobody knows.

There are two views of a cell: in the early one run times that were learned are at their 20th percentile, in the late
one at their 80th. A job that runs longer than it declared, or than all of its like did, ends at any moment in the
early view and at none that is known in the late one. Nothing is guessed: a job that declares no end, and of whose like
none has ended, ends in neither.
"""

from berth.core.gangs import Gang
from berth.core.scheduling.reservations import FOREVER_MS, Expects, declared_ms_of
from berth.core.state.cell import State
from berth.core.state.ledger import Holding, chips_in
from berth.core.state.run_times import Range


class ExpectedRunTimes(Expects):
    """Run times in one view.

    Attributes:
        has_ranges: A run time was asked for that differs between the views.

    Args:
        state: The cell.
        at_ms: The moment.
        is_late: The late view.
    """

    def __init__(self, state: State, at_ms: int, *, is_late: bool) -> None:
        super().__init__(state, at_ms)
        self._is_late = is_late
        self.has_ranges = False

    def run_ms(self, gang: Gang) -> int:
        """How long a gang is taken to run; :data:`FOREVER_MS` if nobody knows."""
        if gang.run_ms > 0:
            return gang.run_ms
        found = self._state.fold.run_times.range_ms(gang.namespace, gang.name, chips_in(gang.runs))
        return FOREVER_MS if found is None else self._in(found)

    def end_ms(self, holding: Holding) -> int:
        """When a holding is expected to end; :data:`FOREVER_MS` if nobody knows."""
        if holding.ending:
            return self._at_ms
        declared_ms = declared_ms_of(self._state, holding)
        if declared_ms > 0:
            return self._ends(holding.at_ms + declared_ms)
        times, chips = self._state.fold.run_times, chips_in(holding.placement.runs)
        spent_ms = max(0, self._at_ms - holding.at_ms)
        found = times.range_ms(holding.namespace, holding.name, chips, beyond_ms=spent_ms)
        if found is not None:
            return max(self._at_ms, holding.at_ms + self._in(found))
        is_known = times.range_ms(holding.namespace, holding.name, chips) is not None
        return self._ends(self._at_ms - 1) if is_known else FOREVER_MS

    def _ends(self, end_ms: int) -> int:
        """An end that is known; one that has passed says nothing of when the job really ends."""
        if end_ms >= self._at_ms:
            return end_ms
        self.has_ranges = True
        return FOREVER_MS if self._is_late else self._at_ms

    def _in(self, found: Range) -> int:
        self.has_ranges |= found.low_ms != found.high_ms
        return found.high_ms if self._is_late else found.low_ms
