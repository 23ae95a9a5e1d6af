"""Workers that wait for work."""

import asyncio

from berth.runtime.waits import IdleWorkers


async def test_a_piece_of_work_wakes_the_worker_that_waited_longest_and_no_other() -> None:
    idle = IdleWorkers()
    woken: list[int] = []

    async def worker(number: int) -> None:
        await idle.wait()
        woken.append(number)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(worker(number)) for number in range(4)]
        await asyncio.sleep(0)
        idle.wake_one()
        await tasks[0]
        assert woken == [0]
        tasks[1].cancel()
        await asyncio.sleep(0)
        idle.wake_one()
        await tasks[2]
        assert woken == [0, 2]
        idle.wake_all()
    assert woken == [0, 2, 3]


async def test_one_that_was_cancelled_takes_no_wake_from_another() -> None:
    idle = IdleWorkers()
    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(idle.wait()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        idle.wake_one()
        await second


async def test_a_wake_while_nobody_waits_is_not_kept() -> None:
    idle = IdleWorkers()
    idle.wake_one()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(idle.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        idle.wake_all()
