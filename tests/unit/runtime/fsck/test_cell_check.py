"""What a check of a cell finds, and what it does not: everything on a fake server, with a real dispatcher."""

from collections.abc import AsyncIterator

import msgspec
import pytest

from berth.core.verification.findings import REPAIR, RESTORE
from berth.runtime.fsck.cell_check import CellCheck, check_cell
from berth.runtime.fsck.status_check import SETTLE_S
from berth.schemas.envelope import encode
from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Round, Verdict
from berth.schemas.status import JobSummary, LeaseHeld, SnapshotChunk
from berth.schemas.subjects import StreamName
from tests.support.cells import Cell, a_job
from tests.support.fake_kube import FakeKube
from tests.support.kube_binder import a_node, a_pod
from tests.support.stored_cells import (
    GARBAGE,
    change,
    checked,
    copy_snapshot,
    grown,
    heads,
    placed,
    stream,
    tell,
    told,
)

ALL = {
    "records", "void messages", "skips", "snapshots", "facts", "facts in snapshots", "latest facts", "requests",
    "dead letters", "statuses", "summaries",
}  # fmt: skip
PODS = {"pods on nodes", "chips of pods", "pods that Berth bound", "pods that name a record of this ledger"}


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = await grown("one", "two")
    await placed(made, a_job("three", chips=2))
    yield made
    await made.close()


async def found(cell: Cell) -> list[tuple[str, str, int, int, str]]:
    """Findings: code, where, first and last sequence, command."""
    return [(one.code, one.where, one.sequence, one.last_seq, one.repair) for one in (await checked(cell)).findings]


def counts(result: CellCheck) -> dict[str, int]:
    return {one.what: one.count for one in result.checked}


async def test_nothing_is_found_in_a_cell_that_is_whole(cell: Cell) -> None:
    await cell.pods("one", PodPhase.RUNNING)
    await cell.turns(2)
    result = await checked(cell)
    assert result.findings == []
    assert result.is_clean
    count = counts(result)
    assert set(count) == ALL
    assert count["records"] == result.ledger_seq == cell.dispatcher.state.fold.head
    assert (count["snapshots"], count["statuses"]) == (3, 3)
    assert count["facts"] == result.facts_seq
    assert count["facts in snapshots"] > 0


async def test_a_cell_without_anything_says_that_nothing_was_checked() -> None:
    cell = Cell()
    await cell.user.ensure_streams()
    result = await checked(cell)
    assert (result.findings, result.is_clean) == ([], True)
    assert set(counts(result).values()) == {0}


async def test_pods_on_nodes_are_counted_by_who_bound_them(cell: Cell) -> None:
    kube = FakeKube(clock=cell.clock)
    kube.put("/api/v1/nodes", a_node("n0"))
    written = {"berth__job": "job", "berth__uid": "u", "berth__attempt": "1", "berth__rank": "0"}
    for name, chips, marks in (("ours", 2, written), ("other", 3, {})):
        kube.put("/api/v1/namespaces/ns/pods", a_pod(name, chips=chips, node="n0", **marks))
    kube.put("/api/v1/namespaces/ns/pods", a_pod("waiting"))
    result = await checked(cell, kube)
    count = counts(result)
    assert count.keys() - ALL == PODS
    assert [count[part] for part in sorted(PODS)] == [0, 2, 1, 0]
    assert [one.not_checked for one in result.checked if one.what == "pods that name a record of this ledger"] == [
        "1 were bound by another ledger, or by a release before 0.5"
    ]


# The ledger.


async def test_messages_that_no_leader_wrote_need_nothing(cell: Cell) -> None:
    head = cell.dispatcher.state.fold.head
    await cell.user.append(GARBAGE, expected_seq=head)
    await cell.user.append(GARBAGE, expected_seq=head + 1)
    await cell.turns(1)
    result = await checked(cell)
    assert [(one.code, one.sequence, one.last_seq, one.repair) for one in result.findings] == [
        ("foreign-message", head + 1, head + 2, "")
    ]
    assert result.is_clean
    assert counts(result)["void messages"] == 2


async def test_a_deleted_message_at_which_readers_stop(cell: Cell) -> None:
    await cell.dispatcher.stop()
    head = cell.dispatcher.state.fold.head
    await cell.user.append(GARBAGE, expected_seq=head)
    stream(cell, StreamName.LEDGER).remove(head + 1)
    result = await checked(cell)
    assert [(one.code, one.sequence, one.repair) for one in result.findings] == [("deleted-record", head + 1, REPAIR)]
    assert not result.is_clean
    assert [one.not_checked for one in result.checked if one.what == "statuses"] == [
        "facts or ledger must be repaired first"
    ]


async def test_a_deleted_record_by_which_a_job_was_placed_needs_a_restore(cell: Cell) -> None:
    await cell.dispatcher.stop()
    head = cell.dispatcher.state.fold.head
    stream(cell, StreamName.LEDGER).remove(head)
    result = await checked(cell)
    assert [(one.code, one.sequence, one.repair) for one in result.findings] == [("deleted-record", head, RESTORE)]
    assert "job default/three has a status by record" in result.findings[0].text


async def test_a_record_that_gives_chips_twice(cell: Cell) -> None:
    await cell.dispatcher.stop()
    fold = cell.dispatcher.state.fold
    taken = fold.holdings[min(fold.holdings)].placement
    twice = Round(
        fold.epoch, fold.base_seq, fold.facts_seq, fold.at_ms, fold.rounds + 1,
        verdicts=[Verdict("default", "ghost", "uid-ghost", 1, taken)],
    )  # fmt: skip
    data = fold.encoded(twice)
    await cell.user.append(data, expected_seq=fold.head)
    assert await found(cell) == [("broken-record", "LEDGER", fold.head + 1, fold.head + 1, REPAIR)]


async def test_a_changed_record_that_others_follow(cell: Cell) -> None:
    await placed(cell, a_job("four", chips=2))
    first = heads(cell)[-1] + 1
    last = cell.dispatcher.state.fold.head
    assert first < last
    change(cell, StreamName.LEDGER, first, GARBAGE)
    assert await found(cell) == [
        ("foreign-message", "LEDGER", first, first, ""),
        ("unchained-records", "LEDGER", first + 1, last, RESTORE),
    ]


async def test_a_changed_record_before_a_snapshot_stops_nobody(cell: Cell) -> None:
    at = heads(cell)
    change(cell, StreamName.LEDGER, at[1], GARBAGE)
    result = await checked(cell)
    assert [(one.code, one.where, one.sequence, one.last_seq, one.repair) for one in result.findings] == [
        ("foreign-message", "LEDGER", at[1], at[1], ""),
        ("changed-records", "LEDGER", 1, at[1], ""),
    ]
    assert result.is_clean
    assert counts(result)["records"] == at[0] + cell.dispatcher.state.fold.head - at[1]


async def test_a_message_deleted_before_a_snapshot_stops_nobody(cell: Cell) -> None:
    at = heads(cell)
    stream(cell, StreamName.LEDGER).remove(at[1])
    assert await found(cell) == [("deleted-record", "LEDGER", at[1], at[1], "")]


async def test_records_whose_facts_are_lost(cell: Cell) -> None:
    await cell.dispatcher.stop()
    known = cell.dispatcher.state.fold.facts_seq
    for name in (StreamName.FACTS, StreamName.LATEST):
        cell.server.rewind(cell.user.subjects.stream(name), known - 1)
    head = cell.dispatcher.state.fold.head
    assert await found(cell) == [("record-ahead", "LEDGER", head, head, RESTORE)]


async def test_a_ledger_that_lost_its_end(cell: Cell) -> None:
    await cell.dispatcher.stop()
    at = heads(cell)
    cell.server.rewind(cell.user.subjects.stream(StreamName.LEDGER), at[-1] - 1)
    assert await found(cell) == [("snapshot-ahead", "SNAPSHOT", at[-1], at[-1], RESTORE)]


async def test_a_pruned_ledger_is_read_from_its_oldest_snapshot_on(cell: Cell) -> None:
    at = heads(cell)
    stream(cell, StreamName.LEDGER).purge(at[2], None)
    result = await checked(cell)
    assert result.findings == []
    assert counts(result)["snapshots"] == 2
    assert [one.not_checked for one in result.checked if one.what == "snapshots"] == [
        "the ledger does not reach back to 1 of them"
    ]
    await placed(cell, a_job("four", chips=2))
    stream(cell, StreamName.LEDGER).purge(cell.dispatcher.state.fold.head, None)
    assert [one[:2] for one in await found(cell)] == [("no-start", "LEDGER")]


# Snapshots.


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_snapshot_of_another_history(*, number: int, pruned: bool) -> None:
    cell, other = await grown("one", "two", "three"), await grown("x", "y", "z")
    at = heads(cell)
    assert at == heads(other)
    if pruned:
        stream(cell, StreamName.LEDGER).purge(at[number - 1], None)
    copy_snapshot(other, cell, at[number])
    assert await found(cell) == [("foreign-snapshot", "SNAPSHOT", at[number], at[number], REPAIR)]
    await cell.close()
    await other.close()


async def test_a_snapshot_of_another_history_with_which_the_ledger_begins() -> None:
    cell, other = await grown("one", "two", "three"), await grown("x", "y", "z")
    at = heads(cell)
    stream(cell, StreamName.LEDGER).purge(at[2], None)
    for old in at[:2]:
        stream(cell, StreamName.SNAPSHOT).purge(None, cell.user.subjects.snapshot_all(old))
    copy_snapshot(other, cell, at[2])
    assert await found(cell) == [("foreign-snapshot", "SNAPSHOT", at[2], at[2], REPAIR)]
    stream(cell, StreamName.SNAPSHOT).purge(None, cell.user.subjects.snapshot_all(at[3]))
    codes = [(one.code, one.repair) for one in (await checked(cell)).findings]
    assert codes == [("foreign-snapshot", RESTORE), ("no-start", RESTORE)]
    await cell.close()
    await other.close()


async def test_a_snapshot_of_another_history_while_the_ledger_is_broken() -> None:
    cell, other = await grown("one", "two", "three"), await grown("x", "y", "z")
    at = heads(cell)
    await cell.dispatcher.stop()
    copy_snapshot(other, cell, at[2])
    head = cell.dispatcher.state.fold.head
    await cell.user.append(GARBAGE, expected_seq=head)
    stream(cell, StreamName.LEDGER).remove(head + 1)
    assert await found(cell) == [
        ("foreign-snapshot", "SNAPSHOT", at[2], at[2], RESTORE),
        ("deleted-record", "LEDGER", head + 1, head + 1, REPAIR),
    ]
    await cell.close()
    await other.close()


async def test_a_damaged_snapshot(cell: Cell) -> None:
    at = heads(cell)
    for sequence, stored in list(stream(cell, StreamName.SNAPSHOT).messages.items()):
        if f".snapshot.{at[1]}.0" in stored.subject:
            change(cell, StreamName.SNAPSHOT, sequence, stored.data[:-1] + b"!")
        if stored.subject.endswith(f".snapshot.{at[0]}.end"):
            stream(cell, StreamName.SNAPSHOT).remove(sequence)
    assert await found(cell) == [
        ("damaged-snapshot", "SNAPSHOT", at[0], at[0], REPAIR),
        ("damaged-snapshot", "SNAPSHOT", at[1], at[1], REPAIR),
    ]


async def test_a_snapshot_that_is_being_written_is_not_damaged(cell: Cell) -> None:
    subject = cell.user.subjects.snapshot_chunk(heads(cell)[-1] + 1, 0)
    await cell.user.publish(subject, encode(SnapshotChunk(b"part")))
    assert await found(cell) == []


# Facts.


async def test_facts_that_nobody_reads_need_nothing(cell: Cell) -> None:
    sequence = await cell.user.publish(cell.user.subjects.fact_node("d"), GARBAGE)
    await cell.turns(1)
    result = await checked(cell)
    assert [(one.code, one.sequence, one.repair) for one in result.findings] == [
        ("unreadable-fact", sequence, ""),
        ("dead-letters", 1, ""),
    ]
    assert "not an envelope" in result.findings[0].text


async def test_facts_that_were_deleted_or_changed(cell: Cell) -> None:
    facts = stream(cell, StreamName.FACTS)
    kept = [one for one in facts.messages.values() if ".job." in one.subject]
    facts.remove(kept[1].sequence)
    change(cell, StreamName.FACTS, kept[0].sequence, kept[2].data)
    codes = [(one.code, one.where, one.sequence, one.repair) for one in (await checked(cell)).findings]
    first, second = kept[0].sequence, kept[1].sequence
    assert set(codes) >= {
        ("deleted-fact", "FACTS", second, RESTORE),
        ("changed-fact", "FACTS", first, RESTORE),
        ("wrong-latest", "LATEST", first, RESTORE),
    }


async def test_a_message_that_the_mirror_lacks(cell: Cell) -> None:
    latest = stream(cell, StreamName.LATEST)
    sequence = next(one.sequence for one in latest.messages.values() if ".job." in one.subject)
    latest.remove(sequence)
    assert await found(cell) == [("wrong-latest", "LATEST", sequence, sequence, RESTORE)]


async def test_what_a_floor_has_passed_is_not_missing(cell: Cell) -> None:
    latest = stream(cell, StreamName.LATEST)
    last = max(one.sequence for one in latest.messages.values() if ".job." in one.subject)
    await cell.user.raise_floor(StreamName.LATEST, last)
    latest.purge(last, None)
    assert await found(cell) == []
    await cell.user.raise_floor(StreamName.LATEST, latest.last_seq + 5)
    assert ("wrong-floor", "LATEST", latest.last_seq + 1, latest.last_seq + 4, RESTORE) in await found(cell)


# Statuses.


async def lead(cell: Cell) -> None:
    """Hold the lease, as the dispatcher of a cell does."""
    await cell.user.publish(cell.user.subjects.lease("dispatcher"), encode(LeaseHeld("someone", 1, 0)))


@pytest.mark.parametrize("is_led", [False, True])
async def test_statuses_that_are_wrong(cell: Cell, *, is_led: bool) -> None:
    if is_led:
        await lead(cell)
    one, two, three = [await told(cell, name) for name in ("one", "two", "three")]
    ahead = await tell(cell, msgspec.structs.replace(one, ledger_seq=one.ledger_seq + 1))
    moved = await tell(cell, msgspec.structs.replace(two, placement=three.placement))
    ghost = await tell(cell, msgspec.structs.replace(two, name="ghost", uid="ghost"))
    broken = await cell.user.publish(cell.user.subjects.status("default", "three"), GARBAGE)
    await tell(cell, msgspec.structs.replace(two, name="past", phase="succeeded"))  # its name is free again
    result = await checked(cell)
    assert {(one.code, one.sequence, one.name, one.repair) for one in result.findings} == {
        ("wrong-status", ahead, "default/one", REPAIR if is_led else ""),
        ("wrong-status", moved, "default/two", REPAIR),
        ("unknown-job", ghost, "default/ghost", REPAIR),
        ("unreadable-status", broken, "default/three", REPAIR),
    }
    assert not result.is_clean


async def test_a_status_that_the_dispatcher_is_about_to_write_is_not_wrong(cell: Cell) -> None:
    await lead(cell)
    await cell.submit(a_job("four", chips=2))
    looks = 0

    async def wait() -> None:
        nonlocal looks
        looks += 1
        cell.clock.advance(1)
        if looks == 3:
            await cell.turns(3)

    await cell.settle()
    stream(cell, StreamName.STATUS).remove(
        stream(cell, StreamName.STATUS).newest[cell.user.subjects.status("default", "one")]
    )
    cell.dispatcher.views.all_jobs()
    result = await check_cell(cell.user, cell.clock, wait=wait)
    assert result.findings == []
    assert 3 <= looks < SETTLE_S
    await cell.close()


async def test_a_status_that_changes_all_the_time_is_not_wrong(cell: Cell) -> None:
    await lead(cell)
    one = await told(cell, "one")
    await tell(cell, msgspec.structs.replace(one, ledger_seq=99))

    async def wait() -> None:
        cell.clock.advance(1)
        await tell(cell, msgspec.structs.replace(one, ledger_seq=99))

    result = await check_cell(cell.user, cell.clock, wait=wait)
    assert result.findings == []
    assert [one.not_checked for one in result.checked if one.what == "statuses"] == ["1 of them changed all the time"]


async def test_summaries_of_which_a_part_is_missing(cell: Cell) -> None:
    subjects = cell.user.subjects
    for chunk in (0, 1):
        whole = JobSummary("default", f"job-summary-one-{chunk}", "one", "uid", chunk, 2, {"a": "b"})
        await cell.user.publish(subjects.summary("default", "uid", chunk), encode(whole))
    assert await found(cell) == []
    part = JobSummary("default", "job-summary-two", "two", "other", 0, 2, {"a": "b"})
    first = await cell.user.publish(subjects.summary("default", "other", 0), encode(part))
    second = await cell.user.publish(subjects.summary("default", "third", 0), GARBAGE)
    assert sorted(await found(cell)) == [
        ("incomplete-summary", "SUMMARY", first, first, ""),
        ("unreadable-summary", "SUMMARY", second, second, ""),
    ]
