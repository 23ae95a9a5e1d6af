"""A repair that takes longer than its lease: it keeps the lease, and writes nothing without it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import pytest

from berth.core.state.ledger import LedgerFold
from berth.runtime.bus.leaders import ROLE
from berth.runtime.bus.port import Stored
from berth.runtime.errors import ConflictError, TransientError
from berth.runtime.fsck.ledger_fence import HOLDER, Fence
from berth.runtime.fsck.ledger_repair import Found, RepairError, find, repair
from berth.schemas.chain import Link
from berth.schemas.envelope import decode, encode
from berth.schemas.status import LeaseHeld
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell
from tests.support.stored_cells import GARBAGE, append, at_rest, remove
from tests.support.waiting import block, until, until_true

FENCE: Final = "berth.runtime.fsck.ledger_fence"
LEASE_S: Final = 30
LOOK_S: Final = 0.001


@pytest.fixture
async def cell(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cell]:
    """A cell with a long ledger, the end of which was deleted. A repair sees at once that the clock has moved."""
    monkeypatch.setattr(f"{FENCE}._LOOK_S", LOOK_S)
    made = await at_rest()
    await append(made.user, *[GARBAGE] * 2 * LEASE_S)
    remove(made, await append(made.user, GARBAGE))
    yield made
    await made.close()


async def lease(cell: Cell) -> Stored | None:
    return await cell.user.last(StreamName.LEASE, cell.user.subjects.lease(ROLE))


async def holder(cell: Cell) -> str:
    stored = await lease(cell)
    return "" if stored is None else decode(stored.data, LeaseHeld).holder


def slow_reads(
    cell: Cell,
    monkeypatch: pytest.MonkeyPatch,
    slow: StreamName,
    meanwhile: Callable[[], Awaitable[None]],
    *,
    with_lease: bool = True,
) -> None:
    """Let something happen during each read of a stream; ``with_lease``: while a repair holds the lease."""
    read = cell.user.read

    async def slowly(stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        if stream is slow and (not with_lease or await holder(cell) == HOLDER):
            await meanwhile()
        return await read(stream, start_seq=start_seq, filters=filters)

    monkeypatch.setattr(cell.user, "read", slowly)


async def see_nothing_written(cell: Cell, head: int) -> None:
    assert (await cell.user.state(StreamName.SKIPS)).last_seq == 0
    assert (await cell.user.state(StreamName.LEDGER)).last_seq == head
    assert all(task.get_name() != "renew the lease" for task in asyncio.all_tasks())


async def agreed(cell: Cell) -> tuple[Found, int]:
    """What a person agrees to, and the end of the ledger then."""
    return await find(cell.user, cell.clock, by="me"), (await cell.user.state(StreamName.LEDGER)).last_seq


@pytest.mark.parametrize("slow", [StreamName.LEDGER, StreamName.STATUS, StreamName.SNAPSHOT])
async def test_the_lease_is_kept_while_a_read_takes_longer(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, slow: StreamName
) -> None:
    found, _ = await agreed(cell)
    renewed: list[int] = []

    async def is_young() -> bool:
        stored = await lease(cell)
        if stored is None or cell.clock.now_ms() - stored.at_ms > 1000 * LEASE_S / 3:
            return False
        renewed.append(stored.sequence)
        return True

    async def meanwhile() -> None:
        for _ in range(3):
            cell.clock.advance(LEASE_S / 2)
            await until_true(is_young, deadline_s=2, what="the lease to be renewed")
            assert await holder(cell) == HOLDER

    slow_reads(cell, monkeypatch, slow, meanwhile)
    assert (await repair(cell.user, cell.clock, found, by="me")).skips == []
    assert len(set(renewed)) >= 6
    assert await holder(cell) == ""
    assert all(task.get_name() != "renew the lease" for task in asyncio.all_tasks())


async def test_the_lease_is_kept_while_a_ledger_is_folded_for_longer(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bus is not asked meanwhile."""
    found, _ = await agreed(cell)
    link = LedgerFold.link

    def slowly(fold: LedgerFold, sequence: int, data: bytes) -> Link:
        block(2 * LOOK_S)
        cell.clock.advance(1)
        return link(fold, sequence, data)

    monkeypatch.setattr(LedgerFold, "link", slowly)
    assert (await repair(cell.user, cell.clock, found, by="me")).skips == []
    assert await holder(cell) == ""


async def test_a_repair_whose_lease_is_taken_ends_where_it_is_and_writes_nothing(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, head = await agreed(cell)
    bus = cell.user
    ended: list[bool] = []

    async def meanwhile() -> None:
        await bus.publish(bus.subjects.lease(ROLE), encode(LeaseHeld("another", 0, 0)))
        cell.clock.advance(LEASE_S / 2)
        try:
            await until(lambda: False, deadline_s=2, what="the work to be ended")
        finally:
            ended.append(True)

    slow_reads(cell, monkeypatch, StreamName.LEDGER, meanwhile)
    with pytest.raises(RepairError, match=r"another process wrote meanwhile .* start the repair again"):
        await repair(bus, cell.clock, found, by="me")
    assert ended == [True]
    await see_nothing_written(cell, head)
    assert await holder(cell) == "another"


async def test_a_repair_that_was_paused_for_longer_than_its_lease_writes_nothing(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on before the renewal has a turn."""
    found, head = await agreed(cell)
    monkeypatch.setattr(f"{FENCE}._LOOK_S", 60)
    paused: list[None] = []

    async def meanwhile() -> None:
        paused.append(None)
        cell.clock.advance(LEASE_S if len(paused) == 2 else 0)

    slow_reads(cell, monkeypatch, StreamName.STATUS, meanwhile)
    with pytest.raises(RepairError, match="did not hold or renew the lease within 30 s; start the repair again"):
        await repair(cell.user, cell.clock, found, by="me")
    assert len(paused) == 2
    await see_nothing_written(cell, head)


async def test_a_repair_that_was_paused_before_it_has_the_lease_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore may have begun and ended meanwhile: the skip would be one of the new ledger."""
    cell = await at_rest()
    first = await append(cell.user, GARBAGE)
    await cell.start_dispatcher()  # it passes over it
    remove(cell, first)
    found, head = await agreed(cell)
    assert [skip.was_void for skip in found.skips] == [True]

    async def meanwhile() -> None:
        cell.clock.advance(LEASE_S)

    slow_reads(cell, monkeypatch, StreamName.STATUS, meanwhile, with_lease=False)
    with pytest.raises(RepairError, match="did not hold or renew the lease within 30 s; start the repair again"):
        await repair(cell.user, cell.clock, found, by="me")
    await see_nothing_written(cell, head)
    await cell.close()


async def test_the_renewal_ends_with_a_repair_that_fails_and_the_lease_is_released(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, head = await agreed(cell)
    reason = OSError("no route")

    async def meanwhile() -> None:
        raise TransientError("away") from reason

    slow_reads(cell, monkeypatch, StreamName.LEDGER, meanwhile)
    with pytest.raises(TransientError, match="away") as caught:
        await repair(cell.user, cell.clock, found, by="me")
    assert caught.value.__cause__ is reason
    await see_nothing_written(cell, head)
    assert await holder(cell) == ""


async def test_the_error_of_a_repair_is_told_also_if_its_last_renewal_fails(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = await agreed(cell)

    async def meanwhile() -> None:
        raise TransientError("away")

    async def failing(fence: Fence, done: asyncio.Event) -> None:
        await done.wait()
        raise ConflictError(f"{fence} has lost it")

    slow_reads(cell, monkeypatch, StreamName.LEDGER, meanwhile)
    monkeypatch.setattr(Fence, "_renew", failing)
    with pytest.raises(TransientError, match="away"):
        await repair(cell.user, cell.clock, found, by="me")


async def test_statuses_and_outcomes_are_read_once_for_all_skips(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):  # not beside another: each is a skip of its own
        await append(cell.user, GARBAGE)
        remove(cell, await append(cell.user, GARBAGE))
    reads: list[StreamName] = []
    for stream in (StreamName.STATUS, StreamName.LATEST):

        async def meanwhile(stream: StreamName = stream) -> None:
            reads.append(stream)

        slow_reads(cell, monkeypatch, stream, meanwhile, with_lease=False)
    assert len((await find(cell.user, cell.clock, by="me")).skips) == 3
    assert reads == [StreamName.STATUS, StreamName.LATEST]
