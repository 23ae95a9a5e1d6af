"""Timeline of a recorded cell, from its own ledger."""

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
_CHANGING: Final = frozenset({JobSeen.KIND, NodesSeen.KIND, HealthSeen.KIND, TopologySeen.KIND})
"""Facts that change the timeline."""


def timeline_of_recording(head: RecordingHead, entries: Iterable[Entry], *, words: dict[str, str]) -> Timeline:
    """Timeline of a recording, in milliseconds since 1970 on the clocks of the cell.

    It begins with the first ledger record, or with the snapshot. Older jobs count from there.

    Args:
        head: Head of the recording.
        entries: All entries, in order.
        words: Settings in words.

    Raises:
        HistoryError: Records are missing.
        DecodeError: A record does not decode.
    """
    log = _Log(head)
    for entry in entries:
        log.take(entry)
    return log.recorder.finish(max(log.clock.now_ms, log.clock.begin_ms), title=TITLE, settings=words)


class _Log:
    """A recording up to an entry."""

    def __init__(self, head: RecordingHead) -> None:
        self.clock = LogClock()
        self._state = State()
        self._scheduler = Scheduler(self._state)
        self._has_begun = bool(head.start.ledger)
        if self._has_begun:
            self._scheduler.begin(self._state.load(head.start).changes)
            self.clock.begin(dump_of(head.start.ledger).at_ms)
        self.recorder = self._new_recorder()
        self.recorder.settle(self.clock.begin_ms)

    def take(self, entry: Entry) -> None:
        """Fold an entry and record it."""
        at_ms = self.clock.moment_of(entry)
        if self._has_begun:
            self.recorder.until(at_ms)
        has_changed = self._fact(entry) if entry.subject else self._record(entry)
        if has_changed and self._has_begun:
            self.recorder.settle(at_ms)

    def _fact(self, entry: Entry) -> bool:
        """Fold a fact; returns whether it changes the timeline."""
        applied = self._state.apply_fact(entry.subject, entry.sequence, entry.data)
        for key in applied.changes.jobs_changed:
            self.recorder.note_job(key)
        return open_envelope(entry.data).kind in _CHANGING

    def _record(self, entry: Entry) -> bool:
        """Fold a record; the first one begins the timeline."""
        folded = self._state.apply_record(entry.sequence, entry.data)
        self.clock.begin(self._state.fold.at_ms)
        if folded.epoch:
            self._scheduler.begin(folded.changes)
        if not self._has_begun:
            self._has_begun = True
            self.recorder = self._new_recorder()
        self.recorder.note_record(folded)
        return True

    def _new_recorder(self) -> TimelineRecorder:
        recorder = TimelineRecorder(self._scheduler, begin_ms=self.clock.begin_ms)
        recorder.note_start()
        return recorder
