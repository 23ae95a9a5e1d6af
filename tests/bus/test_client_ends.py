"""What ends with the client for programs: waits of other threads, and what each wait has served."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from berth.client import Client, ConnectionLostError, sync
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import TransientError
from berth.schemas.programs.events import EventsKept, EventsReply
from berth.schemas.programs.replies import JobState, StatusReply
from tests.support.waiting import until


class Status:
    """Answers that a job waits, or is placed.

    Attributes:
        phase: Of the job.
        asked: How often it was asked.
    """

    def __init__(self) -> None:
        self.phase = "waiting"
        self.asked = 0

    async def handle(self, _: bytes) -> bytes:
        self.asked += 1
        job = JobState(namespace="team", name="train", uid="u", phase=self.phase, since_ms=0)
        return msgspec.json.encode(StatusReply(job=job))

    async def handle_events(self, _: bytes) -> bytes:
        self.asked += 1
        kept = EventsKept(stream="one", first=1, last=0)
        return msgspec.json.encode(EventsReply(events=[], position=0, mark="", kept=kept))


@asynccontextmanager
async def answering(bus: NatsBus) -> AsyncIterator[Status]:
    status = Status()
    served = [
        await bus.serve(bus.subjects.api("status"), status.handle),
        await bus.serve(bus.subjects.api("events"), status.handle_events),
    ]
    yield status
    for one in served:
        await one.stop()


@pytest.mark.parametrize(
    "work",
    [
        lambda client: client.wait("train", "placed", namespace="team"),
        lambda client: list(client.follow("team", "train")),
    ],
    ids=["wait", "follow"],
)
async def test_a_client_that_is_closed_ends_what_other_threads_wait_for(
    real_bus: NatsBus, nats_server: str, work: Callable[[sync.Client], object]
) -> None:
    async with answering(real_bus) as status:
        client = await asyncio.to_thread(sync.Client, nats_server, cell=real_bus.subjects.cell)
        ended: list[BaseException] = []

        def wait() -> None:
            try:
                work(client)
            except BaseException as error:  # noqa: BLE001  # whatever it is, the test compares it
                ended.append(error)

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        await until(lambda: status.asked > 0, deadline_s=10, what="a wait")
        await asyncio.to_thread(client.close)
        await asyncio.to_thread(client.close)
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()
        assert [type(error) for error in ended] == [ConnectionLostError]


async def test_a_wait_leaves_nothing_served(real_bus: NatsBus) -> None:
    async with answering(real_bus) as status:
        status.phase = "placed"
        client = Client(real_bus)
        for _ in range(5):
            await client.wait("train", "placed", namespace="team")
        assert len(real_bus._served) == 3, "the two kinds of answers, and the last wait"


async def test_what_could_not_be_served_leaves_no_task(own_server: EmbeddedServer) -> None:
    async with await NatsBus.connect([own_server.url], "x", name="test", inbox="_INBOX.person.test") as bus:
        await own_server.kill()
        await until(lambda: not bus.connected, deadline_s=10, what="the break")

        async def handle(_: bytes) -> None:
            pass

        with pytest.raises(TransientError):
            await bus.serve("berth.x.some", handle)
        assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "serve berth.x.some"] == []
