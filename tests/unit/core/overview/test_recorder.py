"""Timelines of stored recordings for the page."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from berth.core.overview.change_log import GAP_MS
from berth.core.overview.derived_statuses import DerivedStatuses
from berth.core.overview.overview import Overview
from berth.core.overview.reading import applied
from berth.core.overview.recorder import PageLimits, PageRecorder
from berth.core.state.cell import State
from berth.formats.recordings.recording import Reading, read
from berth.schemas.page.recording import RecordedTimeline
from berth.schemas.page.view import View
from tests.support.job_events import events_of

STORED = Path(__file__).parents[3] / "replay"
FILES = sorted(path.relative_to(STORED).as_posix() for path in STORED.glob("*/*.berthlog"))


def reading(name: str) -> Reading:
    return read([(STORED / name).read_bytes()])


def recorded(name: str, limits: PageLimits | None = None, clock: Callable[[int], str] = str) -> RecordedTimeline:
    source = reading(name)
    recorder = PageRecorder(
        source.head.start, cell=source.head.cell, title=name, limits=limits or PageLimits(reasons=5), clock=clock
    )
    for entry in source:
        recorder.feed(entry)
    return recorder.finish()


def last(timeline: RecordedTimeline) -> View:
    view = timeline.view
    at_ms = view.at_ms
    for change in timeline.changes:
        assert change.at_ms >= at_ms
        at_ms = change.at_ms
        view = applied(view, change)
    assert timeline.begin_ms == timeline.view.at_ms
    assert timeline.end_ms >= at_ms
    return view


def at_the_end(name: str, at_ms: int) -> View:
    """The picture of the end alone."""
    source = reading(name)
    state = State()
    overview = Overview(state, cell=source.head.cell)
    if source.head.start.ledger:
        state.load(source.head.start)
        for fact in source.head.start.facts:
            overview.note_fact(fact.data)
    for entry in source:
        if entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
            overview.note_fact(entry.data)
        else:
            state.apply_record(entry.sequence, entry.data)
    overview.note_loaded()
    DerivedStatuses(state).tell(overview, at_ms)
    found = overview.change(at_ms)
    assert isinstance(found, View)
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_changes_of_a_recording_lead_to_its_end(name: str) -> None:
    timeline = recorded(name)
    view, whole = last(timeline), at_the_end(name, timeline.end_ms)
    assert view.layout == whole.layout
    names = {job.n: (job.namespace, job.name, job.uid) for job in view.jobs} | {0: ("", "", "")}
    wanted = {job.n: (job.namespace, job.name, job.uid) for job in whole.jobs} | {0: ("", "", "")}
    assert [[names[owner] for owner in row.owners] for row in view.nodes] == [
        [wanted[owner] for owner in row.owners] for row in whole.nodes
    ]
    assert [names[number] for number in view.queue] == [wanted[number] for number in whole.queue]
    assert (view.facts_seq, view.ledger_seq) <= (whole.facts_seq, whole.ledger_seq)


@pytest.mark.parametrize("name", FILES[:3])
def test_stories_are_the_events_of_the_jobs(name: str) -> None:
    source = reading(name)
    state = State(keeps=True)
    if source.head.start.ledger:
        state.load(source.head.start)
    events = events_of(source, state)
    stories = recorded(name).stories
    assert events
    assert {key: [one.id for one in story.events] for key, story in stories.items()} == {
        key: [one.id for one in events if f"{one.namespace}/{one.name}/{one.uid}" == key] for key in stories
    }
    assert {f"{one.namespace}/{one.name}/{one.uid}" for one in events} == set(stories)


def test_a_small_limit_merges_changes_and_says_so() -> None:
    name = "v0.5/refusals.berthlog"
    whole = recorded(name)
    size = len(msgspec.json.encode(whole.changes))
    limit = len(msgspec.json.encode(whole.view)) + size // 3
    small = recorded(name, PageLimits(changes_bytes=limit, reasons=0))
    assert (
        len(msgspec.json.encode(small.changes)) + len(msgspec.json.encode(small.view)) <= limit + len(small.changes) + 2
    )
    assert len(small.changes) < len(whole.changes)
    assert any(note.startswith("Changes within ") for note in small.notes)
    assert not any(note.startswith("Changes within ") for note in whole.notes)
    assert msgspec.structs.replace(last(small), version=0) == msgspec.structs.replace(last(whole), version=0)


def test_changes_of_less_than_a_span_are_one() -> None:
    for name in FILES[:3]:
        moments = [change.at_ms // GAP_MS for change in recorded(name).changes]
        assert len(set(moments)) == len(moments)


def test_reasons_are_those_of_the_first_decisions_and_the_rest_is_said_to_be_missing() -> None:
    timeline = recorded("v0.5/refusals.berthlog", PageLimits(reasons=2), clock=lambda at_ms: f"moment {at_ms}")
    explained = [event for story in timeline.stories.values() for event in story.events if event.why]
    assert 1 <= len(explained) <= 2
    assert any("moment " in sentence for event in explained for sentence in event.why)
    assert any(note.startswith("The reasons of ") for note in timeline.notes)


def test_each_decision_has_its_own_reasons() -> None:
    timeline = recorded("v0.5/refusals.berthlog", PageLimits(reasons=1_000))
    several = [
        explained
        for story in timeline.stories.values()
        if len(explained := [event for event in story.events if event.why]) > 1
    ]
    assert several, "a job that waits and is placed then has reasons for both"
    for events in several:
        assert len({tuple(event.why) for event in events}) > 1
    for story in timeline.stories.values():
        assert {event.phase for event in story.events if event.why} <= {"placed", "waiting", "failed"}


def test_stories_beyond_the_limit_are_left_out_oldest_first() -> None:
    whole = recorded("v0.5/refusals.berthlog", PageLimits(reasons=0))
    part = recorded("v0.5/refusals.berthlog", PageLimits(reasons=0, stories_bytes=4_000))
    assert 0 < len(part.stories) < len(whole.stories)
    left = whole.stories.keys() - part.stories.keys()
    assert max(max(one.at_ms for one in whole.stories[key].events) for key in left) <= min(
        max(one.at_ms for one in story.events) for story in part.stories.values()
    )
    assert any("that changed first are left out" in note for note in part.notes)
