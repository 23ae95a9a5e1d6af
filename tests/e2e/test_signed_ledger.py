"""A cell whose processes know who may write the ledger: what others write there and to the lease changes nothing."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from berth.core.state.ledger import LedgerFold
from berth.lab.servers.nats_server import EmbeddedServer
from berth.lab.servers.ports import free_ports
from berth.runtime.bus.access import access_of
from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import BusConfig
from berth.runtime.errors import ConflictError
from berth.runtime.keys.key_folder import KeyFolder
from berth.runtime.stream_ranges import pieces
from berth.schemas.chain import UNSIGNED
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.e2e.test_foreign_messages import CLUSTER, FOLDERS, VOID, ghost, runs
from tests.support.command import berth
from tests.support.probes import samples
from tests.support.processes import Service, services
from tests.support.waiting import until, until_true

_UNSIGNED: Final = "berth_unsigned_records_total"
_NOW_S: Final = 1_700_000_000


def forged_round(fold: LedgerFold) -> bytes:
    """A round that gives chips twice, as one can make it who reads the ledger."""
    record = ghost(fold, epoch=fold.epoch)
    return fold.encoded(record)


def forged_epoch(fold: LedgerFold) -> bytes:
    """An epoch that would depose the leader."""
    record = Epoch(fold.epoch + 1, fold.base_seq, fold.facts_seq, fold.at_ms, "forger", fold.settings)
    return fold.encoded(record)


class SignedCell:
    """A cell with keys on a server that lets everybody in: signatures are all that keeps a forger out."""

    def __init__(self, folder: Path, url: str, cell: str, make: Callable[..., Service]) -> None:
        (folder / "cluster.yaml").write_text(CLUSTER)
        self.url, self.name = url, cell
        self.keys = KeyFolder.make(folder / "keys", cell, lambda: _NOW_S)
        self.keys.add("ops", "person", commands=["repair", "restore"])
        settings: dict[str, dict[str, Any]] = {
            "nodesim": {"topology_file": str(folder / "cluster.yaml")},
            "scorer": {"shards": 1},
            "dispatcher": {"shards": 1, "lease_s": 1},
            "binder": {},
        }
        self.ports = dict(zip(settings, free_ports(len(settings)), strict=True))
        self.services: dict[str, Service] = {}
        for name, own in settings.items():
            bus = {"cell": cell, "signers_file": str(self.keys.signers_file)}
            if name == "dispatcher":
                bus["creds_file"] = str(self.keys.credentials_file(name))
            self.services[name] = make(name, cell, bus=bus, probes={"port": self.ports[name]}, **own)

    async def connect(self, user: str = "") -> NatsBus:
        """A process that knows the signers; with the key of a user, if one is named."""
        creds = self.keys.credentials_file(user) if user else None
        access = access_of(BusConfig(signers_file=self.keys.signers_file, creds_file=creds))
        return await NatsBus.connect(self.url, self.name, name="reader", access=access)

    async def berth(self, *words: str, user: str = "ops") -> tuple[int, str, str]:
        """Run a command with the key of a person."""
        settings = {
            "BERTH_BUS__SIGNERS_FILE": self.keys.signers_file,
            "BERTH_BUS__CREDS_FILE": self.keys.credentials_file(user),
        }
        found = [f"{name}={value}" for name, value in settings.items()]
        return await berth(*words, url=self.url, cell=self.name, settings=found)

    async def counted(self, values: Mapping[str, float]) -> None:
        """Wait until each service that folds the ledger has counted."""
        async with aiohttp.ClientSession() as session:
            for name in FOLDERS:

                async def is_counted(port: int = self.ports[name]) -> bool:
                    found = await samples(session, port)
                    return all(found.get(metric) == value for metric, value in values.items())

                await until_true(is_counted, deadline_s=20, what=f"{name} counts {values}")


@pytest.fixture
async def signed(own_server: EmbeddedServer, cell: str, tmp_path: Path) -> AsyncIterator[SignedCell]:
    with services(tmp_path, own_server.url) as made:
        yield SignedCell(tmp_path, own_server.url, cell, made.service)


async def folded(reader: NatsBus) -> LedgerFold:
    """The ledger as processes count it that know the signers."""
    fold = LedgerFold()
    async for piece in pieces(reader, StreamName.LEDGER, 1, (await reader.state(StreamName.LEDGER)).last_seq):
        for stored in piece:
            fold.apply(stored.sequence, stored.data)
    return fold


async def planted(forger: NatsBus, reader: NatsBus, message: Callable[[LedgerFold], bytes]) -> int:
    """Publish a message as the next of the ledger; returns its sequence."""
    while True:
        fold = await folded(reader)
        try:
            return await forger.append(message(fold), expected_seq=fold.head)
        except ConflictError:
            continue


@pytest.mark.timeout(240)
async def test_forged_records_and_leases_change_nothing(signed: SignedCell, tmp_path: Path) -> None:
    running = signed.services
    async with (
        await NatsBus.connect(signed.url, signed.name, name="forger") as forger,
        await signed.connect() as reader,
    ):
        await forger.ensure_streams()
        for service in running.values():
            service.start()
        await runs(forger, "first")
        at: list[int] = []
        for number, message in enumerate((forged_round, forged_epoch, forged_round), start=1):
            at.append(await planted(forger, reader, message))
            await runs(forger, f"after-{number}")
            await signed.counted({VOID: number, _UNSIGNED: number, "berth_process_ready": 1})
        for holder in ("forger", "", RESTORE_HOLDER):
            last = await forger.last(StreamName.LEASE, forger.subjects.lease(ROLE))
            assert last is not None
            lease = encode(LeaseHeld(holder, 0, 0, 0))
            await forger.publish(forger.subjects.lease(ROLE), lease)
            before = running["dispatcher"].whole_log().count("lease written again")
            await until(
                lambda before=before: running["dispatcher"].whole_log().count("lease written again") > before,  # type: ignore[misc]
                deadline_s=20,
                what="the leader writes its lease again",
            )
        await runs(forger, "after-leases")
        fold = await folded(reader)
        assert (fold.epoch, fold.voided) == (1, len(at)), "the leader was never deposed"
        assert all(service.starts == 1 and service.is_running for service in running.values())
        assert "lease lost" not in running["dispatcher"].whole_log()
        for name in FOLDERS:
            told = [line for line in running[name].whole_log().splitlines() if "void message in the ledger" in line]
            assert [f"sequence={one} " in line and UNSIGNED in line for one, line in zip(at, told, strict=True)] == [
                True
            ] * len(at)
        # A process that starts anew passes over them as well, also if its newest message is forged.
        await planted(forger, reader, forged_epoch)
        for name in FOLDERS:
            await running[name].kill()
            running[name].start()
        await runs(forger, "after-restarts")
        fold = await folded(reader)
        assert (fold.epoch, fold.voided) == (2, len(at) + 1)
        assert {uid for uid, _ in fold.holdings} == {
            f"uid-{name}" for name in ("first", "after-1", "after-2", "after-3", "after-leases", "after-restarts")
        }
        await read_by_people(signed, at, tmp_path / "cell.berthlog")
        await runs(forger, "after-repair")


async def read_by_people(signed: SignedCell, forged: list[int], file: Path) -> None:
    """A recording has what counted, and is replayed without any key; a check names what was forged."""
    code, _, err = await signed.berth("record", str(file))
    assert code == 0, err
    code, out, err = await berth("replay", str(file), "--json")
    assert code == 0, err + out
    code, out, err = await signed.berth("fsck", "--json")
    assert code in {0, 1}, err
    findings = json.loads(out)["findings"]
    assert {(one["code"], one["sequence"]) for one in findings} >= {("foreign-message", one) for one in forged}
    code, out, err = await signed.berth("repair", "--yes")
    assert code == 0, err + out


@pytest.mark.timeout(240)
async def test_a_key_is_replaced_while_the_cell_stands(signed: SignedCell) -> None:
    running = signed.services
    async with await NatsBus.connect(signed.url, signed.name, name="test") as bus:
        await bus.ensure_streams()
        for service in running.values():
            service.start()
        await runs(bus, "first")
        signed.keys.add("dispatcher", "service", replaces=True)
        for name in FOLDERS:  # with both keys
            await running[name].stop()
            running[name].start()
        await runs(bus, "second")
        lines = signed.keys.signers_file.read_text().splitlines()
        signed.keys.signers_file.write_text("\n".join(line for line in lines if "replaced" not in line))
        for name in FOLDERS:  # without the old one
            await running[name].stop()
            running[name].start()
        await runs(bus, "third")
        async with await signed.connect() as reader:
            fold = await folded(reader)
        assert {uid for uid, _ in fold.holdings} == {"uid-first", "uid-second", "uid-third"}
        assert fold.voided == 0


@pytest.mark.timeout(120)
async def test_a_dispatcher_that_is_no_signer_ends_and_says_so(signed: SignedCell) -> None:
    async with await NatsBus.connect(signed.url, signed.name, name="test") as bus:
        await bus.ensure_streams()
        signed.keys.signers_file.write_text(f"{signed.keys.users[0].public_key} # of api\n")
        dispatcher = signed.services["dispatcher"]
        dispatcher.start()
        assert await dispatcher.ended() == 2
        assert "bus.signers_file" in dispatcher.log()


@pytest.mark.timeout(240)
async def test_a_cell_that_stands_gets_keys(signed: SignedCell) -> None:
    running = signed.services
    signers = signed.keys.signers_file
    text = signers.read_text()
    async with await NatsBus.connect(signed.url, signed.name, name="test") as bus:
        await bus.ensure_streams()
        for service in running.values():
            service._file.write_text(service._file.read_text().replace("signers_file", "#signers_file"))
            service.start()
        await runs(bus, "first")
        for service in running.values():
            service._file.write_text(service._file.read_text().replace("#signers_file", "signers_file"))
        for name in ("binder", "scorer", "dispatcher"):
            await running[name].stop()
            running[name].start()
        await runs(bus, "second")
        assert signers.read_text() == text
        async with await signed.connect() as reader:
            await planted(bus, reader, forged_round)
            await runs(bus, "third")
            fold = await folded(reader)
        assert {uid for uid, _ in fold.holdings} == {"uid-first", "uid-second", "uid-third"}
        assert fold.voided == 1
