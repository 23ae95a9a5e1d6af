"""Garbage on the streams of a cell: bytes without form, wrong types, huge numbers. Only counts change."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aiohttp
import msgspec
import pytest

from berth.core.state.ledger import LedgerFold
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.dead_letters.letters import read_letters
from berth.schemas.catalogue import MESSAGES
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import LedgerSeen, MembersSeen, TimerSeen
from berth.schemas.ledger import Epoch, Round
from berth.schemas.message import Message
from berth.schemas.status import JobStatus, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.e2e.test_foreign_messages import VOID, Chain, runs, started
from tests.e2e.test_foreign_messages import chain as chain  # noqa: PLC0414  # a fixture
from tests.support.command import berth
from tests.support.load import status
from tests.support.probes import samples
from tests.support.waiting import until_true

HUGE: Final = (2**63 - 1, 2**64 - 1, -(2**63))
FACTS: Final = tuple(one for one in MESSAGES if one.KIND.startswith("fact."))
pytestmark = pytest.mark.timeout(300)


def packed(kind: str, body: object, version: object = 1) -> bytes:
    return msgspec.msgpack.encode((kind, version, body))


def with_numbers(message: type[Message], number: int) -> list[object]:
    """A body whose numbers are all one, and whose other fields are of their types, with little in them."""

    def of(hint: msgspec.inspect.Type) -> object:  # noqa: PLR0911  # one for each type
        match hint:
            case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
                return number
            case msgspec.inspect.BytesType():
                return b"\x01"
            case msgspec.inspect.BoolType():
                return True
            case msgspec.inspect.ListType():
                return []
            case msgspec.inspect.DictType():
                return {}
            case msgspec.inspect.LiteralType():
                return hint.values[0]
            case msgspec.inspect.UnionType():
                return None
            case msgspec.inspect.StructType():
                return [of(field.type) for field in hint.fields]
            case _:
                return "x"

    found = of(msgspec.inspect.type_info(message))
    assert isinstance(found, list)
    return found


def garbage(message: type[Message]) -> list[bytes]:
    """What is no message of a kind, or one with numbers that cannot be."""
    kind = message.KIND
    deep: list[object] = []
    for _ in range(400):
        deep = [deep]
    return [
        b"",
        b"\xff\x00",
        b"\xc1" * 100,
        b"\x93\xdb\xff\xff\xff\xff",
        msgspec.msgpack.encode(deep),
        packed(kind, None),
        packed(kind, {"namespace": 1}),
        packed(kind, [[[]]] * 40),
        packed(kind, [], version=2**64 - 1),
        packed(kind, [], version="one"),
        packed(kind, [b"\xff"] * 40),
        *(packed(kind, with_numbers(message, number)) for number in HUGE),
    ]


class Cell:
    """A cell that runs, and a forger beside it."""

    def __init__(self, bus: NatsBus, running: Chain) -> None:
        self.bus = bus
        self.running = running
        self.jobs = 0

    async def goes_on(self) -> None:
        """See that another job runs, and that no process has ended or was deposed."""
        self.jobs += 1
        await runs(self.bus, f"after-{self.jobs}")
        for name, service in self.running.services.items():
            assert (service.starts, service.is_running) == (1, True), f"{name}\n{service.log()}"
        assert "lease lost" not in self.running.services["dispatcher"].whole_log()

    async def fold(self) -> LedgerFold:
        fold = LedgerFold()
        for stored in await self.bus.read(StreamName.LEDGER):
            fold.apply(stored.sequence, stored.data)
        return fold

    async def counts(self, service: str, metric: str, value: float) -> None:
        async with aiohttp.ClientSession() as session:

            async def is_counted() -> bool:
                found = await samples(session, self.running.ports[service])
                return found.get(metric) == value

            await until_true(is_counted, deadline_s=20, what=f"{metric} of {service} is {value}")

    async def letters(self, stream: StreamName) -> set[int]:
        """Sequences of a stream that have a dead letter."""
        found, _ = await read_letters(self.bus)
        return {one.body.sequence for one in found if one.body.stream == stream.value}

    async def buried(self, stream: StreamName, sequences: set[int]) -> None:
        """Wait until messages have dead letters.

        Raises:
            AssertionError: Some have none, in time; shows them.
        """
        missing: set[int] = set()

        async def are_there() -> bool:
            nonlocal missing
            missing = sequences - await self.letters(stream)
            return not missing

        try:
            await until_true(are_there, deadline_s=20, what=f"dead letters of {stream}")
        except AssertionError as error:
            shown = [(one.subject, one.data[:80]) for one in await self.bus.read(stream) if one.sequence in missing]
            raise AssertionError(f"{error}: {shown}") from error


@pytest.fixture
async def cell_(
    own_server: EmbeddedServer, cell: str, chain: Callable[..., Chain]
) -> AsyncIterator[Cell]:  # the fixture
    running = chain()
    async with await NatsBus.connect(own_server.url, cell, name="forger") as bus:
        await bus.ensure_streams()
        await started(bus, running.services)
        yield Cell(bus, running)


async def test_garbage_on_the_ledger_is_void(cell_: Cell) -> None:
    bus = cell_.bus
    messages = [*garbage(Epoch), *garbage(Round)]
    for data in messages:
        await bus.publish(bus.subjects.ledger, data)
    await cell_.goes_on()
    assert (await cell_.fold()).voided == len(messages)
    assert (await cell_.fold()).epoch == 1
    for name in ("dispatcher", "scorer", "binder"):
        await cell_.counts(name, VOID, len(messages))


async def test_garbage_on_the_lease_deposes_nobody(cell_: Cell) -> None:
    bus = cell_.bus
    for data in garbage(LeaseHeld):
        await bus.publish(bus.subjects.lease(ROLE), data)
    await cell_.goes_on()


async def test_garbage_among_the_facts_has_dead_letters(cell_: Cell) -> None:
    bus = cell_.bus
    undecodable: set[int] = set()
    for message in FACTS:
        if message in {LedgerSeen, MembersSeen}:
            continue  # a whole one of the first says that records were lost; the second is for the binder, see below
        subject = f"{bus.subjects.root}{message.KIND}.x.x"
        if message is TimerSeen:
            subject = bus.subjects.fact_timer
        for data in garbage(message):
            sequence = await bus.publish(subject, data)
            try:
                msgspec.msgpack.decode(data, type=tuple[str, int, message])  # type: ignore[valid-type]  # of the loop
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                undecodable.add(sequence)
    for data in garbage(MembersSeen):
        await bus.publish(bus.subjects.fact_member("x", "x"), data)
    await cell_.goes_on()
    await cell_.buried(StreamName.FACTS, undecodable)


async def test_garbage_among_the_requests_has_dead_letters(cell_: Cell) -> None:
    bus = cell_.bus
    before = (await bus.state(StreamName.INTAKE)).last_seq
    for message in (one for one in MESSAGES if one.KIND.startswith(("request", "intake", "job", "cancel"))):
        for subject in (bus.subjects.intake_request("default", "x"), bus.subjects.intake_cancel("default", "x")):
            for data in garbage(message):
                await bus.publish(subject, data)
    after = (await bus.state(StreamName.INTAKE)).last_seq
    await cell_.goes_on()
    await cell_.buried(StreamName.INTAKE, set(range(before + 1, after + 1)))


async def test_garbage_among_the_statuses_is_replaced_or_passed_over(
    cell_: Cell, own_server: EmbeddedServer, cell: str
) -> None:
    bus = cell_.bus
    for subject in (bus.subjects.status("default", "first"), bus.subjects.status("default", "ghost")):
        for data in garbage(JobStatus):
            await bus.publish(subject, data)
            code, out, err = (0, "", "") if data else await berth("jobs", "--json", url=own_server.url, cell=cell)
            assert code == 0, err + out
    await cell_.goes_on()
    await runs_still(bus, "first")
    code, out, err = await berth("jobs", "--json", url=own_server.url, cell=cell)
    assert code == 0, err
    found: list[dict[str, Any]] = msgspec.json.decode(out)
    assert "first" in {one["name"] for one in found}


async def runs_still(bus: NatsBus, name: str) -> None:
    """Wait until the status of a job says again that it runs."""

    async def is_right() -> bool:
        try:
            found = await status(bus, name)
        except DecodeError:
            return False
        return found is not None and found.phase == "running"

    await until_true(is_right, deadline_s=20, what=f"{name} runs")
