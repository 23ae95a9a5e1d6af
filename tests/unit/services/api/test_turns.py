"""Requests at the same time: those about one job follow one another, the others do not wait."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from berth.runtime.bus.port import StreamState
from berth.runtime.clock import SystemClock
from berth.schemas.envelope import decode
from berth.schemas.intake import JobRequest
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.services.api import app
from berth.services.api.config import ApiConfig
from berth.services.api.explanations import Explanations
from berth.services.api.turns import Turns
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer
from tests.support.programs import Programs, ask, job_file, programs
from tests.support.waiting import SLACK, until


class HeldBus(FakeBus):
    """A bus that stores requests of jobs whose names begin with ``held`` when it is told to."""

    def __init__(self, server: FakeServer, cell: str) -> None:
        super().__init__(server, cell)
        self.release = asyncio.Event()
        self.at_once = 0
        self.at_once_max = 0

    async def publish(self, subject: str, data: bytes, **more: object) -> int:
        if ".held" not in subject or ".intake." not in subject:
            return await super().publish(subject, data, **more)  # type: ignore[arg-type]  # as they came
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await self.release.wait()
        self.at_once -= 1
        return await super().publish(subject, data, **more)  # type: ignore[arg-type]  # as they came


@asynccontextmanager
async def holding(config: ApiConfig | None = None) -> AsyncIterator[tuple[Programs, HeldBus]]:
    """A cell whose service has such a bus; at the end nothing is held."""
    async with programs(is_started=False) as told:
        bus = HeldBus(told.cell.server, told.cell.cell)
        await told.start(config, bus)
        try:
            yield told, bus
        finally:
            bus.release.set()


async def submit(told: Programs, name: str, uid: str, chips: int = 8) -> dict[str, object]:
    job = job_file(name, uid=uid, product="module910bx8", chips=chips)
    return await ask(FakeBus(told.cell.server, told.cell.cell), "submit", {"job": job})


async def test_a_request_does_not_wait_for_one_about_another_job() -> None:
    async with holding() as (told, bus), asyncio.TaskGroup() as group:
        slow = group.create_task(submit(told, "held", "u-1"))
        await until(lambda: bus.at_once == 1, deadline_s=5, what="the first request is carried out")
        assert (await submit(told, "quick", "u-2"))["ok"]
        assert not slow.done()
        bus.release.set()
        assert (await slow)["ok"]


async def test_requests_about_one_job_or_one_uid_are_carried_out_one_by_one_in_their_order() -> None:
    async with holding() as (told, bus), asyncio.TaskGroup() as group:
        asked = [("held", "u-1", 1), ("held", "u-2", 2), ("held-b", "u-2", 3), ("held", "u-1", 4), ("held-c", "u-9", 5)]
        for name, uid, chips in asked:
            group.create_task(submit(told, name, uid, chips))
            await told.cell.settle()
        await until(lambda: bus.at_once >= 2, deadline_s=5, what="the first and the one of another job")
        assert bus.at_once == 2
        bus.release.set()
        await until(lambda: len(stored(told)) == len(asked), deadline_s=5, what="all are stored")
        found = [request.tasks[0].chips for request in stored(told)]
        assert [one for one in found if one != 5] == [1, 2, 3, 4]


def stored(told: Programs) -> list[JobRequest]:
    stream = told.cell.server.streams[told.bus.subjects.stream(StreamName.INTAKE)]
    return [decode(one.data, JobRequest) for one in stream.messages.values()]


async def test_no_more_requests_are_carried_out_at_once_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "AT_ONCE", 3)
    async with holding() as (told, bus), asyncio.TaskGroup() as group:
        waiting = [group.create_task(submit(told, f"held-{number}", f"u-{number}")) for number in range(7)]
        await until(lambda: bus.at_once == 3, deadline_s=5, what="three requests")
        await told.cell.settle()
        assert bus.at_once_max == 3
        bus.release.set()
        assert all([(await one)["ok"] for one in waiting])
        assert bus.at_once_max == 3


async def test_a_retry_of_a_uid_at_the_same_time_submits_one_job() -> None:
    async with programs(nodes=4) as told:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(submit(told, "train", "u-1")) for _ in range(20)]
        assert all(one.result()["ok"] for one in asked)
        await told.turns(3)
        assert [one for one in await told.ids() if one.endswith(("/accepted", "/placed"))] == [
            "u-1/0/0/accepted",
            "u-1/1/0/placed",
        ]
        reply = await submit(told, "train", "u-1")
        assert (reply["ok"], reply["duplicate"]) == (True, True)


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_keys_they_share_requests_follow_earlier_ones_and_all_end(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  # a repeatable mixture
    turns = Turns()
    began: list[int] = []
    ended: list[int] = []
    mixture = [rng.sample("abcd", rng.randint(1, 3)) for _ in range(40)]

    async def carry_out(number: int, keys: list[str]) -> None:
        async with turns.of(*keys):
            began.append(number)
            earlier = [other for other in range(number) if set(mixture[other]) & set(keys)]
            assert set(earlier) <= set(ended)
            for _ in range(rng.randint(0, 3)):
                await asyncio.sleep(0)
            ended.append(number)

    async with asyncio.timeout(5 * SLACK), asyncio.TaskGroup() as group:
        for number, keys in enumerate(mixture):
            group.create_task(carry_out(number, keys))
    assert sorted(ended) == list(range(40))
    assert began != sorted(began)
    assert turns._last == {}


async def test_a_request_that_fails_lets_the_next_one_begin() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="no"):
        async with turns.of("a"):
            raise ValueError("no")
    async with asyncio.timeout(5 * SLACK), turns.of("a"):
        pass


class BlockingBus(FakeBus):
    """A bus whose history is found as slowly as by a long computation."""

    def __init__(self, gate: threading.Event, asked: threading.Event) -> None:
        super().__init__(FakeServer(), "c")
        self._gate = gate
        self._asked = asked

    async def state(self, stream: StreamName) -> StreamState:
        del stream
        self._asked.set()
        self._gate.wait()  # the whole loop stands still, as it does while it computes
        raise LookupError("computed")


async def test_the_loop_that_answers_goes_on_while_an_explanation_is_computed() -> None:
    gate, asked = threading.Event(), threading.Event()
    explanations = Explanations(SystemClock())
    ends: list[Callable[[], object]] = []

    async def serve() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(stop.set))
        async with BlockingBus(gate, asked) as bus:
            await explanations.work(bus, stop)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    await until(lambda: bool(ends), deadline_s=5, what="the loop of the thread")
    try:
        status = JobStatus(namespace="n", name="j", uid="u", phase="waiting", since_ms=1, at_ms=1, ledger_seq=1)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(failed(explanations.of(status, is_over=False, may_read=bool, with_nodes=False)))
            await until(asked.is_set, deadline_s=5, what="the computation begins")
            assert not waiting.done()
            gate.set()
            assert await waiting == "computed"
    finally:
        gate.set()
        ends[0]()
        thread.join()


async def failed(work: Awaitable[object]) -> str:
    with pytest.raises(LookupError) as caught:
        await work
    return str(caught.value)
