"""The course of a cell as it was recorded: what its own ledger says became of its jobs."""

from collections.abc import Iterable
from typing import Final

from berth.core.replay.log_clock import LogClock
from berth.core.scheduling.scheduler import Scheduler
from berth.core.simulation.timeline import Timeline
from berth.core.simulation.timeline_recorder import TimelineRecorder
from berth.core.state.cell import State
from berth.core.state.ledger import dump_of
from berth.schemas.envelope import open_envelope
from berth.schemas.facts import HealthSeen, JobSeen, NodesSeen, TopologySeen
from berth.schemas.recording import Entry, RecordingHead

TITLE: Final = "as recorded"
_TELLING: Final = frozenset({JobSeen.KIND, NodesSeen.KIND, HealthSeen.KIND, TopologySeen.KIND})
"""Facts after which the course is another."""


def course_of(head: RecordingHead, entries: Iterable[Entry], *, words: dict[str, str]) -> Timeline:
    """The course of a recording, in milliseconds since 1970, as the cell's clocks had them.

    It begins with the first record of the ledger, or with the snapshot. Jobs that were there before count from the begin on.

    Args:
        head: Head of the recording.
        entries: All of it, in order.
        words: What the course is to say of its settings.

    Raises:
        HistoryError: Records are missing.
        DecodeError: A record does not decode.
    """
    log = _Log(head)
    for entry in entries:
        log.take(entry)
    return log.keeper.finish(max(log.clock.now_ms, log.clock.begin_ms), title=TITLE, settings=words)


class _Log:
    """A recording up to an entry."""

    def __init__(self, head: RecordingHead) -> None:
        self.clock = LogClock()
        self._state = State()
        self._scheduler = Scheduler(self._state)
        self._has_begun = bool(head.start.ledger)
        if self._has_begun:
            self._scheduler.begin(self._state.load(head.start))
            self.clock.begin(dump_of(head.start.ledger).at_ms)
        self.keeper = self._new_keeper()
        self.keeper.settle(self.clock.begin_ms)

    def take(self, entry: Entry) -> None:
        """Fold an entry, and take note of it."""
        at_ms = self.clock.moment_of(entry)
        if self._has_begun:
            self.keeper.until(at_ms)
        tells = self._fact(entry) if entry.subject else self._record(entry)
        if tells and self._has_begun:
            self.keeper.settle(at_ms)

    def _fact(self, entry: Entry) -> bool:
        """Fold a fact; returns whether the course is another after it."""
        applied = self._state.apply_fact(entry.subject, entry.sequence, entry.data)
        for key in applied.changes.jobs_changed:
            self.keeper.note_job(key)
        return open_envelope(entry.data).kind in _TELLING

    def _record(self, entry: Entry) -> bool:
        """Fold a record; the first one begins the course."""
        folded = self._state.apply_record(entry.sequence, entry.data)
        self.clock.begin(self._state.fold.at_ms)
        if folded.epoch:
            self._scheduler.begin(folded.changes)
        if not self._has_begun:
            self._has_begun = True
            self.keeper = self._new_keeper()
        self.keeper.note_record(folded)
        return True

    def _new_keeper(self) -> TimelineRecorder:
        keeper = TimelineRecorder(self._scheduler, begin_ms=self.clock.begin_ms)
        keeper.note_start()
        return keeper
