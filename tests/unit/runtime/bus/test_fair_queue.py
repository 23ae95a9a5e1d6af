"""Queues of several callers that take turns."""

import asyncio

import pytest

from berth.runtime.bus.fair_queue import FairQueue, FairTurns


def test_callers_take_turns_and_each_has_its_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(4):
        queue.append("many", f"many-{number}")
    queue.append("few", "few-0")
    queue.append("some", "some-0")
    queue.append("some", "some-1")
    assert (len(queue), queue.count_of("many"), queue.count_of("nobody")) == (7, 4, 0)
    taken = [queue.popleft() for _ in range(len(queue))]
    assert taken == ["many-0", "few-0", "some-0", "many-1", "some-1", "many-2", "many-3"]


def test_an_empty_queue_has_no_entry() -> None:
    queue: FairQueue[str] = FairQueue()
    with pytest.raises(IndexError):
        queue.popleft()
    queue.append("a", "x")
    queue.popleft()
    assert (len(queue), bool(queue), queue.count_of("a")) == (0, False, 0)


def test_a_caller_that_is_held_takes_no_turns_and_keeps_its_order() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(2):
        queue.append("held", number)
    queue.append("other", 10)
    queue.hold("held")
    queue.append("held", 2)
    assert (queue.popleft(), list(queue.callers), len(queue)) == (10, [], 3)
    assert (queue.first_of("held"), queue.count_of("held"), queue.first_of("other")) == (0, 3, None)
    queue.append("other", 11)
    queue.release("held")
    assert [queue.popleft() for _ in range(len(queue))] == [11, 0, 1, 2]


def test_a_caller_without_entries_can_be_held() -> None:
    queue: FairQueue[int] = FairQueue()
    queue.hold("held")
    queue.append("held", 0)
    assert (list(queue.callers), list(queue.held)) == ([], ["held"])
    queue.release("held")
    assert (queue.popleft(), list(queue.held)) == (0, [])


@pytest.mark.parametrize("is_held", [False, True])
def test_entries_that_wait_are_replaced_and_taken_out(is_held: bool) -> None:  # noqa: FBT001  # a parameter of the test
    queue: FairQueue[str] = FairQueue()
    tickets = [queue.append("a", name) for name in "xyz"]
    if is_held:
        queue.hold("a")
    queue.replace("a", tickets[2], "Z")
    queue.discard("a", tickets[0])
    assert (queue.first_of("a"), len(queue)) == ("y", 2)
    queue.discard("a", tickets[1])
    queue.release("a")
    assert (queue.popleft(), len(queue)) == ("Z", 0)
    last = queue.append("a", "w")
    queue.discard("a", last)
    assert (list(queue.callers), list(queue.held), len(queue)) == ([], [], 0)


async def test_one_works_at_a_time_and_another_caller_waits_for_one_turn_of_many() -> None:
    turns, order = FairTurns(), []

    async def work(caller: str, number: int) -> None:
        async with turns.of(caller):
            order.append(f"{caller}-{number}")
            await asyncio.sleep(0)
            order.append("end")

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(work("many", number))
        group.create_task(work("few", 0))
    assert order == ["many-0", "end", "many-1", "end", "few-0", "end", "many-2", "end"]


async def test_a_turn_of_a_caller_that_gave_up_goes_to_the_next() -> None:
    turns, done = FairTurns(), asyncio.Event()

    async def work() -> None:
        async with turns.of("a"):
            done.set()

    async with turns.of("a"):
        before, waits, behind = (asyncio.get_running_loop().create_task(work()) for _ in range(3))
        await asyncio.sleep(0)
        before.cancel()  # while it waits
        await asyncio.sleep(0)
    waits.cancel()  # when its turn has come
    await asyncio.wait([before, waits, behind])
    assert (before.cancelled(), waits.cancelled(), behind.cancelled(), done.is_set()) == (True, True, False, True)
