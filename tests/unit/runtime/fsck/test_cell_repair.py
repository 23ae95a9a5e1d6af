"""Repair of what a check finds: snapshots and statuses. That of the ledger is in ``test_ledger_reader``."""

import msgspec
import pytest

from berth.runtime.fsck.cell_repair import Plan, carry_out, plan_of
from berth.runtime.fsck.ledger_repair import RepairError
from berth.runtime.history import state_now
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job
from tests.support.stored_cells import GARBAGE, checked, copy_snapshot, grown, heads, placed, stream, tell, told


async def planned(cell: Cell) -> Plan:
    async def wait() -> None:
        cell.clock.advance(1)

    return await plan_of(cell.user, cell.clock, by="me", wait=wait)


async def written(cell: Cell) -> dict[StreamName, int]:
    return {name: (await cell.user.state(name)).last_seq for name in StreamName}


async def test_nothing_is_changed_where_nothing_is_wrong() -> None:
    cell = await grown("one", "two")
    before = await written(cell)
    plan = await planned(cell)
    assert plan.is_empty
    assert plan.statuses == []
    await carry_out(cell.user, cell.clock, plan, by="me")
    assert await written(cell) == before
    await cell.close()


async def test_a_snapshot_of_another_history_is_removed_and_the_next_start_is_right() -> None:
    cell, other = await grown("one", "two", "three"), await grown("x", "y", "z")
    await cell.dispatcher.stop()
    right = cell.dispatcher.state.fold.dump()
    at = heads(cell)
    copy_snapshot(other, cell, at[3])
    assert (await state_now(cell.user, cell.clock)).fold.dump().holdings != right.holdings
    before = await written(cell)
    plan = await planned(cell)
    assert ([one.ledger_seq for one in plan.snapshots], plan.found.skips, plan.statuses) == ([at[3]], [], None)
    assert "not of the history of this ledger" in plan.snapshots[0].reason
    assert await written(cell) == before
    await carry_out(cell.user, cell.clock, plan, by="me")
    assert heads(cell) == at[:3]
    assert (await state_now(cell.user, cell.clock)).fold.dump().holdings == right.holdings
    assert (await planned(cell)).is_empty
    await cell.start_dispatcher()
    await placed(cell, a_job("four", chips=2))
    assert (await checked(cell)).findings == []
    await cell.close()
    await other.close()


async def test_damaged_snapshots_are_removed_only_if_a_start_is_left() -> None:
    cell = await grown("one", "two", "three")
    at = heads(cell)
    snapshots = stream(cell, StreamName.SNAPSHOT)
    for one in list(snapshots.messages.values()):
        if f".snapshot.{at[3]}.0" in one.subject:
            snapshots.messages[one.sequence] = one._replace(data=GARBAGE)
    plan = await planned(cell)
    assert [one.ledger_seq for one in plan.snapshots] == [at[3]]
    stream(cell, StreamName.LEDGER).purge(at[3], None)
    for old in at[:3]:
        snapshots.purge(None, cell.user.subjects.snapshot_all(old))
    with pytest.raises(RepairError, match="berth restore"):
        await planned(cell)
    with pytest.raises(RepairError, match="not as they were found"):
        await carry_out(cell.user, cell.clock, plan, by="me")
    assert heads(cell) == [at[3]]
    await cell.close()


async def test_wrong_statuses_are_written_from_the_ledger() -> None:
    cell = await grown("one", "two", "three")
    one, two, three = [await told(cell, name) for name in ("one", "two", "three")]
    await tell(cell, msgspec.structs.replace(one, placement=two.placement))
    await tell(cell, msgspec.structs.replace(two, name="ghost", uid="ghost"))
    await cell.user.publish(cell.user.subjects.status("default", "three"), GARBAGE)
    plan = await planned(cell)
    assert [wrong.key[1] for wrong in plan.statuses or ()] == ["one", "ghost", "three"]
    assert await carry_out(cell.user, cell.clock, plan, by="me") == []
    repaired = [await told(cell, name) for name in ("one", "three")]
    assert [msgspec.structs.replace(now, at_ms=old.at_ms) for now, old in zip(repaired, (one, three), strict=True)] == [
        one,
        three,
    ]
    ghost = await told(cell, "ghost")
    assert (ghost.phase, ghost.placement, ghost.sentence) == ("cancelled", None, "Berth has no record of this job.")
    assert (await planned(cell)).is_empty
    await cell.close()


async def test_a_status_that_somebody_writes_meanwhile_is_left_alone() -> None:
    cell = await grown("one", "two")
    one, two = [await told(cell, name) for name in ("one", "two")]
    await tell(cell, msgspec.structs.replace(one, placement=two.placement))
    plan = await planned(cell)
    newer = msgspec.structs.replace(one, phase="running")
    await tell(cell, newer)
    assert await carry_out(cell.user, cell.clock, plan, by="me") == [("default", "one")]
    assert await told(cell, "one") == newer
    await cell.close()
