"""The event loop on virtual time: order, jumps, ends, and the same trace for the same seed in any process."""

import asyncio
import contextvars
import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.sim.errors import Killed, OutOfStepsError, RealWorldError, StalledError
from tests.sim.loop import Lane, SimLoop
from tests.support.compiled_files import COMPILED_FILES

STORY = """
import asyncio
from tests.sim.loop import Lane, SimLoop

loop = SimLoop({seed})
events = {{}}

async def one(name, group):
    for number in range(5):
        async with asyncio.TaskGroup() as tasks:
            made = {{tasks.create_task(asyncio.sleep(0.01 * (number % 3))) for _ in range(6)}}
            done, _ = await asyncio.wait(made)
        for task in done:
            loop.trace(f"{{name}} {{task.number % 1000}}")
        loop.trace(f"{{name}} {{number}}")

async def main():
    lanes = [Lane(f"lane {{number}}") for number in range(4)]
    await asyncio.wait([loop.create_task(one(lane.name, None), context=lane.context) for lane in lanes])

loop.run_until_complete(main())
print(loop.trace_hash, loop.steps)
loop.close()
"""


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    made = SimLoop(7)
    yield made
    made.close()


def hashes(seed: int, hash_seed: str) -> str:
    environment = {**COMPILED_FILES, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": "."}
    code = STORY.format(seed=seed)
    return subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_the_same_seed_gives_the_same_trace_in_any_process() -> None:
    first, second, other = hashes(1, "1"), hashes(1, "2"), hashes(2, "1")
    assert first == second
    assert first != other
    assert first.split()[1] == other.split()[1] == str(4 * 5 * 7)


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    async def main() -> list[float]:
        seen = []
        for pause_s in (3600.0, 0.25, 86_400.0):
            await asyncio.sleep(pause_s)
            seen.append(round(loop.time(), 3))
        return seen

    assert loop.run_until_complete(main()) == [3600.0, 3600.25, 90_000.25]


def order_of(seed: int) -> list[str]:
    """In which order lanes run that have three callbacks each."""
    loop = SimLoop(seed)
    seen: list[str] = []

    async def main() -> None:
        for name in "abc":
            lane = Lane(name)
            for number in range(3):
                loop.call_soon(seen.append, f"{name}{number}", context=lane.context)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    return seen


def test_the_seed_decides_between_lanes_and_never_within_one() -> None:
    orders = [order_of(seed) for seed in range(30)]
    assert len({tuple(order) for order in orders}) > 10
    for order in orders:
        assert sorted(order) == [f"{name}{number}" for name in "abc" for number in range(3)]
        for name in "abc":
            assert [one for one in order if one[0] == name] == [f"{name}0", f"{name}1", f"{name}2"]


def test_a_task_and_what_it_creates_stay_in_its_lane(loop: SimLoop) -> None:
    lane = Lane("one")
    found: list[bool] = []

    async def inner() -> None:
        await asyncio.sleep(1)
        found.append(asyncio.current_task().lane is lane)  # type: ignore[union-attr]  # a SimTask

    async def outer() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    async def main() -> None:
        await loop.create_task(outer(), context=lane.context)

    loop.run_until_complete(main())
    assert found == [True]


def test_a_loop_with_nothing_left_to_do_fails(loop: SimLoop) -> None:
    with pytest.raises(StalledError, match="no event is left at 2"):
        loop.run_until_complete(_wait_for_ever())


async def _wait_for_ever() -> None:
    await asyncio.sleep(2)
    await asyncio.get_running_loop().create_future()


def test_too_many_callbacks_fail() -> None:
    loop = SimLoop(0, callbacks_max=1000)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0.1)

    with pytest.raises(OutOfStepsError, match="1000 callbacks"):
        loop.run_until_complete(spin())
    loop.close()


def test_time_that_stands_still_fails(loop: SimLoop) -> None:
    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(OutOfStepsError, match="time stands still"):
        loop.run_until_complete(spin())


def test_threads_are_refused(loop: SimLoop) -> None:
    with pytest.raises(RealWorldError, match="thread"):
        loop.run_until_complete(asyncio.to_thread(len, ""))


def test_a_dead_lane_does_nothing_and_its_tasks_end(loop: SimLoop) -> None:
    lane = Lane("victim")
    seen: list[str] = []

    async def victim() -> None:
        try:
            while True:
                seen.append(f"alive {loop.time():.0f}")
                await asyncio.sleep(1)
        finally:
            seen.append("finally")
            await asyncio.sleep(5)
            seen.append("after a pause")

    async def main() -> None:
        task = loop.create_task(victim(), context=lane.context)
        await asyncio.sleep(1.5)
        loop.kill(lane)
        await asyncio.sleep(0)
        assert task.done()
        seen.append("dead")
        await asyncio.sleep(10)

    loop.run_until_complete(main())
    assert seen == ["alive 0", "alive 1", "finally", "after a pause", "dead"]


def test_a_fuse_ends_a_lane_after_so_many_callbacks(loop: SimLoop) -> None:
    lane = Lane("victim")
    seen: list[int] = []
    lane.fuse, lane.on_death = 4, lambda: loop.kill(lane)

    async def victim() -> None:
        for number in range(100):
            seen.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        loop.create_task(victim(), context=lane.context)
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert seen == [0, 1, 2, 3]


def test_a_paused_lane_goes_on_where_it_was(loop: SimLoop) -> None:
    lane = Lane("paused")
    seen: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append(round(loop.time(), 3))

    async def main() -> None:
        task = loop.create_task(work(), context=lane.context)
        await asyncio.sleep(1.5)
        loop.pause(lane)
        await asyncio.sleep(10)
        assert seen == [1.0]
        loop.resume(lane)
        await task

    loop.run_until_complete(main())
    assert seen == [1.0, 11.5, 12.5]


def test_errors_of_callbacks_are_kept(loop: SimLoop) -> None:
    async def main() -> None:
        loop.call_soon(int, "no number", context=contextvars.copy_context())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert len(loop.errors) == 1
    assert "no number" in loop.errors[0]


async def _ends() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_dies())


async def _dies() -> None:
    raise Killed


def test_the_end_of_a_process_is_no_error_however_late_it_is_found(loop: SimLoop) -> None:
    task = loop.create_task(_ends())
    loop.run_until_complete(asyncio.wait([task]))
    del task
    gc.collect()
    assert loop.errors == []
    other = loop.create_task(_fails())
    loop.run_until_complete(asyncio.wait([other]))
    del other
    gc.collect()
    assert len(loop.errors) == 1


async def _fails() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_dies())
        raise ValueError("of the code")
