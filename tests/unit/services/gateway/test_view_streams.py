"""Readers of the picture of a cell: what each gets, who shares, and who is closed."""

import asyncio

import msgspec
from starlette.types import Message, Scope

from berth.core.overview.overview import Overview
from berth.core.state.cell import State
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.schemas.page.view import Change, View
from berth.schemas.status import JobStatus
from berth.services.gateway.metrics import GatewayMetrics
from berth.services.gateway.stream_limits import OpenStreams
from berth.services.gateway.view.view_streams import Reader, ViewResponse, ViewStreams
from tests.support.waiting import until

SCOPE: Scope = {"type": "http", "method": "GET"}


class Cell:
    """A picture of jobs in namespaces, and its readers."""

    def __init__(self, *, waiting_max: int = 8) -> None:
        self.overview = Overview(State(), cell="c")
        self.overview.change(1)
        self.time_ms = 1_000
        self.views = 0
        self.metrics = Instruments.make(GatewayMetrics).metrics
        self.streams = ViewStreams(
            self, self.metrics, waiting_max=waiting_max, opened=OpenStreams(1_000, 1_000, self.metrics)
        )

    @property
    def version(self) -> int:
        return self.overview.version

    def now_ms(self) -> int:
        return self.time_ms

    def view(self) -> View:
        self.views += 1
        return self.overview.view(self.time_ms)

    def namespace_of(self) -> dict[int, str]:
        return self.overview.namespace_of()

    def submit(self, namespace: str, name: str) -> None:
        status = JobStatus(namespace, name, f"uid-{name}", "waiting", 1, 1, accepted_seq=len(name))
        self.overview.note_status(status)
        self.streams.publish(self.overview.change(2))


async def taken(reader: Reader) -> tuple[str, Change | View]:
    """Name and content of the next event."""
    data = await reader.next(5)
    assert data is not None
    first, second, *rest = data.decode().split("\n")
    assert rest == ["", ""]
    name, text = first.removeprefix("event: "), second.removeprefix("data: ")
    return name, msgspec.json.decode(text, type=View) if name == "view" else msgspec.json.decode(text, type=Change)


async def test_a_reader_gets_the_picture_and_then_its_changes() -> None:
    cell = Cell()
    cell.submit("a", "one")
    reader = cell.streams.open(["*"], "one")
    cell.submit("a", "two")
    name, view = await taken(reader)
    assert name == "view"
    assert [job.name for job in view.jobs] == ["one"]
    name, change = await taken(reader)
    assert (name, change.version) == ("change", view.version + 1)
    assert [job.name for job in change.jobs] == ["two"]


async def test_readers_with_the_same_rights_share_one_encoding() -> None:
    cell = Cell()
    one, two, other = (
        cell.streams.open(["a", "b"], "one"),
        cell.streams.open(["b", "a"], "one"),
        cell.streams.open(["a"], "one"),
    )
    for _ in range(2):
        first, second, third = await one.next(1), await two.next(1), await other.next(1)
        assert first is second
        assert first is not third
        cell.submit("a", "job")


async def test_many_readers_at_once_share_a_picture_and_later_ones_get_the_time_of_theirs() -> None:
    cell = Cell()
    readers = [cell.streams.open(["*"], "one") for _ in range(50)]
    assert cell.views == 1
    first = await readers[0].next(1)
    assert all([await reader.next(1) is first for reader in readers[1:]])
    cell.time_ms += 3_600_000  # nothing has changed for an hour
    _, view = await taken(cell.streams.open(["*"], "one"))
    assert isinstance(view, View)
    assert view.at_ms == cell.time_ms
    assert msgspec.json.decode(cell.streams.view_json(["*"]), type=View) == view
    assert cell.views == 2
    cell.submit("a", "job")
    _, view = await taken(cell.streams.open(["*"], "one"))
    assert isinstance(view, View)
    assert [job.name for job in view.jobs] == ["job"]


async def test_a_reader_sees_no_job_of_other_namespaces() -> None:
    cell = Cell()
    cell.submit("b", "secret")
    reader = cell.streams.open(["a"], "one")
    cell.submit("b", "hidden")
    cell.submit("a", "seen")
    _, view = await taken(reader)
    assert isinstance(view, View)
    assert (view.jobs, view.queue, view.is_partial) == ([], [], True)
    _, change = await taken(reader)
    assert (change.jobs, change.queue) == ([], [])
    _, change = await taken(reader)
    assert [job.name for job in change.jobs] == ["seen"]
    assert change.queue == [job.n for job in change.jobs]
    whole = msgspec.json.decode(cell.streams.view_json(["a", "b"]), type=View)
    assert {job.name for job in whole.jobs} == {"secret", "hidden", "seen"}


async def test_a_slow_reader_is_closed_and_the_others_go_on() -> None:
    cell = Cell(waiting_max=3)
    slow, quick = cell.streams.open(["*"], "one"), cell.streams.open(["*"], "one")
    for number in range(4):
        assert await quick.next(1) is not None
        cell.submit("a", f"job-{number}")
    assert await slow.next(1) is None
    assert await quick.next(1) is not None
    assert cell.metrics.slow._value.get() == 1


async def test_the_end_of_the_picture_ends_all_streams() -> None:
    cell = Cell()
    reader = cell.streams.open(["*"], "one")
    cell.streams.publish(None)
    assert (await taken(reader))[0] == "view"
    assert await reader.next(1) is None


async def test_a_quiet_stream_sends_comments() -> None:
    reader = Cell().streams.open(["*"], "one")
    await taken(reader)
    assert await reader.next(0.01) == b": keepalive\n\n"


async def answered(cell: Cell, sent: list[Message], leave: asyncio.Event, *, goes_on: bool = True) -> None:
    async def receive() -> Message:
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def may_go_on() -> bool:
        return goes_on

    reader = cell.streams.open(["*"], "one")
    assert cell.streams.count == 1
    response = ViewResponse(cell.streams, reader, SystemClock(), keepalive_s=0.01, may_go_on=may_go_on)
    await response(SCOPE, receive, send)


async def test_a_reader_who_leaves_is_forgotten() -> None:
    cell, sent, leave = Cell(), list[Message](), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(answered(cell, sent, leave), name="stream")
        await until(lambda: len(sent) > 3, deadline_s=5, what="comments")
        leave.set()
    assert cell.streams.count == 0
    headers = dict(sent[0]["headers"])
    assert (sent[0]["status"], headers[b"content-type"]) == (200, b"text/event-stream")
    assert headers[b"berth-keepalive-s"] == b"0.01"
    assert sent[-1]["more_body"] is False


async def test_a_reader_who_loses_its_rights_is_closed() -> None:
    cell, sent = Cell(), list[Message]()
    await answered(cell, sent, asyncio.Event(), goes_on=False)
    assert cell.streams.count == 0
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
