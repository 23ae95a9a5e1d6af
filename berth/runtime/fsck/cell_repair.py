"""Repair of what a check finds: skips over messages that stop readers, snapshots and statuses that are wrong.

Everything is found first and changed after consent. Snapshots are removed only if services start right without them:
readers pass over damaged ones anyway, and for one of another history the ledger must be whole from before it to its
end. Statuses are compared once the ledger and its snapshots are in order.
"""

from functools import partial
from typing import Final

import msgspec

from berth.core.state.cell import JobKey, State
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import ConflictError
from berth.runtime.feeds import Feeds
from berth.runtime.fsck.ledger_check import check_ledger
from berth.runtime.fsck.ledger_repair import Found, RepairError, find, repair
from berth.runtime.fsck.status_check import Pause, WrongStatus, check_statuses, pause
from berth.runtime.fsck.streams import checked_again
from berth.schemas.envelope import encode
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName

_NO_RECORD: Final = "Berth has no record of this job."


class WrongSnapshot(msgspec.Struct, frozen=True):
    """A snapshot that will be removed.

    Attributes:
        ledger_seq: Its record.
        reason: What is wrong with it.
    """

    ledger_seq: int
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """What a repair changes.

    Attributes:
        found: Skips in the ledger.
        snapshots: Snapshots to be removed, by record.
        statuses: Statuses to be written; None if they were not compared.
    """

    found: Found
    snapshots: list[WrongSnapshot]
    statuses: list[WrongStatus] | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        return not (self.found.skips or self.snapshots or self.statuses)


async def plan_of(bus: Bus, clock: Clock, *, by: str, wait: Pause = pause) -> Plan:
    """Find what a repair would change. Nothing is changed.

    Args:
        bus: The cell.
        clock: For the time in the skips.
        by: Name of this process, for the skips.
        wait: Waits before the next look at statuses.

    Raises:
        RepairError: No repair would make it good.
        FatalError: The history broke meanwhile.
        VersionError: Only another release reads a record or a snapshot.
        TransientError: The bus did not answer.
    """
    snapshots = await _wrong_snapshots(bus)
    found = await find(bus, clock, by=by, without=_records(snapshots))
    if found.skips or snapshots:
        return Plan(found, snapshots, None)
    feeds = Feeds(bus, clock, State())
    try:
        await feeds.start()
        checked = await check_statuses(bus, clock, feeds, wait=wait)
    finally:
        await feeds.stop()
    return Plan(found, [], [one for one in checked.wrong if one.finding.repair])


async def _wrong_snapshots(bus: Bus) -> list[WrongSnapshot]:
    checked = await checked_again(partial(check_ledger, bus))
    reasons = {one.sequence: one.text for one in checked.findings if one.where == StreamName.SNAPSHOT}
    return [WrongSnapshot(at, reasons[at]) for at in checked.removable]


def _records(snapshots: list[WrongSnapshot]) -> frozenset[int]:
    return frozenset(one.ledger_seq for one in snapshots)


async def carry_out(bus: Bus, clock: Clock, plan: Plan, *, by: str) -> list[JobKey]:
    """Make the changes that a person has agreed to.

    Args:
        bus: The cell.
        clock: For the lease and the statuses.
        plan: The changes.
        by: Name of this process.

    Returns:
        Jobs whose status somebody else wrote meanwhile; these were left alone.

    Raises:
        RepairError: The cell is not as it was found. Start it again.
        TransientError: The bus did not answer.
    """
    if plan.snapshots and await _wrong_snapshots(bus) != plan.snapshots:
        raise RepairError("the snapshots are not as they were found any more; nothing was changed. Start it again")
    if plan.found.skips:
        await repair(bus, clock, plan.found, by=by, without=_records(plan.snapshots))
    for snapshot in plan.snapshots:
        await bus.purge(StreamName.SNAPSHOT, subject=bus.subjects.snapshot_all(snapshot.ledger_seq))
    left: list[JobKey] = []
    for wrong in plan.statuses or ():
        status = _right(wrong, clock.now_ms())
        if status is None:
            continue
        try:
            subject = bus.subjects.status(*wrong.key)
            await bus.publish(subject, encode(status), expected_subject_seq=wrong.sequence)
        except ConflictError:
            left.append(wrong.key)
    return left


def _right(wrong: WrongStatus, now_ms: int) -> JobStatus | None:
    """What the status must be; of a job that the ledger does not know, that it is over."""
    if wrong.wanted is not None:
        return msgspec.structs.replace(wrong.wanted, at_ms=now_ms)
    stored = wrong.stored
    if stored is None:
        return None
    return JobStatus(
        stored.namespace, stored.name, stored.uid, "cancelled", now_ms, now_ms, stored.attempt, _NO_RECORD,
        queue=stored.queue,
    )  # fmt: skip
