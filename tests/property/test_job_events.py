"""The same log gives the same events of jobs: from the beginning, from any snapshot, however its messages arrive."""

import itertools
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from berth.core.state.cell import State
from berth.schemas.envelope import decode
from berth.schemas.programs.events import PHASES
from berth.schemas.recording import Entry
from berth.schemas.status import SnapshotBody
from tests.property.test_recoveries import STEPS, ended, lived, running
from tests.support.job_events import events_of

Steps = list[tuple[str, int, int, int]]


def history(steps: Steps) -> list[Entry]:
    world = lived(running(), steps)
    ended(world)
    return world.entries()


def state_after(entries: Sequence[Entry]) -> State:
    """A state that was loaded from a snapshot after the entries."""
    state = State(keeps=True)
    for entry in entries:
        if entry.subject:
            state.apply_fact(entry.subject, entry.sequence, entry.data)
        else:
            state.apply_record(entry.sequence, entry.data)
    loaded = State(keeps=True)
    loaded.load(decode(state.dump(), SnapshotBody))
    return loaded


@given(steps=STEPS, cut=st.integers(0, 1_000))
def test_events_after_a_snapshot_are_those_of_the_whole_log(steps: Steps, cut: int) -> None:
    entries = history(steps)
    at = cut % (len(entries) + 1)
    whole = events_of(entries)
    before = events_of(entries[:at])
    after = [event for event in events_of(entries[at:], state_after(entries[:at])) if event not in before]
    assert before + after == whole
    assert len({event.id for event in whole}) == len(whole)


@given(steps=STEPS, delays=st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_facts_about_pods_that_arrive_before_older_records_change_no_event(steps: Steps, delays: list[int]) -> None:
    entries = history(steps)
    whole = {event.id: event for event in events_of(entries)}
    assert {event.id: event for event in events_of(late_records(entries, delays))} == whole


def late_records(entries: Sequence[Entry], delays: Sequence[int]) -> list[Entry]:
    """The entries with records behind facts of inventory and binder that were stored after them."""
    found = list(entries)
    for delay, entry in zip(itertools.cycle(delays), entries, strict=False):
        at = found.index(entry)
        for _ in range(0 if entry.subject else delay):
            following = found[at + 1 : at + 2]
            if not following or ".fact.pod." not in following[0].subject:
                break
            found[at : at + 2] = [following[0], entry]
            at += 1
    return found


@given(steps=STEPS)
def test_events_of_a_job_are_in_order_and_end_once(steps: Steps) -> None:
    found = events_of(history(steps))
    for uid in dict.fromkeys(event.uid for event in found):
        own = [event for event in found if event.uid == uid]
        decided = [event for event in own if event.source == "ledger"]
        places = [(event.attempt, event.step, PHASES.index(event.phase)) for event in decided]
        assert places == sorted(places)
        assert [event.final for event in own].count(True) <= 1
        assert own[0].phase == "accepted"
        assert own[-1].final
        for event in own:
            taken = [chip for rank in event.ranks for chip in ((rank.node, one) for one in rank.chips)]
            assert uid == "uid-share" or len(set(taken)) == len(taken)
