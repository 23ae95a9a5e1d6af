"""Statuses derived from a state, where no stream has them: in a recording."""

from typing import Protocol

from berth.core.changes import Changes, JobKey
from berth.core.explain.job_status import status_of
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.schemas.status import JobStatus


class Told(Protocol):
    """What takes statuses: :class:`~berth.core.overview.overview.Overview`."""

    def note_status(self, status: JobStatus) -> None:
        """Note the newest status of a job."""

    def note_unnamed(self, key: JobKey) -> None:
        """Note that no job has a name any more."""


class DerivedStatuses:
    """Statuses of the jobs that facts and records touch, as the dispatcher would write them.

    Reasons that only the dispatcher knows, why a fault does not restart a job or a rank finds no place, are missing.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._touched: dict[JobKey, None] = {}
        self.note_loaded()

    def note_loaded(self) -> None:
        """Note that the state was loaded, or has other settings: all jobs are touched."""
        self._touched.update(dict.fromkeys(self._state.jobs))

    def note(self, changes: Changes) -> None:
        """Note what a fact or a record changed."""
        self._touched.update(changes.jobs_changed)
        self._touched.update(changes.pods_changed)

    def note_record(self, folded: Folded) -> None:
        """Note what a record changed."""
        self.note(folded.changes)
        if folded.epoch:
            self.note_loaded()  # statuses depend on the settings
        self._touched.update(dict.fromkeys(folded.jobs))

    def tell(self, overview: Told, at_ms: int) -> None:
        """Note the statuses of the touched jobs in a picture.

        Args:
            overview: The picture.
            at_ms: The time.
        """
        touched, self._touched = self._touched, {}
        for key in touched:
            status = status_of(self._state, key, at_ms=at_ms)
            if status is not None:
                overview.note_status(status)
            else:
                overview.note_unnamed(key)
