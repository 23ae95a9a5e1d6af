"""Lease of a repair: when it is taken, from whom, and when it is left alone."""

from collections.abc import AsyncIterator, Sequence

import pytest

from berth.runtime.bus.port import Stored
from berth.runtime.fsck.ledger_repair import RepairError, find, repair
from berth.schemas.envelope import decode, encode
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell
from tests.support.stored_cells import GARBAGE, append, at_rest, remove
from tests.unit.runtime.fsck.test_ledger_repair import repaired, see_one_state


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await at_rest()
    yield made
    await made.close()


async def test_what_was_void_is_skipped_before_the_lease_is_taken(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher that sees that it lost the lease reads the ledger at once, and would end where there is no skip."""
    bus = cell.user
    first = await append(bus, GARBAGE)
    await cell.start_dispatcher()  # it passes over it
    await append(bus, GARBAGE)
    remove(cell, first, first + 2)
    await cell.dispatcher.stop()
    publish = bus.publish
    subjects: list[str] = []

    async def noted(
        subject: str, data: bytes, *, expected_subject_seq: int | None = None, ttl_s: int | None = None
    ) -> int:
        subjects.append(subject)
        return await publish(subject, data, expected_subject_seq=expected_subject_seq, ttl_s=ttl_s)

    monkeypatch.setattr(bus, "publish", noted)
    assert await repaired(cell) == [(first, first, True), (first + 2, first + 2, False)]
    lease = bus.subjects.lease("dispatcher")
    assert subjects == [bus.subjects.skip(first), lease, bus.subjects.skip(first + 2), lease]


async def test_a_repair_of_what_was_void_alone_disturbs_no_leader(cell: Cell) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    await cell.start_dispatcher()  # it passes over it, and leads on
    remove(cell, first)
    before = (await bus.state(StreamName.LEDGER)).last_seq, (await bus.state(StreamName.LEASE)).last_seq
    assert await repaired(cell) == [(first, first, True)]
    assert before == ((await bus.state(StreamName.LEDGER)).last_seq, (await bus.state(StreamName.LEASE)).last_seq)
    await see_one_state(cell)


async def test_a_repair_does_nothing_while_a_restore_holds_the_lease(cell: Cell) -> None:
    """Also after one that was interrupted: what there is of the cell is no cell."""
    bus = cell.user
    first = await append(bus, GARBAGE)
    await cell.start_dispatcher()
    await append(bus, GARBAGE)
    remove(cell, first, first + 2)
    await cell.dispatcher.stop()
    heads = [(await bus.state(name)).last_seq for name in (StreamName.LEDGER, StreamName.SKIPS)]
    ledger = await bus.state(StreamName.LEDGER)
    for held in (
        LeaseHeld(RESTORE_HOLDER, 0, 0),
        LeaseHeld(RESTORE_HOLDER, 0, 0, ledger=ledger.created, ledger_seq=ledger.last_seq),
        LeaseHeld(RESTORE_HOLDER, 0, 0, ledger="another stream", ledger_seq=1),
    ):
        await bus.publish(bus.subjects.lease("dispatcher"), encode(held))
        with pytest.raises(RepairError, match=r"berth restore holds the lease.* Nothing was changed"):
            await repaired(cell)
        assert heads == [(await bus.state(name)).last_seq for name in (StreamName.LEDGER, StreamName.SKIPS)]
    led = LeaseHeld(RESTORE_HOLDER, 0, 0, ledger=ledger.created, ledger_seq=first)  # only its release was lost
    await bus.publish(bus.subjects.lease("dispatcher"), encode(led))
    assert await repaired(cell) == [(first, first, True), (first + 2, first + 2, False)]


async def test_a_repair_takes_the_lease_although_its_holder_renews_it_at_that_moment(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    remove(cell, first)
    last = bus.last
    renewed: list[int] = []

    async def renewing(stream: StreamName, subject: str) -> Stored | None:
        found = await last(stream, subject)
        if stream is StreamName.LEASE and len(renewed) < 3:
            renewed.append(await bus.publish(subject, encode(LeaseHeld("leader", 0, 0))))
        return found

    monkeypatch.setattr(bus, "last", renewing)
    assert await repaired(cell) == [(first, first, False)]
    assert len(renewed) == 3


async def test_a_restore_that_begins_during_a_repair_keeps_the_lease(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = cell.user
    first = await append(bus, GARBAGE)
    remove(cell, first)
    found = await find(bus, cell.clock, by="me")
    read = bus.read

    async def meanwhile(stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        await bus.publish(bus.subjects.lease("dispatcher"), encode(LeaseHeld(RESTORE_HOLDER, 0, 0)))
        return await read(stream, start_seq=start_seq, filters=filters)

    with monkeypatch.context() as patched:
        patched.setattr(bus, "read", meanwhile)
        with pytest.raises(RepairError, match="berth restore holds the lease"):
            await repair(bus, cell.clock, found, by="me")
    assert (await bus.state(StreamName.SKIPS)).last_seq == 0
    lease = await bus.last(StreamName.LEASE, bus.subjects.lease("dispatcher"))
    assert lease is not None
    assert decode(lease.data, LeaseHeld).holder == RESTORE_HOLDER
