"""The simulated bus keeps the promises of the real one, and does what a real one may do when something breaks."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

import pytest

from berth.runtime.bus.port import Gap, Stored
from berth.runtime.errors import AmbiguousError, ConflictError, FatalError, TransientError
from berth.schemas.subjects import StreamName
from tests.contract import test_bus_contract as contract
from tests.sim.bus import SimBus
from tests.sim.clock import SimClock
from tests.sim.loop import Lane, SimLoop
from tests.sim.server import SimServer

Make = Callable[[], SimBus]
PROMISES = sorted(name for name in vars(contract) if name.startswith("test_"))


def chance(seed: int, number: int) -> Random:
    return Random(f"{seed} {number}")  # noqa: S311  # a simulation


def run(test: Callable[[Make], Coroutine[Any, Any, None]], seed: int = 1, *, lag_s: float = 0.0) -> SimLoop:
    """Run a test on virtual time, with a server of its own."""
    loop = SimLoop(seed)
    server = SimServer(loop, SimClock(loop), chance(seed, -1))
    server.lag_s = lag_s
    made: list[SimBus] = []

    def make() -> SimBus:
        made.append(SimBus(server, "cell", loop.main, chance(seed, len(made)), delay_s=0.01))
        return made[-1]

    async def whole() -> None:
        await test(make)
        for bus in made:
            await bus.close()

    try:
        loop.run_until_complete(whole())
    finally:
        loop.close()
    assert loop.errors == []
    return loop


def cases_of(promise: Any) -> list[dict[str, Any]]:  # noqa: ANN401  # a test function
    """Values of the parameters of a test, besides its clients."""
    marks = [mark for mark in getattr(promise, "pytestmark", []) if mark.name == "parametrize"]
    assert len(marks) <= 1
    return [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]


@pytest.mark.parametrize("name", PROMISES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_simulated_bus_keeps_the_promises_of_the_contract(name: str, seed: int) -> None:
    promise = getattr(contract, name)
    wanted = inspect.signature(promise).parameters
    for case in cases_of(promise):

        async def play(make: Make, case: dict[str, Any] = case) -> None:
            clients: dict[str, Any] = {"bus": make()}
            await clients["bus"].ensure_streams()
            if "other" in wanted:
                clients["other"] = make()
            if "make_bus" in wanted:

                async def another() -> SimBus:
                    return make()

                clients["make_bus"] = another
            given = {**clients, **case}
            assert set(wanted) <= set(given), f"{name} wants {sorted(set(wanted) - set(given))}"
            await promise(**{key: given[key] for key in wanted})

        run(play, seed, lag_s=0.3 * (seed - 1))


def no_gap(gap: Gap) -> None:
    raise AssertionError(gap)


async def error_of(awaited: Awaitable[object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # the caller looks at it
        await awaited
    assert isinstance(caught.value, Exception)
    return caught.value


def test_a_lost_answer_is_ambiguous_and_the_message_is_there() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        bus.lose_replies = 1
        assert isinstance(await error_of(bus.append(b"a", expected_seq=0)), AmbiguousError)
        assert isinstance(await error_of(bus.append(b"a", expected_seq=0)), ConflictError)
        assert [stored.data for stored in await bus.read(StreamName.LEDGER)] == [b"a"]

    assert run(test).time() > 5


def test_what_is_sent_while_a_direction_is_held_lands_after_the_sender_gave_up() -> None:
    async def test(make: Make) -> None:
        bus, other = make(), make()
        await bus.ensure_streams()
        bus.outgoing.held_until_s = bus.loop.now_s + 8
        assert isinstance(await error_of(bus.append(b"late", expected_seq=0)), AmbiguousError)
        assert await other.read(StreamName.LEDGER) == []
        await asyncio.sleep(5)
        assert [stored.data for stored in await other.read(StreamName.LEDGER)] == [b"late"]

    run(test)


def test_a_broken_connection_fails_what_is_under_way_and_refuses_what_comes() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        append = bus.loop.create_task(bus.append(b"a", expected_seq=0))
        await asyncio.sleep(0.001)
        bus.cut(2)
        assert isinstance(await error_of(append), AmbiguousError)
        error = await error_of(bus.append(b"a", expected_seq=0))
        assert isinstance(error, TransientError)
        assert not isinstance(error, AmbiguousError)
        await asyncio.sleep(3)
        assert bus.link_changes == 2
        assert await bus.append(b"b", expected_seq=0) == 1

    run(test)


def test_a_follower_misses_nothing_when_its_consumer_or_connection_is_lost() -> None:
    async def test(make: Make) -> None:
        bus, other = make(), make()
        await bus.ensure_streams()
        seen: list[int] = []
        follower = bus.follow(StreamName.FACTS, on_message=lambda stored: seen.append(stored.sequence), on_gap=no_gap)
        for number in range(60):
            await other.publish(other.subjects.fact_timer, b"%d" % number)
            if number % 20 == 10:
                bus.lose_consumers()
            if number % 20 == 15:
                bus.cut(0.1)
        await asyncio.sleep(10)
        assert seen == list(range(1, 61))
        assert follower.recreations >= 6

    for seed in range(5):
        run(test, seed)


def test_a_stream_without_a_leader_answers_nobody_and_nothing_lands() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        bus.server.silent_until_s[bus.subjects.stream(StreamName.LEDGER)] = bus.loop.now_s + 6
        assert isinstance(await error_of(bus.append(b"a", expected_seq=0)), AmbiguousError)
        assert await bus.publish(bus.subjects.fact_timer, b"x") == 1
        await asyncio.sleep(2)
        assert await bus.append(b"b", expected_seq=0) == 1

    run(test)


def test_a_mirror_lags_and_catches_up() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        for number in range(30):
            await bus.publish(bus.subjects.fact_node(str(number % 3)), b"%d" % number)
        assert (await bus.state(StreamName.LATEST)).last_seq < 30
        await bus.wait_mirror(StreamName.LATEST, at_least=30, timeout_s=10)
        assert [stored.data for stored in await bus.read(StreamName.LATEST)] == [b"27", b"28", b"29"]

    run(test, lag_s=5.0)


def test_a_restart_may_forget_the_newest_views_and_the_mirror_reads_them_again() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        gaps: list[Gap] = []
        heard: list[Stored] = []
        bus.follow(StreamName.STATUS, on_message=heard.append, on_gap=gaps.append)
        for number in range(20):
            await bus.publish(bus.subjects.status("ns", str(number)), b"s")
            await bus.publish(bus.subjects.fact_node(str(number % 3)), b"%d" % number)
        await asyncio.sleep(1)
        bus.server.forget_views(15)
        assert (await bus.state(StreamName.STATUS)).last_seq < 20
        assert (await bus.state(StreamName.FACTS)).last_seq == 20
        await bus.wait_mirror(StreamName.LATEST, at_least=20, timeout_s=10)
        assert [stored.data for stored in await bus.read(StreamName.LATEST)] == [b"17", b"18", b"19"]
        await asyncio.sleep(1)
        assert len(gaps) == 1

    run(test)


def test_a_dead_process_does_nothing_more() -> None:
    async def test(make: Make) -> None:
        bus, other = make(), make()
        await bus.ensure_streams()
        await bus.serve("berth.cell.sim.x", _echo)
        bus.sever()
        assert isinstance(await error_of(bus.append(b"a", expected_seq=0)), FatalError)
        error = await error_of(other.request("berth.cell.sim.x", b"", timeout_s=5))
        assert "no responders" in str(error)
        assert await other.read(StreamName.LEDGER) == []

    assert run(test).time() < 1


async def _echo(data: bytes) -> bytes:
    return data


def test_lanes_are_heard_in_some_order_and_a_seed_repeats_it() -> None:
    async def test(make: Make) -> None:
        bus = make()
        await bus.ensure_streams()
        buses = []
        for number in range(4):
            one = make()
            one.lane = Lane(f"lane {number}")
            buses.append(one)
        futures = [one.submit(one.subjects.fact_timer, b"%d" % at) for at in range(10) for one in buses]
        await asyncio.wait(futures)

    hashes = [run(test, seed).trace_hash for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]
