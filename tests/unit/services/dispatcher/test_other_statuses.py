"""Statuses that another dispatcher stored while this one leads."""

import msgspec
import pytest

from berth.schemas.envelope import encode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.dispatcher.other_statuses import OtherStatuses
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer


async def placed(cell: Cell) -> JobStatus:
    """The status of a job that waits, from before it was placed."""
    await cell.submit(a_job("job", chips=8), a_job("other", chips=8))
    await cell.turns(2)
    before = await cell.status("job")
    assert before is not None
    assert before.phase == "waiting"
    await cell.nodes([a_node("a")])
    await cell.turns(2)
    return before


async def phase(cell: Cell, name: str) -> str:
    status = await cell.status(name)
    return status.phase if status is not None else ""


async def written(cell: Cell) -> int:
    return (await cell.user.state(StreamName.STATUS)).last_seq


async def test_a_late_status_of_a_former_leader_is_replaced() -> None:
    cell = await Cell().open()
    before = await placed(cell)
    assert await phase(cell, "job") == "placed"
    for _ in range(2):
        await cell.user.publish(cell.user.subjects.status("default", "job"), encode(before))
        assert await phase(cell, "job") == "waiting"
        cell.clock.advance(6)
        await cell.turns(2)
        assert await phase(cell, "job") == "placed"
    await cell.close()


async def forged(cell: Cell, data: bytes) -> None:
    """Store what no dispatcher wrote on the subject of a job, and give the leader a look at it."""
    await cell.user.publish(cell.user.subjects.status("default", "job"), data)
    cell.clock.advance(6)
    await cell.turns(2)


async def test_what_is_no_status_is_replaced() -> None:
    cell = await Cell().open()
    await placed(cell)
    for data in (b"", b"\x01 no status", b"\x93\xa6status\x01\x90"):
        await forged(cell, data)
        assert await phase(cell, "job") == "placed"
    await cell.close()


async def test_the_status_of_another_job_is_replaced_and_says_nothing_of_that_job() -> None:
    cell = await Cell().open()
    await placed(cell)
    other = await cell.status("other")
    assert other is not None
    over = msgspec.structs.replace(other, phase="failed")
    await forged(cell, encode(over))
    assert await phase(cell, "job") == "placed"
    assert await cell.status("other") == other
    await cell.close()


async def test_a_late_status_between_own_ones_is_replaced() -> None:
    cell = await Cell().open()
    before = await placed(cell)
    await cell.user.publish(cell.user.subjects.status("default", "job"), encode(before))
    await cell.submit(a_job("third", chips=8))
    await cell.turns(2)
    assert await phase(cell, "third") == "waiting"
    cell.clock.advance(6)
    await cell.turns(2)
    assert await phase(cell, "job") == "placed"
    await cell.close()


async def test_statuses_that_are_right_are_not_written_again() -> None:
    cell = await Cell().open()
    await placed(cell)
    same = await cell.status("job")
    assert same is not None
    await cell.user.publish(cell.user.subjects.status("default", "job"), encode(same))
    await cell.user.publish(cell.user.subjects.status("default", "foreign"), b"\x01 no status")
    head = await written(cell)
    for _ in range(3):
        cell.clock.advance(6)
        await cell.turns(2)
    assert await written(cell) == head
    await cell.close()


@pytest.mark.parametrize("is_lost", [False, True])
async def test_a_count_in_doubt_costs_one_look(*, is_lost: bool) -> None:
    cell = await Cell().open()
    clock, subject = ManualClock(), cell.user.subjects.status("ns", "job")
    others = OtherStatuses(cell.user, clock)
    others.begin(await written(cell))
    others.sent()
    if not is_lost:
        await cell.user.publish(subject, b"1")
    others.failed()  # no acknowledgement came
    clock.advance(6)
    assert [stored.subject for stored in await others.read()] == ([] if is_lost else [subject])
    for _ in range(2):
        clock.advance(6)
        assert await others.read() == []
    await cell.close()


async def test_nothing_is_asked_for_while_batches_are_on_their_way_and_a_shorter_stream_begins_anew() -> None:
    cell = await Cell().open()
    clock, subject = ManualClock(), cell.user.subjects.status("ns", "job")
    others = OtherStatuses(cell.user, clock)
    head = await written(cell)
    others.begin(head)
    batches = [others.sent(), others.sent()]
    first = await cell.user.publish(subject, b"1")
    assert others.stored(batches[0], first, 1)
    clock.advance(6)
    assert await others.read() == [], "the second batch is on its way"
    second = await cell.user.publish(subject, b"2")
    assert others.stored(batches[1], second, 1)
    clock.advance(6)
    assert await others.read() == []
    others.begin(second + 5)
    clock.advance(6)
    assert await others.read() == [], "the server lost what it had"
    third = await cell.user.publish(subject, b"3")
    assert others.stored(others.sent(), third, 1)
    clock.advance(6)
    assert await others.read() == []
    await cell.close()


async def test_a_batch_of_which_messages_may_be_missing_is_not_known_to_be_stored() -> None:
    others = OtherStatuses(FakeBus(FakeServer(), "cell"), ManualClock())
    others.begin(100)
    assert others.stored(others.sent(), 110, 10)
    assert not others.stored(others.sent(), 119, 10), "one is missing"
    assert others.stored(others.sent(), 129, 10)
    assert others.stored(others.sent(), 140, 10), "another has written one"
    first, second, third = others.sent(), others.sent(), others.sent()
    others.failed()  # the first: any part of it may be stored
    assert not others.stored(second, 150, 10)
    assert others.stored(third, 160, 10)
    assert first < second < third
    others.sent()
    others.failed()
    assert others.stored(others.sent(), 161, 1), "what is acknowledged is stored"


async def test_statuses_that_the_server_lost_are_written_again_by_the_next_leader() -> None:
    """The stream counts on behind them: nothing is left that could be read."""
    cell = await Cell().open()
    await placed(cell)
    stream = cell.server.streams[cell.user.subjects.stream(StreamName.STATUS)]
    for sequence in list(stream.messages):
        stream.remove(sequence)
    assert await phase(cell, "job") == ""
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    await cell.turns(3)
    assert (await phase(cell, "job"), await phase(cell, "other")) == ("placed", "waiting")
    await cell.close()
