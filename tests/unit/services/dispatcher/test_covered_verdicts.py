"""Verdicts that a dispatcher stored that leads no more: they do not count, and do not stay the newest of their name."""

import msgspec
import pytest

from berth.core.changes import JobKey
from berth.core.state.cell import State
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen
from berth.schemas.refusal import Refusal
from berth.schemas.subjects import StreamName, Subjects
from tests.support.cells import Cell, a_job

KEY: JobKey = ("default", "job")
SUBJECT = Subjects("cell").fact_job(*KEY)


async def newest(cell: Cell) -> JobSeen:
    """What who starts from the newest facts takes for the job."""
    stored = await cell.user.last(StreamName.LATEST, cell.user.subjects.fact_job(*KEY))
    assert stored is not None
    return decode(stored.data, JobSeen)


async def stored(cell: Cell) -> int:
    return len(await cell.user.read(StreamName.FACTS, filters=[cell.user.subjects.fact_job(*KEY)]))


async def judged_twice(cell: Cell) -> tuple[JobSeen, JobSeen]:
    """A name that had one job, and has another; the verdicts on both."""
    await cell.submit(a_job("job", uid="first", chips=8))
    await cell.turns(2)
    before = await newest(cell)
    await cell.cancel("job")
    await cell.turns(2)
    await cell.submit(a_job("job", uid="second", chips=8))
    await cell.turns(2)
    after = await newest(cell)
    assert (before.uid, after.uid) == ("first", "second")
    return before, after


async def late(cell: Cell, verdict: JobSeen) -> None:
    """A dispatcher stores a verdict long after another has begun to lead."""
    await cell.user.publish(cell.user.subjects.fact_job(*KEY), encode(verdict))


@pytest.mark.parametrize("state", ["accepted", "rejected", "tombstone"])
async def test_a_late_verdict_of_a_former_leader_does_not_stay_the_newest(state: str) -> None:
    cell = await Cell().open()
    before, after = await judged_twice(cell)
    for _ in range(2):
        await late(cell, msgspec.structs.replace(before, state=state))
        assert await newest(cell) != after
        await cell.turns(2)
        assert await newest(cell) == after
    count = await stored(cell)
    await cell.turns(3)
    assert await stored(cell) == count, "the verdict that counts is stored again and again"
    assert cell.dispatcher.intake._uncovered == {}
    await cell.close()


@pytest.mark.parametrize("state", ["accepted", "rejected", "tombstone"])
async def test_a_late_verdict_on_a_name_that_is_free_does_not_stay(state: str) -> None:
    """What is stored takes back all jobs that the name had, for who has an old snapshot and the newest facts."""
    cell = await Cell().open()
    before, after = await judged_twice(cell)
    await late(cell, msgspec.structs.replace(after, state="tombstone", request=None))
    await cell.turns(1)
    await late(cell, msgspec.structs.replace(before, state=state))
    await cell.turns(2)
    found = await newest(cell)
    assert (found.state, found.uid, found.intake_seq) == ("tombstone", "", after.intake_seq)
    other = State()
    other.apply_fact(SUBJECT, 1, encode(after), latest=True)
    assert KEY in other.jobs
    other.apply_fact(SUBJECT, 2, encode(found), latest=True)
    assert (KEY in other.jobs, other.intake_seq) == (False, after.intake_seq)
    count = await stored(cell)
    await cell.submit(a_job("another", chips=8))
    await cell.turns(3)
    assert await stored(cell) == count
    await cell.close()


async def test_who_leads_next_stores_what_counts_if_nobody_did() -> None:
    cell = await Cell().open()
    before, after = await judged_twice(cell)
    await cell.dispatcher.stop()
    await late(cell, before)
    await cell.start_dispatcher()
    await cell.turns(2)
    assert await newest(cell) == after
    await cell.close()


async def test_a_verdict_that_was_not_stored_again_is_tried_again() -> None:
    cell = await Cell().open()
    before, after = await judged_twice(cell)
    await late(cell, before)
    cell.server.lose_messages = 1
    await cell.turns(3)
    assert await newest(cell) == after
    await cell.close()


def test_the_state_knows_which_verdicts_are_covered() -> None:
    state = State()
    first = JobSeen(*KEY, "first", "accepted", 1)
    second = JobSeen(*KEY, "second", "accepted", 2, after_seq=1)
    for sequence, fact in enumerate((first, second, first), 1):
        assert not state.apply_fact(SUBJECT, sequence, encode(fact)).error
    assert state.covered == {KEY: first}
    assert state.jobs[KEY].uid == "second"
    state.apply_fact(SUBJECT, 4, encode(second))
    assert state.covered == {}
    third = JobSeen(*KEY, "third", "accepted", 3, after_seq=2)
    for sequence, fact in enumerate((first, third), 5):
        assert not state.apply_fact(SUBJECT, sequence, encode(fact)).error
    assert state.covered == {}, "a later verdict is the newest"


async def test_a_job_that_another_dispatcher_has_rejected_takes_no_place_among_those_that_wait() -> None:
    """Both judged the request, and the verdict that was stored first counts."""
    cell = await Cell(waiting_jobs_max=1).open()
    request = a_job("job", uid="own", chips=8)
    await cell.submit(request)
    refusal = Refusal(code="invalid-request", field="tasks", value="8", expected="fewer")
    at_ms = cell.clock.now_ms()
    await late(cell, JobSeen(*KEY, "own", "rejected", 1, at_ms=at_ms, request=request, refusal=refusal))
    await cell.turns(3)
    assert cell.dispatcher.state.jobs[KEY].state == "rejected"
    await cell.submit(a_job("next", chips=8))
    await cell.turns(2)
    assert cell.dispatcher.state.jobs["default", "next"].state == "accepted"
    await cell.close()
