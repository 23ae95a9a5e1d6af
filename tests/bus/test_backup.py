"""Backup and restore of a cell on a real server: what is kept, what is refused, and what an interruption leaves.

Longer than 400 lines because all cases share one cell with a history whose beginning was removed.
"""

import asyncio
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from berth.cli.app import call
from berth.core.state.cell import State
from berth.runtime.backups.backup import BackupError, backup
from berth.runtime.backups.checks import DamagedError, check_file
from berth.runtime.backups.restore import RestoreError, restore
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored, StreamState
from berth.runtime.clock import SystemClock
from berth.runtime.fsck.cell_check import check_cell
from berth.runtime.history import state_now
from berth.runtime.logs import DEFAULT_LOG
from berth.runtime.metrics import MetricsRegistry
from berth.runtime.recording import record
from berth.schemas.chain import FIRST, chained
from berth.schemas.envelope import decode, encode, sealed
from berth.schemas.facts import JobSeen, LedgerSeen
from berth.schemas.intake import JobCancel
from berth.schemas.ledger import Epoch, Round, Settings
from berth.schemas.programs.events import JobEvent, event_id
from berth.schemas.programs.replies import Rank
from berth.schemas.status import RESTORE_HOLDER, LeaseHeld, SnapshotChunk, SnapshotEnd
from berth.schemas.subjects import StreamName
from berth.services.api.event_writer import EventWriter
from berth.services.api.metrics import ApiMetrics
from tests.support.chained_records import append

pytestmark = pytest.mark.timeout(90)
SETTINGS = Settings(attempts_max=3)
CLOCK = SystemClock()
KEPT = (StreamName.INTAKE, StreamName.FACTS, StreamName.LATEST, StreamName.LEDGER, StreamName.SNAPSHOT, StreamName.DEAD)


async def decided(bus: NatsBus, known: int) -> int:
    head = (await bus.state(StreamName.LEDGER)).last_seq
    if head == 0:
        return await append(bus, Epoch(1, 0, known, 1000, "d", SETTINGS))
    return await append(bus, Round(1, head, known, 1000 + head, head))


async def fact(bus: NatsBus, number: int) -> int:
    return await bus.publish(bus.subjects.fact_node(f"d{number}"), encode(LedgerSeen("s", number)))


async def snapshot(bus: NatsBus) -> None:
    state = State(keeps=True)
    for one in await bus.read(StreamName.FACTS):
        state.apply_fact(one.subject, one.sequence, one.data)
    for one in await bus.read(StreamName.LEDGER):
        state.apply_record(one.sequence, one.data)
    body, seq = state.dump(), state.fold.head
    await bus.publish(bus.subjects.snapshot_chunk(seq, 0), encode(SnapshotChunk(body)))
    end = SnapshotEnd(seq, state.facts_seq, 1, len(body), zlib.crc32(body))
    await bus.publish(bus.subjects.snapshot_end(seq), encode(end))


@pytest.fixture
async def full(real_bus: NatsBus) -> NatsBus:
    """A cell with a history whose beginning was removed from the ledger."""
    bus = real_bus
    for number in range(20):
        await decided(bus, await fact(bus, number % 7))
        if number == 12:
            await snapshot(bus)
    await bus.purge(StreamName.LEDGER, keep_from_seq=10)
    for number in range(3):
        await bus.publish(bus.subjects.intake_cancel("ns", f"j{number}"), encode(JobCancel("ns", f"j{number}")))
    await bus.publish(bus.subjects.dead(StreamName.FACTS, 3), b"dead")
    await bus.wait_mirror(StreamName.LATEST, at_least=20, timeout_s=20)
    return bus


async def content(bus: NatsBus) -> dict[StreamName, list[tuple[int, str, bytes]]]:
    return {
        name: [(one.sequence, one.subject, one.data) for one in await bus.read(name)]
        for name in KEPT
        if await bus.keeping(name) is not None
    }


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def delete_all(bus: NatsBus) -> None:
    for spec in reversed(bus.subjects.streams()):
        await bus.delete_stream(spec.name)


async def test_a_cell_that_was_deleted_is_as_it_was_before(full: NatsBus, tmp_path: Path) -> None:
    before, stream = await content(full), (await full.state(StreamName.LEDGER)).created
    written = await backup(full, CLOCK, tmp_path / "b")
    assert names_in(tmp_path) == ["b"]
    assert (written.checked.state.fold.head, written.checked.state.facts_seq) == (20, 20)
    await delete_all(full)
    await restore(full, CLOCK, tmp_path / "b")
    assert await content(full) == before
    assert (await full.state(StreamName.LEDGER)).created != stream
    state = await state_now(full, CLOCK)
    assert (state.fold.head, state.facts_seq) == (20, 20)
    assert await decided(full, await fact(full, 1)) == 21
    released = await full.last(StreamName.LEASE, full.subjects.lease("dispatcher"))
    assert released is None or decode(released.data, LeaseHeld).holder == ""
    await full.ensure_streams()


async def test_a_cell_that_is_not_empty_is_left_alone_unless_told(full: NatsBus, tmp_path: Path) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    before = await content(full)
    await decided(full, await fact(full, 5))
    with pytest.raises(RestoreError, match=r"is not empty: .*LEDGER \(21\).*--replace"):
        await restore(full, CLOCK, tmp_path / "b")
    assert (await full.state(StreamName.LEDGER)).last_seq == 21
    await restore(full, CLOCK, tmp_path / "b", replace=True)
    assert await content(full) == before


async def test_a_damaged_or_short_file_changes_nothing(full: NatsBus, tmp_path: Path) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    data = (tmp_path / "b").read_bytes()
    before = await content(full)
    for at in range(0, len(data), max(len(data) // 15, 1)):
        (tmp_path / "bad").write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(DamagedError):
            await restore(full, CLOCK, tmp_path / "bad", replace=True)
        (tmp_path / "bad").write_bytes(data[:at])
        with pytest.raises(DamagedError):
            await restore(full, CLOCK, tmp_path / "bad", replace=True)
    (tmp_path / "bad").write_bytes(data + b"x")
    with pytest.raises(DamagedError, match="something follows"):
        await restore(full, CLOCK, tmp_path / "bad", replace=True)
    assert await content(full) == before


async def test_a_restore_that_was_interrupted_keeps_dispatchers_away_and_is_completed_by_the_next(
    full: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    before = await content(full)
    await delete_all(full)
    calls = 0
    submit = NatsBus.submit_wait

    async def breaks(self: NatsBus, subject: str, data: bytes, *, sequence: int = 0) -> object:
        nonlocal calls
        calls += 1
        if calls > 25:
            raise OSError("killed")
        return await submit(self, subject, data, sequence=sequence)

    monkeypatch.setattr(NatsBus, "submit_wait", breaks)
    with pytest.raises(OSError, match="killed"):
        await restore(full, CLOCK, tmp_path / "b")
    monkeypatch.undo()
    assert await content(full) != before
    held = await full.last(StreamName.LEASE, full.subjects.lease("dispatcher"))
    assert held is not None
    assert decode(held.data, LeaseHeld).holder == RESTORE_HOLDER
    await restore(full, CLOCK, tmp_path / "b")
    assert await content(full) == before


async def test_a_lease_that_a_complete_restore_left_is_no_consent(full: NatsBus, tmp_path: Path) -> None:
    """The power took the release of the lease. A dispatcher has led since, so the restore was complete."""
    await backup(full, CLOCK, tmp_path / "b")
    await restore(full, CLOCK, tmp_path / "b", replace=True)
    ledger = (await full.state(StreamName.LEDGER)).created
    lease = full.subjects.lease("dispatcher")
    await full.publish(lease, encode(LeaseHeld(RESTORE_HOLDER, 0, 1, ledger=ledger, ledger_seq=20)))
    assert await decided(full, await fact(full, 1)) == 21
    with pytest.raises(RestoreError, match=r"is not empty: .*LEDGER \(21\)"):
        await restore(full, CLOCK, tmp_path / "b")
    assert (await full.state(StreamName.LEDGER)).last_seq == 21
    await full.publish(lease, encode(LeaseHeld(RESTORE_HOLDER, 0, 1, ledger=ledger, ledger_seq=21)))
    await restore(full, CLOCK, tmp_path / "b")
    assert (await full.state(StreamName.LEDGER)).last_seq == 20


async def test_a_dispatcher_that_leads_is_not_disturbed(full: NatsBus, tmp_path: Path) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    await full.publish(full.subjects.lease("dispatcher"), encode(LeaseHeld("someone", 1, 1)))
    with pytest.raises(RestoreError, match="dispatcher someone leads"):
        await restore(full, CLOCK, tmp_path / "b", replace=True)


async def test_a_message_of_somebody_else_ends_the_restore(
    full: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    submit = NatsBus.submit_wait

    async def disturbed(self: NatsBus, subject: str, data: bytes, *, sequence: int = 0) -> object:
        if subject.endswith("fact.node.d3"):
            await fact(self, 9)
        return await submit(self, subject, data, sequence=sequence)

    monkeypatch.setattr(NatsBus, "submit_wait", disturbed)
    with pytest.raises(RestoreError, match=r"had sequence \d+ got \d+: something else writes"):
        await restore(full, CLOCK, tmp_path / "b", replace=True)


async def test_a_backup_of_another_cell_is_refused(full: NatsBus, nats_server: str, tmp_path: Path) -> None:
    await backup(full, CLOCK, tmp_path / "b")
    async with await NatsBus.connect(nats_server, "other", name="test", inbox="_INBOX.person.test") as other:
        with pytest.raises(RestoreError, match="is a backup of the cell"):
            await restore(other, CLOCK, tmp_path / "b")
        assert await other.keeping(StreamName.LEDGER) is None


async def test_facts_that_only_the_mirror_still_has_come_back(real_bus: NatsBus, tmp_path: Path) -> None:
    """Facts expire by age, the mirror keeps the newest of each subject. The snapshot is older than the oldest fact."""
    bus = real_bus
    for number in range(6):
        await decided(bus, await fact(bus, number))
    await snapshot(bus)
    for number in range(6, 12):
        await decided(bus, await fact(bus, number))
    await bus.wait_mirror(StreamName.LATEST, at_least=12, timeout_s=10)
    before = {one.subject: one.data for one in await bus.read(StreamName.LATEST)}
    await begin_facts(bus, 11)
    written = await backup(bus, CLOCK, tmp_path / "b")
    assert not written.checked.has_history
    assert written.checked.counts["LATEST"] == 10
    await restore(bus, CLOCK, tmp_path / "b", replace=True)
    assert {one.subject: one.data for one in await bus.read(StreamName.LATEST)} == before
    assert (await bus.state(StreamName.FACTS)).last_seq == 12
    await see_sound(bus)
    state = await state_now(bus, CLOCK)
    assert (state.fold.head, state.facts_seq) == (12, 12)


async def begin_facts(bus: NatsBus, first_seq: int) -> None:
    """Lose the facts before a sequence, as their age does."""
    stored = await bus.read(StreamName.FACTS)
    await bus.delete_stream(StreamName.FACTS)
    await bus.make_stream(StreamName.FACTS, first_seq=first_seq, replicas=1)
    for one in stored:
        if one.sequence >= first_seq:
            await bus.publish(one.subject, one.data)


async def test_old_facts_take_the_sequences_of_others_for_no_reader(real_bus: NatsBus, tmp_path: Path) -> None:
    """The facts of 0 and 1 are older than FACTS; restored they are right before the others, at 9 and 10."""
    bus = real_bus
    for at, number in enumerate((0, 1, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3), start=1):
        await decided(bus, await fact(bus, number))
        if at in {8, 10}:
            await snapshot(bus)
    await bus.wait_mirror(StreamName.LATEST, at_least=12, timeout_s=10)
    latest = {one.subject: one.data for one in await bus.read(StreamName.LATEST)}
    await begin_facts(bus, 11)
    for name in ("b", "again"):
        written = await backup(bus, CLOCK, tmp_path / name)
        assert (written.checked.has_history, written.checked.counts["LATEST"]) == (True, 2)
        await restore(bus, CLOCK, tmp_path / name, replace=True)
        assert {one.subject: one.data for one in await bus.read(StreamName.LATEST)} == latest
        await see_sound(bus)
    recorded = await record(bus, CLOCK, tmp_path / "rec")
    assert recorded.start.facts_seq == 10, "the snapshot before it does not reach the facts that are there"
    await bus.ensure_streams()
    assert [one.sequence for one in await bus.read(StreamName.FACTS)] == [11, 12]


async def see_sound(bus: NatsBus) -> None:
    found = await check_cell(bus, CLOCK)
    assert found.is_clean, found.findings


async def test_what_the_cell_removes_until_it_is_read_is_left_out(
    real_bus: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FACTS and INTAKE are at their limits: their oldest messages go while the ledger is read."""
    bus, state = real_bus, NatsBus.state
    for name in (StreamName.LATEST, StreamName.FACTS, StreamName.INTAKE):
        await bus.delete_stream(name)
    for name in (StreamName.INTAKE, StreamName.FACTS, StreamName.LATEST):
        limit = 0 if name is StreamName.LATEST else 4096
        await bus.make_stream(name, first_seq=1, replicas=1, max_bytes=limit)
    for number in range(60):
        await decided(bus, await fact(bus, number % 9 if number < 50 else 10))
        await bus.publish(bus.subjects.intake_cancel("ns", f"j{number}"), encode(JobCancel("ns", f"j{number}")))
    first = {name: (await bus.state(name)).first_seq for name in (StreamName.FACTS, StreamName.INTAKE)}
    assert min(first.values()) > 1
    await bus.wait_mirror(StreamName.LATEST, at_least=60, timeout_s=20)
    before = {one.subject: one.data for one in await bus.read(StreamName.LATEST)}
    moved = False

    async def moves(self: NatsBus, name: StreamName) -> StreamState:
        nonlocal moved
        if name is StreamName.LEDGER and not moved:
            moved = True
            for number in range(60):
                if number < 5:
                    await fact(self, 10)
                await self.publish(self.subjects.intake_cancel("ns", f"j{number}"), encode(JobCancel("ns", "later")))
        return await state(self, name)

    monkeypatch.setattr(NatsBus, "state", moves)
    checked = (await backup(bus, CLOCK, tmp_path / "b")).checked
    monkeypatch.undo()
    assert moved
    assert checked.stream(StreamName.FACTS).first_seq > first[StreamName.FACTS]
    assert (checked.state.fold.head, checked.state.facts_seq) == (60, 60)
    assert (checked.counts["INTAKE"], checked.stream(StreamName.INTAKE).first_seq) == (0, 61)
    await delete_all(bus)
    await restore(bus, CLOCK, tmp_path / "b")
    assert {one.subject: one.data for one in await bus.read(StreamName.LATEST)} == before
    assert (await state_now(bus, CLOCK)).fold.head == 60
    await see_sound(bus)
    assert await bus.publish(bus.subjects.intake_cancel("ns", "next"), encode(JobCancel("ns", "next"))) == 61


async def test_events_and_summaries_of_the_lost_history_go(full: NatsBus, tmp_path: Path) -> None:
    """An event of the restored history may have the id of a lost one, and another content."""
    subject = full.subjects.event_job("ns", "j")

    async def placed(node: str) -> list[str]:
        writer = EventWriter(full, ApiMetrics(MetricsRegistry()), DEFAULT_LOG)
        event = JobEvent(
            id=event_id("u", 1, 0, "placed"), namespace="ns", name="j", uid="u", attempt=1, step=0, phase="placed",
            at_ms=1, ranks=[Rank(rank=0, node=node, chips=[0])],
        )  # fmt: skip
        await writer.store([event])
        stored = await full.read(StreamName.EVENTS, filters=[subject])
        return [msgspec.json.decode(one.data, type=JobEvent).ranks[0].node for one in stored]

    await backup(full, CLOCK, tmp_path / "b")
    assert await placed("a") == ["a"]
    await full.publish(full.subjects.summary("ns", "u", 0), b"summary")
    await restore(full, CLOCK, tmp_path / "b", replace=True)
    assert await full.read(StreamName.SUMMARY) == []
    assert (await full.state(StreamName.EVENTS)).first_seq == 3, "a kept position must not fit"
    assert await placed("b") == ["b"]
    await full.ensure_streams()


async def test_a_cell_that_has_only_events_is_not_empty(real_bus: NatsBus, tmp_path: Path) -> None:
    await backup(real_bus, CLOCK, tmp_path / "b")
    await real_bus.publish(real_bus.subjects.event_job("ns", "j"), b"{}")
    with pytest.raises(RestoreError, match=r"is not empty: EVENTS \(1\)"):
        await restore(real_bus, CLOCK, tmp_path / "b")


async def test_new_requests_come_after_those_that_have_verdicts(full: NatsBus, tmp_path: Path) -> None:
    verdict = JobSeen("ns", "j2", "u2", "cancelled", intake_seq=3, accepted_seq=3, at_ms=1)
    await full.publish(full.subjects.fact_job("ns", "j2"), encode(verdict))
    written = await backup(full, CLOCK, tmp_path / "b")
    assert written.checked.state.intake_seq == 3
    await restore(full, CLOCK, tmp_path / "b", replace=True)
    assert await full.publish(full.subjects.intake_cancel("ns", "next"), encode(JobCancel("ns", "next"))) == 4


async def test_the_commands_write_and_read(
    full: NatsBus, nats_server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ["--url", nats_server, "--cell", full.subjects.cell]
    file = str(tmp_path / "b")

    async def run(*tokens: str) -> int:
        return await asyncio.to_thread(call, [*tokens, *where])

    assert await run("backup", file) == 0
    assert "up to record 20 and fact 20" in capfd.readouterr().out
    assert await run("backup", file) == 2
    assert await run("restore", file) == 1
    assert "is not empty" in capfd.readouterr().err
    assert await run("restore", file, "--replace", "--json") == 0
    assert '"records_to":20' in capfd.readouterr().out.replace(" ", "")
    (tmp_path / "b").write_bytes(b"BERTHBAK")
    assert await run("restore", file, "--replace") == 1
    assert "nothing was changed" in capfd.readouterr().err
    assert await run("restore", str(tmp_path / "none")) == 2
    assert await run("restore", file, "--replicas", "2") == 2


async def test_snapshots_are_read_one_by_one(
    real_bus: NatsBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus, read = real_bus, NatsBus.read
    for number in range(4):
        await decided(bus, await fact(bus, number))
        await snapshot(bus)
    await bus.publish(bus.subjects.snapshot_chunk(5, 0), encode(SnapshotChunk(b"begun")))
    most = 0

    async def counted(
        self: NatsBus, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()
    ) -> list[Stored]:
        nonlocal most
        found = await read(self, stream, start_seq=start_seq, filters=filters)
        if stream is StreamName.SNAPSHOT:
            most = max(most, sum(not one.subject.endswith("end") for one in found))
        return found

    monkeypatch.setattr(NatsBus, "read", counted)
    written = await backup(bus, CLOCK, tmp_path / "b")
    assert (written.checked.counts["SNAPSHOT"], most) == (8, 1)


async def test_a_cell_whose_last_records_do_not_count_is_not_backed_up(real_bus: NatsBus, tmp_path: Path) -> None:
    bus, digest = real_bus, FIRST

    async def chained_on(before: bytes, message: Epoch | Round) -> bytes:
        head = (await bus.state(StreamName.LEDGER)).last_seq
        envelope = sealed(message)
        chain = chained(before, head + 1, envelope)
        await bus.append(msgspec.structs.replace(envelope, chain=chain).encode(), expected_seq=head)
        return chain

    digest = await chained_on(digest, Epoch(1, 0, 0, 1000, "d", Settings()))
    await chained_on(b"another", Round(1, 1, 0, 1001, 1))
    with pytest.raises(BackupError, match="chain values of the records from 2 on are not right"):
        await backup(bus, CLOCK, tmp_path / "b")
    assert names_in(tmp_path) == []
    await chained_on(digest, Round(1, 2, 0, 1002, 1))
    assert (await backup(bus, CLOCK, tmp_path / "b")).checked.unchained_seq == 0


def test_a_check_reads_the_whole_file(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"")
    with pytest.raises(DamagedError, match="no backup of Berth"):
        check_file(tmp_path / "b")
