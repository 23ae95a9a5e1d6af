"""A recording that grows with its cell, and a restore from it, on a real server."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from berth.runtime.backups.backup import backup
from berth.runtime.backups.checks import DamagedError, check_file
from berth.runtime.backups.follower import ContinuousRecording
from berth.runtime.backups.merging import merged
from berth.runtime.backups.restore import restore
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import StreamState
from berth.runtime.clock import SystemClock
from berth.runtime.errors import FatalError, TransientError
from berth.runtime.history import state_now
from berth.runtime.recording import NoHistoryError, read_file, record
from berth.schemas.chain import stored_digest
from berth.schemas.envelope import encode
from berth.schemas.ledger import Epoch, Round
from berth.schemas.recording import RecordingEnd
from berth.schemas.status import Skip
from berth.schemas.subjects import StreamName
from tests.bus.test_backup import SETTINGS, decided, delete_all, fact, see_sound, snapshot
from tests.support.chained_records import append
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(90)
CLOCK = SystemClock()


@asynccontextmanager
async def following(bus: NatsBus, file: Path) -> AsyncIterator[asyncio.Future[RecordingEnd]]:
    """A recording that grows while the block runs; then it is ended."""
    stop = asyncio.Event()
    recording = ContinuousRecording(bus, CLOCK, file)
    ended: asyncio.Future[RecordingEnd] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        ended.set_result(await recording.run(stop))

    async with asyncio.TaskGroup() as group:
        group.create_task(run(), name="recording")
        await recording.began.wait()
        yield ended
        stop.set()


def reach(file: Path) -> tuple[int, int, bool]:
    """Last fact and record in a file, and whether it is whole."""
    with read_file(file, salvage=True) as reading:
        for _ in reading:
            pass
        return reading.order.facts_seq, reading.order.ledger_seq, reading.damage is None


async def test_a_file_grows_and_is_continued_after_an_end_and_after_a_cut(real_bus: NatsBus, tmp_path: Path) -> None:
    file = tmp_path / "rec"
    await decided(real_bus, await fact(real_bus, 1))
    async with following(real_bus, file) as ended:
        await until(lambda: reach(file)[:2] == (1, 1), deadline_s=10, what="what was there")
        await decided(real_bus, await fact(real_bus, 2))
        await fact(real_bus, 3)  # no record knows it yet
        await until(lambda: reach(file)[:2] == (2, 2), deadline_s=10, what="what came")
        assert not reach(file)[2]
    assert (ended.result().facts_seq, ended.result().ledger_seq) == (2, 2)
    assert reach(file) == (2, 2, True)
    await decided(real_bus, 3)
    async with following(real_bus, file):
        await until(lambda: reach(file)[:2] == (3, 3), deadline_s=10, what="what came meanwhile")
    data = file.read_bytes()
    file.write_bytes(data[:-20])  # killed while it wrote
    assert not reach(file)[2]
    await decided(real_bus, await fact(real_bus, 4))
    async with following(real_bus, file):
        await until(lambda: reach(file)[:2] == (4, 4), deadline_s=10, what="all of it")
    assert reach(file) == (4, 4, True)


async def test_facts_that_no_record_knows_are_left_to_the_cell(
    real_bus: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell with nothing to decide may get facts for days."""
    state = NatsBus.state
    asked = 0

    async def fails_once(self: NatsBus, stream: StreamName) -> StreamState:
        nonlocal asked
        asked += stream is StreamName.LEDGER
        if asked == 4:
            asked += 1
            raise TransientError("the server is away")
        return await state(self, stream)

    file = tmp_path / "rec"
    await decided(real_bus, await fact(real_bus, 1))
    async with following(real_bus, file):
        await until(lambda: reach(file)[:2] == (1, 1), deadline_s=10, what="what was there")
        monkeypatch.setattr(NatsBus, "state", fails_once)
        for number in range(50):
            await fact(real_bus, number)
        await until(lambda: asked > 6, deadline_s=20, what="several looks")
        assert StreamName.FACTS not in {one.stream for one in real_bus.followed}
        monkeypatch.undo()
        await decided(real_bus, 49)
        await until(lambda: reach(file)[:2] == (49, 2), deadline_s=10, what="the record with its facts")
        await decided(real_bus, 51)
        await until(lambda: reach(file)[:2] == (51, 3), deadline_s=10, what="the others")
    assert reach(file) == (51, 3, True)


async def test_facts_that_went_before_a_record_knew_them_end_the_recording(real_bus: NatsBus, tmp_path: Path) -> None:
    await real_bus.delete_stream(StreamName.FACTS)
    await real_bus.make_stream(StreamName.FACTS, first_seq=1, replicas=1, max_bytes=2048)
    await decided(real_bus, await fact(real_bus, 0))
    recording = ContinuousRecording(real_bus, CLOCK, tmp_path / "rec")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(fails(recording), name="recording")
        await until(lambda: recording.began.is_set() and reach(tmp_path / "rec")[1] == 1, deadline_s=10, what="begun")
        for number in range(50):
            await fact(real_bus, number)
        await decided(real_bus, 51)
    assert re.search(r"FACTS 2 is not kept.*begin a new file", running.result())
    assert reach(tmp_path / "rec")[:2] == (1, 1)


async def test_a_cell_is_restored_from_a_backup_and_what_was_recorded_since(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    for number in range(4):
        await decided(bus, await fact(bus, number))
    async with following(bus, file):
        await snapshot(bus)
        await decided(bus, await fact(bus, 4))
        await backup(bus, CLOCK, tmp_path / "b")
        for number in range(3):
            await decided(bus, await fact(bus, 5 + number))
        await until(lambda: reach(file)[:2] == (8, 8), deadline_s=10, what="all of it")
    before = [[one.data for one in await bus.read(name)] for name in (StreamName.FACTS, StreamName.LEDGER)]
    await delete_all(bus)
    with merged(tmp_path / "b", file) as source:
        await restore(bus, CLOCK, source)
    assert [[one.data for one in await bus.read(name)] for name in (StreamName.FACTS, StreamName.LEDGER)] == before
    assert (await state_now(bus, CLOCK)).fold.head == 8
    await delete_all(bus)
    with merged(file, None) as source:
        await restore(bus, CLOCK, source)
    assert [[one.data for one in await bus.read(name)] for name in (StreamName.FACTS, StreamName.LEDGER)] == before
    assert await decided(bus, await fact(bus, 9)) == 9


async def test_a_recording_that_begins_at_a_snapshot_is_enough(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    for number in (0, 0, 1, 1):  # facts 1 and 3 are not in the snapshot
        await decided(bus, await fact(bus, number))
    await snapshot(bus)
    await bus.purge(StreamName.LEDGER, keep_from_seq=3)
    async with following(bus, file):
        await decided(bus, await fact(bus, 4))
        await until(lambda: reach(file)[:2] == (5, 5), deadline_s=10, what="all of it")
    await bus.wait_mirror(StreamName.LATEST, at_least=5, timeout_s=10)
    latest = {one.subject: one.data for one in await bus.read(StreamName.LATEST)}
    await delete_all(bus)
    with merged(file, None) as source:
        checked = await restore(bus, CLOCK, source)
    assert checked.state.fold.head == (await state_now(bus, CLOCK)).fold.head == 5
    assert {one.subject: one.data for one in await bus.read(StreamName.LATEST)}.items() <= latest.items()
    await see_sound(bus)
    assert await decided(bus, await fact(bus, 5)) == 6


async def test_a_file_of_a_cell_that_was_restored_since_is_not_continued(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    await decided(bus, await fact(bus, 0))
    await backup(bus, CLOCK, tmp_path / "b")
    await decided(bus, await fact(bus, 1))
    async with following(bus, file):
        await until(lambda: reach(file)[:2] == (2, 2), deadline_s=10, what="all of it")
    await restore(bus, CLOCK, tmp_path / "b", replace=True)
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(NoHistoryError, match="begin a new file"):
        await ContinuousRecording(bus, CLOCK, file).run(stop)
    await fact(bus, 1)
    await decided(bus, 1)
    with pytest.raises(NoHistoryError, match="another record 2 than the cell has"):
        await ContinuousRecording(bus, CLOCK, file).run(stop)
    assert reach(file) == (2, 2, True)


async def test_a_history_that_breaks_ends_the_recording_with_the_reason(real_bus: NatsBus, tmp_path: Path) -> None:
    await decided(real_bus, await fact(real_bus, 0))
    recording = ContinuousRecording(real_bus, CLOCK, tmp_path / "rec")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(fails(recording), name="recording")
        await until(lambda: recording.began.is_set() and reach(tmp_path / "rec")[1] == 1, deadline_s=10, what="begun")
        await delete_all(real_bus)
        await real_bus.ensure_streams()
    assert "begin a new file" in running.result()


async def fails(recording: ContinuousRecording) -> str:
    """Run a recording that must fail within some time; returns the reason."""
    with pytest.raises(FatalError) as error:
        async with asyncio.timeout(40):
            await recording.run(asyncio.Event())
    return str(error.value)


async def test_a_recording_that_begins_after_the_backup_is_refused(real_bus: NatsBus, tmp_path: Path) -> None:
    bus = real_bus
    await decided(bus, await fact(bus, 0))
    await backup(bus, CLOCK, tmp_path / "b")
    for number in range(4):
        await decided(bus, await fact(bus, number))
    await snapshot(bus)
    await bus.purge(StreamName.LEDGER, keep_from_seq=4)
    async with following(bus, tmp_path / "rec"):
        pass
    with pytest.raises(DamagedError, match="what is between is missing"), merged(tmp_path / "b", tmp_path / "rec"):
        pass


async def test_a_recording_of_a_history_that_was_lost_is_refused(real_bus: NatsBus, tmp_path: Path) -> None:
    """The cell was restored after the recording began, and other facts and records have the sequences now."""
    bus, file = real_bus, tmp_path / "rec"
    for number in range(4):
        await decided(bus, await fact(bus, number))
    await backup(bus, CLOCK, tmp_path / "old")
    async with following(bus, file):
        for number in range(4):
            await decided(bus, await fact(bus, 4 + number))
        await until(lambda: reach(file)[:2] == (8, 8), deadline_s=10, what="all of it")
    with merged(tmp_path / "old", file) as source:
        assert check_file(source).state.fold.head == 8
    await restore(bus, CLOCK, tmp_path / "old", replace=True)
    await fact(bus, 20)
    await backup(bus, CLOCK, tmp_path / "b")
    with pytest.raises(DamagedError, match="another fact 5 than the backup"), merged(tmp_path / "b", file):
        pass
    await append(bus, Round(1, 4, 4, 2000, 4))
    await backup(bus, CLOCK, tmp_path / "b")
    with pytest.raises(DamagedError, match="another record 5 than the backup"), merged(tmp_path / "b", file):
        pass


async def test_a_void_message_that_was_recorded_may_be_skipped_in_the_backup(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    void = encode(Round(1, 7, 1, 2000, 1))  # it follows a record that is not there
    await decided(bus, await fact(bus, 0))
    async with following(bus, file):
        await bus.append(void, expected_seq=1)
        await append(bus, Round(1, 2, 1, 2000, 2))
        await until(lambda: reach(file)[1] == 3, deadline_s=10, what="all of it")
    skip = Skip(2, 2, stored_digest(void), "no record", "somebody", 0, was_void=True)
    await bus.publish(bus.subjects.skip(2), encode(skip))
    await backup(bus, CLOCK, tmp_path / "b")
    with merged(tmp_path / "b", file) as source:
        assert check_file(source).state.fold.head == 3


async def test_a_recording_that_begins_right_after_a_backup_has_its_ledger(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, file = real_bus, tmp_path / "rec"
    for number in range(3):
        await decided(bus, await fact(bus, number))
    await backup(bus, CLOCK, tmp_path / "old")
    await decided(bus, await fact(bus, 3))
    await snapshot(bus)
    await backup(bus, CLOCK, tmp_path / "same")
    await bus.purge(StreamName.LEDGER, keep_from_seq=4)
    async with following(bus, file):
        await decided(bus, await fact(bus, 4))
        await until(lambda: reach(file)[:2] == (5, 5), deadline_s=10, what="all of it")
    with merged(tmp_path / "same", file) as source:
        assert check_file(source).state.fold.head == 5
    await restore(bus, CLOCK, tmp_path / "old", replace=True)
    await fact(bus, 3)
    await append(bus, Epoch(2, 3, 3, 2000, "other", SETTINGS))
    await backup(bus, CLOCK, tmp_path / "b")
    with pytest.raises(DamagedError, match="another record 4 than the backup"), merged(tmp_path / "b", file):
        pass


async def test_the_command_writes_until_it_is_asked_to_end(real_bus: NatsBus, nats_server: str, tmp_path: Path) -> None:
    file = tmp_path / "rec"
    await decided(real_bus, await fact(real_bus, 0))
    words = ["record", str(file), "--follow", "--url", nats_server, "--cell", real_bus.subjects.cell]
    for number in (1, 2):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "berth.cli", *words, stdout=asyncio.subprocess.PIPE
        )
        try:
            await until(lambda: file.exists() and reach(file)[1] == number, deadline_s=20, what="the record")  # noqa: B023  # at once
            process.send_signal(signal.SIGINT)
            out, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0
        assert f"{number} record" in out.decode()
        assert reach(file) == (number, number, True)
        await decided(real_bus, await fact(real_bus, number))


async def test_a_recording_without_names_restores_nothing(real_bus: NatsBus, tmp_path: Path) -> None:
    await decided(real_bus, await fact(real_bus, 0))
    await record(real_bus, CLOCK, tmp_path / "rec", anonymise=True)
    with pytest.raises(DamagedError, match="is anonymous"), merged(tmp_path / "rec", None):
        pass
