"""A ledger that stops every service: one command, and all go on. Nothing is given twice."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from berth.core.state.invariants import check
from berth.core.state.ledger import LedgerFold
from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.history import state_now
from berth.schemas.envelope import decode
from berth.schemas.ledger import Epoch
from berth.schemas.subjects import StreamName
from tests.e2e.test_foreign_messages import CLUSTER, garbage, ghost, planted, runs, started
from tests.support import command
from tests.support.processes import Service, services
from tests.support.waiting import until_true

FOLDERS: Final = ("dispatcher", "scorer", "binder")
"""Services that fold the ledger."""
Cell = Callable[..., dict[str, Service]]


def twice(fold: LedgerFold) -> bytes:
    """A record of the leader, with the right chain value, that gives the places of a job to another one."""
    record = ghost(fold, epoch=fold.epoch)
    return fold.encoded(record)


@pytest.fixture
async def made(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> AsyncIterator[Cell]:
    """Maker of the services of a cell."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    with services(tmp_path, own_server.url) as of:

        def make() -> dict[str, Service]:
            settings: dict[str, dict[str, Any]] = {
                "nodesim": {"topology_file": str(tmp_path / "cluster.yaml")},
                "scorer": {"shards": 1},
                "dispatcher": {"shards": 1},
                "binder": {},
            }
            return {name: of.service(name, cell, **one) for name, one in settings.items()}

        yield make


async def berth(server: EmbeddedServer, cell: str, *words: str, of_cell: bool = True) -> tuple[int, str]:
    """Run the command; returns its exit code and what it printed."""
    code, out, err = await command.berth(*words, url=server.url if of_cell else "", cell=cell)
    return code, out + err


async def see_clean(server: EmbeddedServer, cell: str) -> None:
    """Nothing needs a repair, and everything was checked; whatever runs."""
    code, said = await berth(server, cell, "fsck", "--json")
    assert code == 0, said
    result = json.loads(said)
    assert result["clean"], said
    count = {one["what"]: one["count"] for one in result["checked"]}
    assert min(count[what] for what in ("records", "snapshots", "facts", "latest facts", "statuses")) > 0, said


async def deleted(bus: NatsBus, sequence: int) -> None:
    """Delete one message of the ledger, as an operator of NATS may."""
    subject = f"$JS.API.STREAM.MSG.DELETE.{bus.subjects.stream(StreamName.LEDGER)}"
    answer = json.loads(await bus.request(subject, json.dumps({"seq": sequence}).encode(), timeout_s=5))
    assert answer["success"], answer


async def killed(running: dict[str, Service], names: Sequence[str] = FOLDERS) -> None:
    for name in names:
        await running[name].kill()


async def stop_naming_the_command(running: dict[str, Service], sequence: int, names: Sequence[str] = FOLDERS) -> None:
    """All end by themselves, with the sequence and the command in the log, and not after many lines."""
    for name in names:
        assert await running[name].ended() == 1
        log = running[name].log()
        assert "berth repair" in log, log
        assert f"record {sequence} " in log or f"sequence {sequence} " in log, log
        assert len(log.splitlines()) < 40, log


async def repaired(server: EmbeddedServer, cell: str, bus: NatsBus, first: int, last: int) -> None:
    """Nothing without consent; then one command; the same command again finds nothing."""
    code, said = await berth(server, cell, "fsck", "--json")
    assert code == 1, said
    findings = json.loads(said)["findings"]
    assert [(one["sequence"], one["last_seq"]) for one in findings if one["repair"] == "berth repair"] == [
        (first, last)
    ]
    code, said = await berth(server, cell, "repair")
    assert code == 1, said
    assert "nothing was changed" in said
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    code, said = await berth(server, cell, "repair", "--yes", "--json")
    assert code == 0, said
    skips = [(skip["sequence"], skip["last_seq"]) for skip in json.loads(said)["skips"]]
    assert skips == [(first, last)]
    head = (await bus.state(StreamName.SKIPS)).last_seq
    code, said = await berth(server, cell, "repair", "--yes")
    assert code == 0, said
    assert "Nothing stops" in said
    assert (await bus.state(StreamName.SKIPS)).last_seq == head == 1


async def go_on(bus: NatsBus, running: dict[str, Service], names: Sequence[str] = FOLDERS) -> None:
    """Start what stopped, and see a job run; no chip has two owners."""
    for name in names:
        running[name].start()
    await runs(bus, "second")
    state = await state_now(bus, SystemClock())
    check(state)
    assert {uid for uid, _ in state.fold.holdings} == {"uid-first", "uid-second"}
    assert all(service.is_running for service in running.values())


async def is_recorded(server: EmbeddedServer, cell: str, folder: Path) -> None:
    """A recording and a backup of a cell that was repaired contain what was skipped."""
    for words in (("record", "plain.rec"), ("record", "secret.rec", "--anonymise"), ("backup", "cell.backup")):
        command, name, *more = words
        code, said = await berth(server, cell, command, str(folder / name), *more)
        assert code == 0, said
    for name in ("plain.rec", "secret.rec"):
        code, said = await berth(server, cell, "replay", str(folder / name), "--json", of_cell=False)
        assert code == 0, said
        assert json.loads(said)["identical"] is True


async def is_restored(
    server: EmbeddedServer, cell: str, bus: NatsBus, running: dict[str, Service], folder: Path
) -> None:
    """A restore of the backup comes to the same ledger, with the skip in the place of what was deleted."""
    before = (await state_now(bus, SystemClock())).fold.holdings
    for service in reversed(running.values()):
        await service.stop()
    code, said = await berth(server, cell, "restore", str(folder / "cell.backup"), "--replace")
    assert code == 0, said
    await see_clean(server, cell)
    assert set((await state_now(bus, SystemClock())).fold.holdings) == set(before)
    for service in running.values():
        service.start()
    await runs(bus, "third")
    await see_clean(server, cell)


@pytest.mark.timeout(120)
async def test_garbage_that_was_deleted_before_anyone_read_it(
    own_server: EmbeddedServer, cell: str, made: Cell
) -> None:
    running = made()
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await started(bus, running)
        await killed(running)
        sequence = await planted(bus, garbage)
        await deleted(bus, sequence)
        for name in FOLDERS:
            running[name].start()
        await stop_naming_the_command(running, sequence)
        await repaired(own_server, cell, bus, sequence, sequence)
        await go_on(bus, running)
        await see_clean(own_server, cell)


@pytest.mark.timeout(120)
async def test_garbage_that_was_passed_over_and_deleted_later(
    own_server: EmbeddedServer, cell: str, made: Cell, tmp_path: Path
) -> None:
    running = made()
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await started(bus, running)
        sequence = await planted(bus, garbage)
        await runs(bus, "second")
        await deleted(bus, sequence)
        await killed(running, ("scorer", "binder"))
        running["scorer"].start()
        running["binder"].start()
        await stop_naming_the_command(running, sequence, ("scorer", "binder"))
        assert running["dispatcher"].is_running
        await repaired(own_server, cell, bus, sequence, sequence)  # all of it was void: the dispatcher leads on
        await go_on(bus, running, ("scorer", "binder"))
        await is_recorded(own_server, cell, tmp_path)
        await is_restored(own_server, cell, bus, running, tmp_path)


@pytest.mark.timeout(120)
async def test_a_message_that_stops_all(own_server: EmbeddedServer, cell: str, made: Cell) -> None:
    running = made()
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await started(bus, running)
        sequence = await planted(bus, twice)
        await running["scorer"].kill()  # it reads the ledger when the dispatcher asks it to, or when it starts
        running["scorer"].start()
        await stop_naming_the_command(running, sequence)
        await repaired(own_server, cell, bus, sequence, sequence)
        await go_on(bus, running)
        await see_clean(own_server, cell)


@pytest.mark.timeout(120)
async def test_a_deleted_record_that_placed_a_job_is_not_skipped(
    own_server: EmbeddedServer, cell: str, made: Cell
) -> None:
    running = made()
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await started(bus, running)
        await killed(running)
        placed = (await bus.state(StreamName.LEDGER)).last_seq
        await deleted(bus, placed)
        code, said = await berth(own_server, cell, "fsck")
        assert code == 1, said
        assert f"LEDGER {placed}: " in said
        assert "Use: berth restore" in said
        code, said = await berth(own_server, cell, "repair", "--yes")
        assert code == 1, said
        assert f"record {placed}" in said
        assert "berth restore" in said
        assert (await bus.state(StreamName.SKIPS)).last_seq == 0


async def have_read(bus: NatsBus, sequence: int, *, readers: int = len(FOLDERS)) -> None:
    """Wait until each service that follows the ledger has received a record."""

    async def is_read() -> bool:
        places = [
            one.sequence
            for stats in await bus.processes()
            if stats.data
            for one in stats.data.followed
            if one.stream == StreamName.LEDGER
        ]
        return len(places) >= readers and min(places) >= sequence

    await until_true(is_read, deadline_s=20, what=f"all to read record {sequence}")


@pytest.mark.timeout(120)
async def test_all_that_had_read_an_epoch_that_was_deleted_come_to_one_ledger(
    own_server: EmbeddedServer, cell: str, made: Cell
) -> None:
    """It left no other trace. For those that run all is chained on it, for others on the record before."""
    running = made()
    async with await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus:
        await bus.ensure_streams()
        await started(bus, running)
        await running["dispatcher"].kill()
        epoch = (await bus.state(StreamName.LEDGER)).last_seq + 1
        running["dispatcher"].start()
        await have_read(bus, epoch)
        stored = await bus.message(StreamName.LEDGER, epoch)
        assert stored is not None
        assert decode(stored.data, Epoch).epoch == 2
        await deleted(bus, epoch)
        code, said = await berth(own_server, cell, "repair", "--yes", "--json")
        assert code == 0, said
        assert [(skip["sequence"], skip["last_seq"]) for skip in json.loads(said)["skips"]] == [(epoch, epoch)]
        own = await bus.message(StreamName.LEDGER, epoch + 1)
        assert own is not None
        assert (decode(own.data, Epoch).holder, decode(own.data, Epoch).base_seq) == ("berth repair", epoch)
        dispatcher = running["dispatcher"]

        async def has_given_way() -> bool:  # it reads the ledger before the skip is there, and ends, or after that
            return not dispatcher.is_running or (await bus.state(StreamName.LEDGER)).last_seq > epoch + 1

        await until_true(has_given_way, deadline_s=30, what="the dispatcher to end or to begin an epoch")
        if not dispatcher.is_running:
            assert "berth repair" in dispatcher.log()
            dispatcher.start()
        for name in ("binder", "scorer"):  # a scorer sees it when a dispatcher asks
            assert await running[name].ended() == 1
            assert "berth repair passes over a message that was read already" in running[name].log()
            running[name].start()
        await go_on(bus, running, ())
        await see_clean(own_server, cell)
