"""A record of a newer release ends every service that folds the ledger, with exit code 2 and the release needed."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.runtime.errors import FatalError
from berth.runtime.fsck.ledger_check import check_ledger
from berth.runtime.fsck.ledger_repair import find
from berth.runtime.history import state_now, verdict_on
from berth.runtime.instruments import Instruments
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.process import MISCONFIGURED, report
from berth.runtime.recording import anonymise_file, record
from berth.runtime.stored_snapshots import newest_snapshot, settings_now
from berth.schemas.chain import ChainReader, Position, chained
from berth.schemas.envelope import NewerVersionError, encode, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.schemas.offers import Advance
from berth.schemas.rules import StatedRule, UnknownRuleError
from berth.schemas.status import SnapshotBody, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName
from berth.services.api.app import serve as serve_programs
from berth.services.api.config import ApiConfig
from berth.services.api.metrics import ApiMetrics
from berth.services.binder.app import bind_on
from berth.services.binder.cluster import SimCluster
from berth.services.binder.config import BinderConfig
from berth.services.binder.metrics import BinderMetrics
from berth.services.summary.app import write_on
from berth.services.summary.config import SummaryConfig
from berth.services.summary.metrics import SummaryMetrics
from tests.support.cells import Cell, a_job, a_node
from tests.support.clock import ManualClock
from tests.support.fake_bus import FakeBus
from tests.support.fake_kube import FakeKube
from tests.support.waiting import SLACK

KINDS = [(Round.KIND, Round.VERSION + 1), (Epoch.KIND, Epoch.VERSION + 1), ("ledger.hold", 1)]
NEEDED = "needs Berth 9.7 or later"

each_kind = pytest.mark.parametrize(("kind", "version"), KINDS)


async def a_cell(*, shards: int = 0) -> Cell:
    """A cell with a node and a job that is placed."""
    cell = await Cell(shards=shards).open()
    await cell.nodes([a_node("a")])
    await cell.submit(a_job("job", chips=2))
    await cell.turns(2)
    return cell


async def plant(cell: Cell, kind: str, version: int, *, is_chained: bool = True) -> None:
    """Append a record that a newer release wrote, or what anybody wrote who does not lead."""
    ledger = ChainReader(Position())
    for stored in await cell.user.read(StreamName.LEDGER):
        ledger.read(stored.sequence, stored.data)
    head = ledger.position.base_seq
    body = msgspec.Raw(msgspec.msgpack.encode([1, head, 1, 5, "uid-job"]))
    record = open_envelope(msgspec.msgpack.encode((kind, version, body, "9.7")))
    if is_chained:
        record = msgspec.structs.replace(record, chain=chained(ledger.position.digest, head + 1, record))
    await cell.user.append(record.encode(), expected_seq=head)
    await cell.settle()


def see_exit(error: Exception) -> None:
    """See that a process with this error ends with exit code 2."""
    assert report(error, DEFAULT_LOG) == MISCONFIGURED


@each_kind
async def test_a_dispatcher_stops_in_its_next_turn_and_does_not_start(kind: str, version: int) -> None:
    cell = await a_cell()
    await plant(cell, kind, version)
    head = cell.dispatcher.state.fold.head
    with pytest.raises(NewerVersionError, match=NEEDED) as caught:
        await cell.dispatcher.turn()
    see_exit(caught.value)
    assert cell.dispatcher.state.fold.head == head
    await cell.dispatcher.stop()
    with pytest.raises(NewerVersionError, match=NEEDED):
        await cell.start_dispatcher()
    assert len(await cell.ledger()) == head + 1
    await cell.close()


async def test_a_dispatcher_and_a_check_stop_at_an_epoch_with_a_rule_that_they_lack() -> None:
    cell = await a_cell()
    fold = cell.dispatcher.state.fold
    epoch = Epoch(fold.epoch + 1, fold.base_seq, fold.facts_seq, 1, "d", fold.settings, rules=[StatedRule("tides")])
    await cell.user.append(fold.encoded(epoch), expected_seq=fold.head)
    await cell.settle()
    with pytest.raises(UnknownRuleError, match="rule 'tides' is unknown here") as caught:
        await cell.dispatcher.turn()
    see_exit(caught.value)
    await cell.dispatcher.stop()
    for read in (cell.start_dispatcher, lambda: check_ledger(cell.user)):
        with pytest.raises(UnknownRuleError, match="rule 'tides' is unknown here"):
            await read()
    await cell.close()


@each_kind
async def test_what_no_leader_wrote_is_passed_over_whatever_release_it_names(
    kind: str, version: int, tmp_path: Path
) -> None:
    cell = await a_cell(shards=1)
    await plant(cell, kind, version, is_chained=False)
    await cell.submit(a_job("second", chips=2))
    await cell.turns(3)
    assert {uid for uid, _ in cell.dispatcher.state.fold.holdings} == {"uid-job", "uid-second"}
    assert cell.dispatcher.state.fold.voided == 1
    await cell.dispatcher.stop()
    await cell.start_dispatcher()
    assert cell.dispatcher.state.fold.voided == 1
    assert set((await state_now(cell.user, cell.clock)).fold.holdings) == set(cell.dispatcher.state.fold.holdings)
    assert (await settings_now(cell.user)) == cell.dispatcher.state.fold.settings
    found = await find(cell.user, cell.clock, by="me")
    assert found.skips == []
    await check_ledger(cell.user)
    await cell.dispatcher.stop()
    plain, anonymous = tmp_path / "plain.rec", tmp_path / "anonymous.rec"
    await record(cell.user, cell.clock, plain)
    anonymise_file(plain, anonymous)
    commands = [["explain", "job", "--log", str(plain)]]
    commands += [[command, str(file)] for file in (plain, anonymous) for command in ("replay", "log")]
    for words in commands:
        assert await asyncio.to_thread(call, words) == 0, words
    await cell.close()


@each_kind
async def test_a_scorer_stops(kind: str, version: int) -> None:
    cell = await a_cell(shards=1)
    await plant(cell, kind, version)
    head = (await cell.user.state(StreamName.LEDGER)).last_seq
    await cell.user.send(cell.user.subjects.advance, encode(Advance(1, 1, head)))
    async with asyncio.timeout(5 * SLACK):
        error = await cell.buses[-1].lost
    assert isinstance(error.__cause__, NewerVersionError)
    see_exit(error)
    await cell.close()


async def lost(bus: FakeBus, serve: Callable[[asyncio.Event], Awaitable[None]]) -> FatalError:
    """Why a service lost its bus while it served."""
    stop = asyncio.Event()
    async with asyncio.timeout(5 * SLACK), asyncio.TaskGroup() as group:
        group.create_task(serve(stop))  # type: ignore[arg-type]  # a coroutine function
        error = await bus.lost
        stop.set()
    return error


@each_kind
async def test_a_binder_stops(kind: str, version: int) -> None:
    cell = await a_cell()
    await cell.dispatcher.stop()
    await plant(cell, kind, version)
    bus = FakeBus(cell.server, cell.cell)
    config = BinderConfig()

    async def serve(stop: asyncio.Event) -> None:
        await bind_on(
            SimCluster(bus, answer_timeout_s=1), bus, cell.clock, config, Instruments.make(BinderMetrics), stop
        )

    error = await lost(bus, serve)
    assert isinstance(error.__cause__, NewerVersionError)
    see_exit(error)
    await bus.close()
    await cell.close()


@each_kind
async def test_a_summary_stops(kind: str, version: int) -> None:
    cell = await a_cell()
    await cell.dispatcher.stop()
    await plant(cell, kind, version)
    clock = ManualClock()
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(5 * SLACK):
            await write_on(
                FakeKube(clock=clock),
                cell.user,
                clock,
                SummaryConfig(),
                Instruments.make(SummaryMetrics),
                asyncio.Event(),
            )
    assert caught.group_contains(NewerVersionError, match=NEEDED)
    see_exit(caught.value)
    await cell.close()


@each_kind
async def test_the_service_for_programs_stops(kind: str, version: int) -> None:
    cell = await a_cell()
    await cell.dispatcher.stop()
    await plant(cell, kind, version)
    with pytest.raises(NewerVersionError, match=NEEDED) as caught:
        async with asyncio.timeout(5 * SLACK):
            await serve_programs(cell.user, cell.clock, ApiConfig(), Instruments.make(ApiMetrics), asyncio.Event())
    see_exit(caught.value)
    await cell.close()


@each_kind
async def test_commands_that_read_the_ledger_stop(kind: str, version: int, tmp_path: Path) -> None:
    cell = await a_cell()
    await cell.dispatcher.stop()
    await plant(cell, kind, version)
    reads: list[Callable[[], Awaitable[object]]] = [
        lambda: state_now(cell.user, cell.clock),
        lambda: settings_now(cell.user),
        lambda: verdict_on(cell.user, "uid-job", hint_seq=0),
        lambda: record(cell.user, cell.clock, tmp_path / "cell.rec"),
    ]
    for read in reads:
        with pytest.raises(NewerVersionError, match=NEEDED):
            await read()
    await cell.close()


async def test_a_snapshot_of_a_newer_release_is_not_loaded_and_not_passed_over() -> None:
    cell = await a_cell()
    await cell.dispatcher.snapshots.write()
    assert await newest_snapshot(cell.user) is not None
    data = msgspec.msgpack.encode(("snapshot", SnapshotBody.VERSION + 1, [9, 9, [], b""], "9.7"))
    await cell.user.publish(cell.user.subjects.snapshot_chunk(9, 0), encode(SnapshotChunk(data)))
    end = SnapshotEnd(9, 9, 1, len(data), zlib.crc32(data), 0)
    await cell.user.publish(cell.user.subjects.snapshot_end(9), encode(end))
    with pytest.raises(
        NewerVersionError, match=rf"snapshot of version {SnapshotBody.VERSION + 1} needs Berth 9\.7 or later"
    ):
        await newest_snapshot(cell.user)
    await cell.close()
