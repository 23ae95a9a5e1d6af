"""Jobs that are not placed for a while, because their pods could not be bound shortly before.

Whether one pauses follows from its record and the moment of the turn, also after the clock was set back.
"""

from collections.abc import Iterator

from berth.core.state.cell import JobKey, State
from berth.core.state.records.entries import GangRecord


class Pauses:
    """Jobs of one cell that wait with a pause, whether it is over or not.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs: dict[JobKey, None] = {}
        self.now_ms = 0
        """The moment: of the newest turn, or of the newest record before the first turn."""

    def see(self, key: JobKey, gang: GangRecord | None) -> bool:
        """Note a job that waits, by its record if it has one; returns whether it may not be placed now."""
        if gang is None or not gang.retry_ms or not self._state.fold.settings.corrected:
            return False
        self._jobs[key] = None
        return gang.pauses_at(self.now_ms)

    def advance(self, at_ms: int) -> dict[JobKey, None]:
        """Go to a moment, and return the jobs whose pause is over by then, or is not over although it was."""
        before = {key: gang.pauses_at(self.now_ms) for key, gang in self._records()}
        self._jobs = dict.fromkeys(before)
        self.now_ms = at_ms
        return {key: None for key, gang in self._records() if gang.pauses_at(at_ms) != before[key]}

    def moments(self) -> Iterator[int]:
        """When pauses end that are not over."""
        return (gang.retry_ms for _, gang in self._records() if gang.pauses_at(self.now_ms))

    def _records(self) -> list[tuple[JobKey, GangRecord]]:
        """Jobs that wait with a pause, and their records."""
        jobs, gangs = self._state.jobs, self._state.fold.gangs
        found = ((key, gangs.get(job.uid)) for key in self._jobs if (job := jobs.get(key)) is not None)
        return [(key, gang) for key, gang in found if gang is not None and gang.phase == "waiting" and gang.retry_ms]
