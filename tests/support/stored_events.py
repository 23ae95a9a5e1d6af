"""Stored events of jobs, and the operation ``events`` of a service that stores none itself."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from berth.schemas.programs.events import JobEvent, event_id
from berth.schemas.subjects import StreamName
from berth.services.api.config import ApiConfig
from berth.services.api.event_pages import EventPages
from tests.support.fake_bus import FakeBus, FakeServer
from tests.support.programs import answering_events, ask
from tests.support.waiting import until


def an_event(number: int, namespace: str = "a", name: str = "x", **more: Any) -> JobEvent:  # noqa: ANN401  # fields
    uid = f"u-{number}"
    return JobEvent(
        id=event_id(uid, 0, 0, "accepted"), namespace=namespace, name=name, uid=uid, attempt=0, step=0,
        phase="accepted", at_ms=number, **more,
    )  # fmt: skip


class Events(NamedTuple):
    """A server with streams, a program's connection, and the service with its own."""

    server: FakeServer
    bus: FakeBus
    service: FakeBus
    pages: EventPages

    def store(self, *numbers: int, namespace: str = "a", name: str = "x", **more: Any) -> None:  # noqa: ANN401
        """Store events, one each millisecond."""
        for number in numbers:
            self.server.clock.advance(0.001)
            data = msgspec.json.encode(an_event(number, namespace, name, **more))
            self.server.store(self.bus.subjects.event_job(namespace, name), data, None, None)

    async def ask(self, identity: str = "", **request: object) -> dict[str, Any]:
        return await ask(self.bus, "events", request, identity=identity)

    def lose(self, count: int) -> None:
        """Let the server end, lose the newest messages, and return."""
        name = self.bus.subjects.stream(StreamName.EVENTS)
        self.server.clock.advance(0.1)
        self.service.link_changes += 2
        self.server.rewind(name, self.server.streams[name].last_seq - count)

    def make_again(self) -> None:
        """Delete the stream and make it again."""
        name = self.bus.subjects.stream(StreamName.EVENTS)
        spec = self.server.streams[name].spec
        self.server.delete(name)
        self.server.make(name, spec)
        self.server.wake()


@asynccontextmanager
async def events(config: ApiConfig | None = None, kind: type[FakeBus] = FakeBus) -> AsyncIterator[Events]:
    """A cell with the operation ``events``; ``kind`` is the bus of the service."""
    server = FakeServer()
    async with FakeBus(server, "c") as bus, kind(server, "c") as service:
        await bus.ensure_streams()
        async with answering_events(service, config) as pages:
            yield Events(server, bus, service, pages)


def uids(reply: dict[str, Any]) -> list[str]:
    assert reply["ok"], reply
    return [one["event"]["uid"] for one in reply["events"]]


async def waits(told: Events, count: int = 1) -> None:
    await until(
        lambda: told.pages._tail is not None and sum(map(len, told.pages._tail._waiting.values())) == count,
        deadline_s=5,
        what=f"{count} requests wait",
    )
