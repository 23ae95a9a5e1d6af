"""Messages on the ledger's subject that no leader wrote: every service passes over them, or stops and says why."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from berth.core.state.ledger import LedgerFold
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.errors import ConflictError
from berth.schemas.chain import encode_record
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Round, Verdict
from berth.schemas.subjects import StreamName
from tests.support.cells import a_job
from tests.support.load import give_jobs, status
from tests.support.probes import samples
from tests.support.processes import Service, services
from tests.support.waiting import until_true
from tests.support.watch import Watch

CLUSTER = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "node-{index}"}
"""
FOLDERS = ("dispatcher", "scorer", "binder")
"""Services that fold the ledger."""
VOID = "berth_void_records_total"
_RUN_MS = 3_600_000
"""Jobs do not end before their test does."""


class Chain(NamedTuple):
    """Services of a cell that run, and the ports of their metrics."""

    services: dict[str, Service]
    ports: dict[str, int]


async def started(bus: NatsBus, made: dict[str, Service]) -> None:
    """Start all, and see a job run."""
    for service in made.values():
        service.start()
    await runs(bus, "first")


async def runs(bus: NatsBus, name: str) -> None:
    await give_jobs(bus, a_job(name, chips=4, run_ms=_RUN_MS))

    async def is_running() -> bool:
        found = await status(bus, name)
        return found is not None and found.phase == "running"

    await until_true(is_running, deadline_s=30, what=f"{name} runs")


async def planted(bus: NatsBus, message: Callable[[LedgerFold], bytes]) -> int:
    """Publish a message as the next of the ledger; returns its sequence."""
    while True:
        fold = LedgerFold()
        for stored in await bus.read(StreamName.LEDGER):
            fold.apply(stored.sequence, stored.data)
        try:
            return await bus.append(message(fold), expected_seq=fold.head)
        except ConflictError:
            continue


def ghost(fold: LedgerFold, *, epoch: int) -> Round:
    """A round that gives the places of a job to another one."""
    taken = fold.holdings[min(fold.holdings)].placement
    verdict = Verdict("default", "ghost", "uid-ghost", 1, taken)
    return Round(epoch, fold.base_seq, fold.facts_seq, fold.at_ms, fold.rounds + 1, verdicts=[verdict])


def garbage(_: LedgerFold) -> bytes:
    return b"\xff\x00 not a message"


def unknown_kind(_: LedgerFold) -> bytes:
    return encode(TimerSeen(5))


def unknown_record(_: LedgerFold) -> bytes:
    """What looks like a record of a newer release."""
    return msgspec.msgpack.encode(("ledger.x", 1, []))


def unchained(fold: LedgerFold) -> bytes:
    """What a leader could have written, with the chain value of another history."""
    record = ghost(fold, epoch=fold.epoch)
    return encode_record(record, chain=bytes(range(16)), sequence=fold.head + 1)


def zombie(fold: LedgerFold) -> bytes:
    """What a leader of the past sends, with the chain value that is right by chance."""
    record = ghost(fold, epoch=fold.epoch - 1)
    return fold.encoded(record)


@pytest.fixture
async def chain(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> AsyncIterator[Callable[..., Chain]]:
    """Maker of the services of a cell."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    with services(tmp_path, own_server.url) as made:

        def make() -> Chain:
            settings: dict[str, dict[str, Any]] = {
                "nodesim": {"topology_file": str(tmp_path / "cluster.yaml")},
                "scorer": {"shards": 1},
                "dispatcher": {"shards": 1},
                "binder": {},
            }
            ports = dict(zip(settings, free_ports(len(settings)), strict=True))
            return Chain(
                {name: made.service(name, cell, probes={"port": ports[name]}, **one) for name, one in settings.items()},
                ports,
            )

        yield make


@pytest.mark.timeout(180)
async def test_a_cell_passes_over_what_its_leader_did_not_write(
    own_server: EmbeddedServer, cell: str, chain: Callable[..., Chain]
) -> None:
    running, ports = chain()
    async with (
        aiohttp.ClientSession() as session,
        await NatsBus.connect(own_server.url, cell, name="test", inbox="_INBOX.person.test") as bus,
    ):
        await bus.ensure_streams()
        watch = Watch(bus)
        watch.start()
        await started(bus, running)
        planters = (garbage, unknown_kind, unknown_record, unchained, zombie)
        at: list[int] = []
        for number, message in enumerate(planters, start=1):
            at.append(await planted(bus, message))
            await runs(bus, f"after-{number}")
            for name in FOLDERS:

                async def is_counted(port: int = ports[name], number: int = number) -> bool:
                    return (await samples(session, port))[VOID] == number

                await until_true(is_counted, deadline_s=20, what=f"{name} counts {number} void records")
        assert all(service.starts == 1 and service.is_running for service in running.values())
        for name in FOLDERS:
            told = [line for line in running[name].whole_log().splitlines() if "void message in the ledger" in line]
            assert [f"sequence={sequence} " in line for line, sequence in zip(told, at, strict=True)] == [True] * len(
                at
            )
        # A service that starts anew passes over them as well.
        for name in FOLDERS:
            await running[name].kill()
            running[name].start()
        await runs(bus, "after-all")
        await watch.reach_heads()
        assert watch.fold.voided == len(at)
        assert {uid for uid, _ in watch.placed} == {
            "uid-first",
            "uid-after-all",
            *(f"uid-after-{n}" for n in range(1, len(at) + 1)),
        }
        assert set(watch.placed.values()) == {1}
        watch.replay()
        await watch.stop()
