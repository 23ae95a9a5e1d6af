"""Repairs and restores of a ledger that is signed: the person's key counts, and nobody else's."""

from pathlib import Path

import pytest

from berth.core.errors import LedgerBrokenError
from berth.runtime.backups.backup import backup
from berth.runtime.backups.restore import restore
from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import ConfigError
from berth.runtime.fsck.ledger_repair import find, repair
from berth.schemas.chain import stored_digest
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld, Skip
from berth.schemas.subjects import StreamName
from tests.bus.test_backup import delete_all, fact
from tests.bus.test_skips import CLOCK, SETTINGS, begun, folded, lead, place
from tests.support.signing_keys import signer

pytestmark = pytest.mark.timeout(90)
LEADER, PERSON, STRANGER = signer(1), signer(2), signer(3)
READS = signer(4).alone_knowing(LEADER, PERSON)


@pytest.fixture
async def bus(real_bus: NatsBus) -> NatsBus:
    """A cell with an epoch and a job, and the key of its leader."""
    real_bus.signatures = LEADER.knowing(PERSON)
    await begun(real_bus)
    return real_bus


async def forged(bus: NatsBus, data: bytes) -> None:
    """Store a message as the next of the ledger, with the key of a stranger."""
    bus.signatures = STRANGER.knowing()
    await bus.append(data, expected_seq=(await bus.state(StreamName.LEDGER)).last_seq)


async def test_the_ledger_that_a_person_restores_counts_with_the_key_of_that_person(
    bus: NatsBus, tmp_path: Path
) -> None:
    before = await folded(bus)
    await forged(bus, (await bus.read(StreamName.LEDGER))[0].data)
    bus.signatures = LEADER.knowing(PERSON)
    await lead(bus)
    bus.signatures = READS
    written = await backup(bus, CLOCK, tmp_path / "b")
    assert written.checked.state.fold.epoch == before.epoch + 1
    await delete_all(bus)
    bus.signatures = PERSON.knowing(LEADER)
    await restore(bus, CLOCK, tmp_path / "b")
    bus.signatures = signer(4).alone_knowing(PERSON)
    found = await folded(bus)
    assert (found.holdings, found.epoch, found.voided) == (before.holdings, before.epoch + 1, 1)
    stored = await bus.read(StreamName.LEDGER)
    assert [bus.signatures.is_record(one) for one in stored] == [True] * len(stored)
    last = await bus.last(StreamName.LEASE, bus.subjects.lease(ROLE))
    assert last is None or bus.signatures.counts(last)


async def test_a_person_who_is_no_signer_restores_nothing(bus: NatsBus, tmp_path: Path) -> None:
    await backup(bus, CLOCK, tmp_path / "b")
    head = (await bus.state(StreamName.LEDGER)).last_seq
    bus.signatures = STRANGER.alone_knowing(LEADER, PERSON)
    with pytest.raises(ConfigError, match=r"bus\.signers_file"):
        await restore(bus, CLOCK, tmp_path / "b", replace=True)
    bus.signatures = READS
    assert (await bus.state(StreamName.LEDGER)).last_seq == head, "nothing was deleted"


async def test_a_repair_is_signed_by_the_person(bus: NatsBus) -> None:
    await place(bus, "second", await fact(bus, 1))  # the chip has an owner
    bus.signatures = READS
    with pytest.raises(LedgerBrokenError):
        await folded(bus)
    bus.signatures = PERSON.knowing(LEADER)
    await repair(bus, CLOCK, await find(bus, CLOCK, by="ops"), by="ops")
    bus.signatures = READS
    found = await folded(bus)
    assert (set(found.gangs), found.epoch) == ({"first"}, 2)
    bus.signatures = signer(4).alone_knowing(PERSON)
    assert (await folded(bus)).holdings == found.holdings, "the epoch of the repair confirms what was before"


async def test_a_skip_that_nobody_signed_skips_nothing(bus: NatsBus) -> None:
    placed = (await bus.read(StreamName.LEDGER))[-1]
    skip = Skip(placed.sequence, placed.sequence, stored_digest(placed.data), was_void=True)
    bus.signatures = STRANGER.knowing()
    await bus.publish(bus.subjects.skip(skip.sequence), encode(skip))
    bus.signatures = READS
    assert set((await folded(bus)).gangs) == {"first"}
    bus.signatures = PERSON.knowing(LEADER)
    await bus.publish(bus.subjects.skip(skip.sequence), encode(skip))
    bus.signatures = READS
    assert set((await folded(bus)).gangs) == set()


async def test_a_repair_passes_over_forged_records_as_readers_do(bus: NatsBus) -> None:
    await forged(bus, encode(LeaseHeld("x", 0, 0)))
    await forged(bus, encode(Epoch(9, 3, 0, 1, "thief", SETTINGS)))
    bus.signatures = PERSON.knowing(LEADER)
    found = await find(bus, CLOCK, by="ops")
    assert found.skips == []


async def test_a_forged_lease_of_a_restore_stops_no_repair(bus: NatsBus) -> None:
    await place(bus, "second", await fact(bus, 1))
    bus.signatures = STRANGER.knowing()
    await bus.publish(bus.subjects.lease(ROLE), encode(LeaseHeld(RESTORE_HOLDER, 0, CLOCK.now_ms())))
    bus.signatures = PERSON.knowing(LEADER)
    await repair(bus, CLOCK, await find(bus, CLOCK, by="ops"), by="ops")
    bus.signatures = READS
    assert (await folded(bus)).epoch == 2
