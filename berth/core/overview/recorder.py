"""Timeline of a history for the page: pictures over time, and the stories of jobs."""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from berth.core.events.job_events import JobEvents
from berth.core.explain.explainer import explain
from berth.core.explain.model import all_sentences
from berth.core.overview.change_log import GAP_MS, ChangeLog
from berth.core.overview.derived_statuses import DerivedStatuses
from berth.core.overview.overview import Overview
from berth.core.replay.log_clock import LogClock
from berth.core.state.cell import State
from berth.core.state.ledger import dump_of
from berth.core.text import pluralize
from berth.schemas.ledger import Round
from berth.schemas.page.recording import RecordedTimeline, Story, StoryEvent
from berth.schemas.page.view import View
from berth.schemas.programs.events import JobEvent
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody

_MIB: Final = 1 << 20
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
_DECIDED: Final = frozenset({"placed", "waiting", "failed"})
"""Phases of the events that tell of a verdict."""
_Decision: TypeAlias = tuple[str, int, str]
"""Uid, attempt, and code of the refusal; empty for a placement."""


class PageLimits(msgspec.Struct, frozen=True):
    """How much of a history a page has."""

    changes_bytes: int = 12 * _MIB
    """Pictures and changes, as JSON."""
    stories_bytes: int = 6 * _MIB
    """Events and reasons, as JSON."""
    reasons: int = 200
    """Decisions that are explained: each repeats its round."""


class PageRecorder:
    """Follows a history entry by entry.

    Args:
        start: State at its beginning.
        cell: Name of the cell.
        title: Title of the timeline.
        limits: How much to keep.
        clock: Formats a moment.

    Raises:
        DecodeError: The start does not decode.
        InvariantError: The start breaks a rule of the ledger.
    """

    def __init__(
        self, start: SnapshotBody, *, cell: str, title: str, limits: PageLimits, clock: Callable[[int], str] = str
    ) -> None:
        self._state = State()
        self._overview = Overview(self._state, cell=cell)
        self._statuses = DerivedStatuses(self._state)
        self._events = JobEvents(self._state)
        self._title = title
        self._limits = limits
        self._words = clock
        self._log = ChangeLog(limits.changes_bytes)
        self._time = LogClock()
        self._has_begun = bool(start.ledger)
        self._stories: dict[tuple[str, str, str], dict[str, StoryEvent]] = {}
        self._explained: set[_Decision] = set()
        self._unexplained = 0
        if self._has_begun:
            self._state.load(start)
            for fact in start.facts:
                self._overview.note_fact(fact.data)
            self._overview.note_loaded()
            self._statuses.note_loaded()
            self._time.begin(dump_of(start.ledger).at_ms)

    def feed(self, entry: Entry) -> None:
        """Read the next entry, in the order of recordings.

        Raises:
            HistoryError: Records are missing.
            LedgerBrokenError: A record breaks a rule of the ledger, or does not decode.
            VersionError: Only another release reads the record.
        """
        before_ms = self._time.now_ms
        at_ms = self._time.moment_of(entry)
        if self._has_begun and self._log.is_apart(before_ms, at_ms):
            self._note(before_ms)
        if entry.subject:
            applied, events = self._events.apply_fact(entry.subject, entry.sequence, entry.data)
            if not applied.error:
                self._overview.note_fact(entry.data)
            self._statuses.note(applied.changes)
            self._tell(events, {})
        else:
            self._record(entry)

    def finish(self) -> RecordedTimeline:
        """The timeline up to the last entry."""
        self._note(self._time.now_ms)
        first, *changes = self._log.messages() or [self._overview.view()]
        stories, notes = self._told()
        if self._log.gap_ms > GAP_MS:
            notes.insert(0, f"Changes within {_span_words(self._log.gap_ms)} are shown at once.")
        return RecordedTimeline(
            title=self._title,
            begin_ms=first.at_ms,
            end_ms=max(self._time.now_ms, first.at_ms),
            view=first if isinstance(first, View) else self._overview.view(),  # the first one always is
            changes=changes,
            stories=stories,
            notes=notes,
        )

    def _record(self, entry: Entry) -> None:
        fold = self._state.fold
        link = fold.link(entry.sequence, entry.data)
        record = fold.round_of(link)
        reasons = self._explained_in(record, entry.sequence) if record is not None and record.verdicts else {}
        folded, events = self._events.apply_link(link)
        self._overview.note_record(folded)
        self._statuses.note_record(folded)
        if not self._has_begun:
            self._has_begun = True
            self._time.begin(fold.at_ms)
        self._tell(events, reasons)

    def _tell(self, events: list[JobEvent], reasons: dict[_Decision, list[str]]) -> None:
        """Add events to the stories of their jobs, with the reasons of the decisions that they tell of."""
        for event in events:
            story = self._stories.setdefault((event.namespace, event.name, event.uid), {})
            why = reasons.get((event.uid, event.attempt, event.code), []) if event.phase in _DECIDED else []
            story.setdefault(event.id, _story_event(event, why))

    def _note(self, at_ms: int) -> None:
        """Note what changed up to a moment."""
        self._statuses.tell(self._overview, at_ms)
        message = self._overview.change(at_ms)
        if message is not None:
            self._log.add(message)

    def _explained_in(self, record: Round, sequence: int) -> dict[_Decision, list[str]]:
        """Reasons of verdicts: of the first of each attempt and code, as long as the limit allows."""
        reasons: dict[_Decision, list[str]] = {}
        for verdict in record.verdicts:
            about = (verdict.uid, verdict.attempt, verdict.refusal.code if verdict.refusal is not None else "")
            if about in self._explained:
                continue
            self._explained.add(about)
            if self._limits.reasons <= len(self._explained) - 1 - self._unexplained:
                self._unexplained += 1
                continue
            found = explain(self._state, record, verdict.uid, ledger_seq=sequence)
            if found is not None:
                reasons[about] = all_sentences(found, clock=self._words)
        return reasons

    def _told(self) -> tuple[dict[str, Story], list[str]]:
        """Stories of the jobs that changed last, as many as the limit allows, and what was left out."""
        newest = sorted(self._stories, key=lambda key: (-max(one.at_ms for one in self._stories[key].values()), key))
        found: dict[str, Story] = {}
        size = 0
        for key in newest:
            story = Story(events=list(self._stories[key].values()))
            size += len(msgspec.json.encode(story))
            if size > self._limits.stories_bytes:
                break
            found["/".join(key)] = story
        notes = []
        if len(found) < len(newest):
            left = len(newest) - len(found)
            notes.append(f"The events of {pluralize(left, 'job')} that changed first are left out.")
        if self._unexplained:
            notes.append(f"The reasons of {pluralize(self._unexplained, 'later decision')} are left out.")
        return dict(sorted(found.items())), notes


def _story_event(event: JobEvent, why: list[str]) -> StoryEvent:
    shared = [name for name in StoryEvent.__struct_fields__ if name in JobEvent.__struct_fields__]
    return StoryEvent(**{name: getattr(event, name) for name in shared}, why=why)


def _span_words(gap_ms: int) -> str:
    if gap_ms < _SECOND_MS:
        return f"{gap_ms} ms"
    if gap_ms < _MINUTE_MS:
        return f"{gap_ms / _SECOND_MS:.1f} s"
    return f"{gap_ms / _MINUTE_MS:.1f} min"
