"""Calls to the API server and messages to the bus, when one of them does not answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from structlog.testing import capture_logs

from berth.formats.kubernetes.events import Involved
from berth.runtime.errors import PoisonError, TransientError
from berth.runtime.instruments import Instruments
from berth.schemas.facts import PodsSeen, TimerSeen
from berth.schemas.subjects import StreamName
from berth.services.inventory.config import InventoryConfig
from berth.services.inventory.metrics import InventoryMetrics
from berth.services.inventory.publishing.api_tasks import ApiTask, ApiTasks
from berth.services.inventory.publishing.event_reporter import EventReporter
from berth.services.inventory.publishing.publish_queue import OutboundMessage, PublishQueue
from tests.support.api_tasks import is_busy, is_idle
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.fake_server import FakeServer, PickyServer
from tests.support.waiting import until

CONFIG = InventoryConfig(retry_wait_max_s=0.004, event_apart_s=60)


@asynccontextmanager
async def at_work(api_tasks: ApiTasks) -> AsyncIterator[None]:
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(api_tasks.run(stop))
        try:
            yield
        finally:
            stop.set()


def answering(done: list[str], name: str, *errors: Exception) -> Callable[[], Awaitable[None]]:
    """A call that fails with ``errors``, one a try, and then notes its name."""
    left = list(errors)

    async def do() -> None:
        await asyncio.sleep(0)
        if left:
            raise left.pop(0)
        done.append(name)

    return do


def quick() -> TransientError:
    return TransientError("away", retry_after_s=0.001)


async def test_a_call_is_tried_again_until_it_is_answered() -> None:
    done: list[str] = []
    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    async with at_work(api_tasks):
        api_tasks.put(ApiTask("a", "a", "team", answering(done, "a", *(quick() for _ in range(9)))))
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert done == ["a"]


async def test_a_call_is_given_up_after_its_tries_or_when_it_is_refused() -> None:
    done: list[str] = []
    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    async with at_work(api_tasks):
        errors = [quick() for _ in range(3)]
        api_tasks.put(
            ApiTask("a", "a", "team", answering(done, "a", *errors), lambda: done.append("gave up a"), tries_max=3)
        )
        api_tasks.put(
            ApiTask("b", "b", "team", answering(done, "b", PoisonError("no")), lambda: done.append("gave up b"))
        )
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert sorted(done) == ["gave up a", "gave up b"]


async def test_of_two_calls_about_one_thing_the_newer_is_made() -> None:
    done: list[str] = []
    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    api_tasks.put(ApiTask("a", "old", "team", answering(done, "old")))
    api_tasks.put(ApiTask("a", "new", "team", answering(done, "new")))
    async with at_work(api_tasks):
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
        api_tasks.put(
            ApiTask("a", "failing", "team", answering(done, "failing", TransientError("away", retry_after_s=60)))
        )
        await until(lambda: not is_busy(api_tasks), deadline_s=5, what="the first try")
        api_tasks.put(ApiTask("a", "newest", "team", answering(done, "newest")))
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert done == ["new", "newest"]


async def test_calls_about_one_thing_are_never_made_at_the_same_time() -> None:
    running: list[int] = []
    most: list[int] = []
    gate = asyncio.Event()

    async def do() -> None:
        running.append(1)
        most.append(len(running))
        await gate.wait()
        running.pop()

    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    async with at_work(api_tasks):
        api_tasks.put(ApiTask("a", "a", "team", do))
        await until(lambda: running, deadline_s=5, what="the first")
        api_tasks.put(ApiTask("a", "a", "team", do))
        api_tasks.put(ApiTask("b", "b", "team", do))
        await until(lambda: len(running) == 2, deadline_s=5, what="another thing")
        gate.set()
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert len(most) == 3
    assert max(most) == 2


async def test_namespaces_take_turns_however_many_calls_one_needs() -> None:
    done: list[str] = []
    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    for number in range(500):
        api_tasks.put(ApiTask(number, "one of many", "flood", answering(done, "flood")))
    api_tasks.put(ApiTask("mine", "mine", "bystander", answering(done, "mine")))
    async with at_work(api_tasks):
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert "mine" in done[:4]
    assert len(done) == 501


async def test_messages_are_stored_in_order_and_again_after_a_break() -> None:
    server = FakeServer(ManualClock())
    bus = FakeBus(server, "test")
    await bus.ensure_streams()
    publish_queue = PublishQueue(bus, Instruments.make(InventoryMetrics))
    letters = [OutboundMessage(bus.subjects.fact_timer, TimerSeen(number)) for number in range(600)]
    assert await publish_queue.store(letters) == list(range(1, 601))
    server.is_down = True
    with capture_logs() as logs:
        assert await publish_queue.store(letters[:2]) == []
    assert [log["event"] for log in logs] == ["message not stored"]
    server.is_down = False
    assert await publish_queue.store(letters[:2]) == [601, 602]
    assert (await bus.state(StreamName.FACTS)).last_seq == 602
    await bus.close()


async def test_a_message_that_is_too_large_is_left_out() -> None:
    server = FakeServer(ManualClock(), payload_limit_bytes=200)
    bus = FakeBus(server, "test")
    await bus.ensure_streams()
    letters = [
        OutboundMessage(bus.subjects.fact_timer, TimerSeen(1)),
        OutboundMessage(bus.subjects.fact_pod("team", "large"), PodsSeen("team", "large", "u", 1, rank=bytes(400))),
        OutboundMessage(bus.subjects.fact_timer, TimerSeen(3)),
    ]
    with capture_logs() as logs:
        settled = await PublishQueue(bus, Instruments.make(InventoryMetrics)).store(letters)
    assert settled == [1, 0, 2]
    assert (await bus.state(StreamName.FACTS)).last_seq == 2
    assert [log["event"] for log in logs] == ["message refused"]
    await bus.close()


async def test_events_about_one_object_come_at_a_bounded_rate() -> None:
    clock = ManualClock()
    kube = FakeKube(clock=clock)
    api_tasks = ApiTasks(CONFIG, Instruments.make(InventoryMetrics))
    event_reporter = EventReporter(
        kube, clock, CONFIG, api_tasks, Instruments.make(InventoryMetrics), reason="NodeInvalid"
    )

    def involved(name: str) -> Involved:
        return Involved(kind="Node", name=name, uid=name)

    async with at_work(api_tasks):
        for number in range(5):
            event_reporter.report({"n1": f"wrong {number}", "n2": "wrong"}, involved)
        event_reporter.report({}, involved)
        event_reporter.report({"n2": "wrong"}, involved)
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
        path = "/api/v1/namespaces/default/events"
        assert sorted(event["message"] for event in kube.objects(path)) == ["wrong", "wrong 0"]
        clock.advance(61)
        event_reporter.report({"n1": "wrong 9"}, involved)
        event_reporter.report({"n1": "wrong 9", "n2": "wrong"}, involved)
        await until(lambda: is_idle(api_tasks), deadline_s=5, what="rest")
    assert sorted((event["message"], event["count"]) for event in kube.objects(path)) == [
        ("wrong", 2),
        ("wrong 0", 1),
        ("wrong 9", 1),
    ]


async def test_messages_behind_one_that_was_not_stored_are_not_settled() -> None:
    server = PickyServer(ManualClock())
    bus = FakeBus(server, "test")
    await bus.ensure_streams()
    letters = [OutboundMessage(bus.subjects.fact_pod("team", name), PodsSeen("team", name, "u", 1)) for name in "abc"]
    server.loses = letters[1].subject
    assert await PublishQueue(bus, Instruments.make(InventoryMetrics)).store(letters) == [1]
    assert (await bus.state(StreamName.FACTS)).last_seq == 2, "what is behind it was stored, and is to be stored again"
    await bus.close()
