"""Skips on a real server: a continuous recording beside a repair, and a stream of skips that is made later."""

import asyncio
import re
from pathlib import Path

import pytest

from berth.core.state.ledger import LedgerFold
from berth.runtime.backups.checks import DamagedError
from berth.runtime.backups.follower import ContinuousRecording
from berth.runtime.backups.merging import merged
from berth.runtime.backups.restore import restore
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Gap, GapReason
from berth.runtime.clock import SystemClock
from berth.runtime.errors import NoStreamError
from berth.runtime.fsck.ledger_repair import find, repair
from berth.runtime.history import state_now
from berth.runtime.ledger_reader import follow_ledger
from berth.schemas.chain import encode_record, stored_digest
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName
from tests.bus.test_backup import delete_all, fact
from tests.bus.test_continuous_recording import fails, following, reach
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(90)
CLOCK = SystemClock()
SETTINGS = Settings(attempts_max=3)


async def folded(bus: NatsBus) -> LedgerFold:
    """The ledger, with what is skipped."""
    return (await state_now(bus, CLOCK)).fold


async def lead(bus: NatsBus) -> int:
    """Begin an epoch; returns its sequence."""
    fold = await folded(bus)
    epoch = Epoch(fold.epoch + 1, fold.base_seq, fold.facts_seq, 1000, "d", SETTINGS)
    return await bus.append(fold.encoded(epoch), expected_seq=fold.head)


async def place(bus: NatsBus, uid: str, known: int, *, chain: bytes = b"") -> int:
    """Append a round of the leader that gives a job the one chip that there is; returns its sequence.

    Args:
        bus: The cell.
        uid: The job.
        known: The last fact that it knew.
        chain: A wrong value of the chain before it.
    """
    fold = await folded(bus)
    verdict = Verdict("ns", uid, uid, 1, placement_of(["n"], [(0,)], [Run(1, 1)], resource="r"))
    record = Round(fold.epoch, fold.base_seq, known, 2000, fold.rounds + 1, verdicts=[verdict])
    data = encode_record(record, chain=chain or fold.chain, sequence=fold.head + 1)
    return await bus.append(data, expected_seq=fold.head)


async def begun(bus: NatsBus) -> None:
    """A cell with an epoch and a job."""
    await lead(bus)
    await place(bus, "first", await fact(bus, 0))


async def repaired(bus: NatsBus) -> None:
    found = await find(bus, CLOCK, by="me")
    assert found.skips
    assert (await repair(bus, CLOCK, found, by="me")).skips == []


async def test_a_recording_ends_when_a_record_that_it_has_is_skipped(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    await begun(bus)
    recording = ContinuousRecording(bus, CLOCK, file)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(fails(recording), name="recording")
        await until(lambda: recording.began.is_set() and reach(file)[1] == 2, deadline_s=10, what="what was there")
        await place(bus, "second", await fact(bus, 1))  # the chip of the first job: all services stop at it
        await until(lambda: reach(file)[:2] == (2, 3), deadline_s=10, what="the record that breaks a rule")
        await repaired(bus)
    assert re.search(r"berth repair passes over record 3, which .*rec has: .*begin a new file", running.result())
    assert await fails(ContinuousRecording(bus, CLOCK, file)) == running.result(), "nor is the file continued"
    with pytest.raises(DamagedError, match="record 3 does not fold"), merged(file, None) as source:
        await restore(bus, CLOCK, source, replace=True)
    new = tmp_path / "new"
    async with following(bus, new):
        await lead(bus)
        await until(lambda: reach(new)[1] == 5, deadline_s=10, what="what follows the repair")
    async with following(bus, new):
        await lead(bus)
        await until(lambda: reach(new)[1] == 6, deadline_s=10, what="a file with the skip is continued")
    await delete_all(bus)
    with merged(new, None) as source:
        assert (await restore(bus, CLOCK, source)).state.fold.head == 6


async def test_a_file_is_not_continued_if_one_of_its_records_was_skipped_since(
    real_bus: NatsBus, tmp_path: Path
) -> None:
    bus, file = real_bus, tmp_path / "rec"
    await begun(bus)
    async with following(bus, file):
        await place(bus, "second", await fact(bus, 1))
        await until(lambda: reach(file)[1] == 3, deadline_s=10, what="the record that breaks a rule")
    before = file.read_bytes()
    other = Skip(3, 3, stored_digest(b"of another stream of this name"))
    await bus.publish(bus.subjects.skip(3), encode(other))
    async with following(bus, file):
        pass
    assert reach(file) == (2, 3, True)
    await repaired(bus)
    assert "berth repair passes over record 3" in await fails(ContinuousRecording(bus, CLOCK, file))
    assert file.read_bytes() == before, "it is left as it was"


async def test_a_file_that_ends_with_a_void_message_is_continued_if_that_is_skipped(
    real_bus: NatsBus, tmp_path: Path
) -> None:
    bus, file = real_bus, tmp_path / "rec"
    await begun(bus)
    void = b"\xff no message"
    await bus.append(void, expected_seq=2)
    async with following(bus, file):
        await until(lambda: reach(file)[1] == 3, deadline_s=10, what="what was there")
    await lead(bus)
    await bus.publish(bus.subjects.skip(3), encode(Skip(3, 3, stored_digest(void), was_void=True)))
    async with following(bus, file):
        await until(lambda: reach(file)[1] == 4, deadline_s=10, what="what came meanwhile")


async def test_a_file_whose_last_records_do_not_count_is_not_restored(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    await begun(bus)
    async with following(bus, file):
        await place(bus, "second", 1, chain=bytes(16))
        await until(lambda: reach(file)[1] == 3, deadline_s=10, what="all of it")
    before = (await bus.state(StreamName.LEDGER)).created
    with (
        pytest.raises(DamagedError, match=r"chain values of the records from 3 on are not right.*nothing was changed"),
        merged(file, None) as source,
    ):
        await restore(bus, CLOCK, source, replace=True)
    assert (await bus.state(StreamName.LEDGER)).created == before


async def test_skips_of_a_stream_that_is_made_later_are_seen(real_bus: NatsBus) -> None:
    """Release 0.4 makes no such stream; a process of this release that starts later makes it."""
    bus = real_bus
    await begun(bus)
    await bus.delete_stream(StreamName.SKIPS)
    with pytest.raises(NoStreamError):
        await bus.state(StreamName.SKIPS)
    gaps: list[Gap] = []
    follower = await follow_ledger(
        bus, await bus.state(StreamName.LEDGER), on_message=lambda _: None, on_gap=gaps.append, start_seq=1
    )
    await until(lambda: follower.applied == 2, deadline_s=10, what="the ledger")
    await follower.reread_skips(bus)
    await bus.ensure_streams()
    await bus.publish(bus.subjects.skip(2), encode(Skip(2, 2)))
    await until(lambda: bool(gaps), deadline_s=10, what="the end of the reader")
    assert (gaps[0].reason, gaps[0].wanted) == (GapReason.REPAIRED, 2)
    await follower.stop()
