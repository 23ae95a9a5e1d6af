"""What is over leaves LATEST and STATUS, and nothing else does."""

import asyncio
from typing import Any

import msgspec
import pytest

from berth.core.state.over import is_over
from berth.runtime.bus.port import Follower
from berth.runtime.stored_snapshots import snapshot_ends
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import decode, encode
from berth.schemas.facts import JobSeen, MembersSeen, OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.fault_facts import GroupSeen, ReplacementsSeen
from berth.schemas.message import Message
from berth.schemas.status import JobStatus
from berth.schemas.subjects import StreamName
from berth.schemas.usage_facts import NamespaceSeen
from tests.support.cells import Cell, a_job, a_node

DAY_S = 86_400
PASSES = 4
"""One stores again what counts, one raises the floor, one sees that it is settled and purges, one has nothing to do."""


async def a_cell() -> Cell:
    cell = Cell(tombstone_after_ms=1000)
    cell.config = msgspec.structs.replace(cell.config, snapshot_records=10)
    await cell.open()
    await cell.nodes([a_node("a"), a_node("b")])
    return cell


async def over(cell: Cell, *names: str) -> None:
    """Jobs that ran, ended, and gave up their names."""
    for name in names:
        await cell.submit(a_job(name, chips=8))
        await cell.turns(3)
        await cell.pods(name, PodPhase.RUNNING)
        await cell.turns()
        await cell.pods(name, PodPhase.SUCCEEDED)
        await cell.turns(2)
        cell.clock.advance(2)
        await cell.turns(2)
        assert ("default", name) not in cell.dispatcher.state.jobs


async def sweeps(cell: Cell, count: int = PASSES, *, leads: bool = True) -> None:
    for _ in range(count):
        for stream in (StreamName.STATUS, StreamName.LATEST):
            await cell.dispatcher.old_jobs.sweep(stream, lambda: leads)
        await cell.turns(2)


async def aged(cell: Cell, days: int = 9) -> None:
    """Days pass, and the newest snapshots know it."""
    await cell.turns()
    cell.clock.advance(days * DAY_S)
    for _ in range(3):  # a damaged one may make a start use the one before
        await cell.submit(a_job(f"later-{len(await cell.ledger())}", chips=8, node_selector={"no": "node"}))
        await cell.turns(3)
        await cell.dispatcher.snapshots.write()


async def names(cell: Cell, stream: StreamName) -> list[str]:
    root = cell.user.subjects.root
    return [stored.subject.removeprefix(root) for stored in await cell.user.read(stream)]


async def of_job(cell: Cell, name: str) -> list[str]:
    found = [*await names(cell, StreamName.LATEST), *await names(cell, StreamName.STATUS)]
    return [subject for subject in found if subject.rpartition(".")[2] == name]


async def test_what_is_over_goes_after_its_time_and_the_rest_stays() -> None:
    cell = await a_cell()
    await over(cell, "old")
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    await cell.pods("runs", PodPhase.RUNNING)
    await cell.turns(2)
    before = {*await of_job(cell, "runs")}
    assert before == {"fact.job.default.runs", "fact.pod.default.runs", "status.default.runs"}
    await sweeps(cell)
    assert await of_job(cell, "old") == ["fact.pod.default.old", "fact.job.default.old", "status.default.old"]
    await aged(cell)
    await sweeps(cell)
    assert await of_job(cell, "old") == []
    assert {*await of_job(cell, "runs")} == before
    for stream in (StreamName.LATEST, StreamName.STATUS):
        kept = cell.server.streams[cell.user.subjects.stream(stream)]
        assert kept.floor > 1
        assert min(kept.messages) >= kept.floor, "it was not purged"
    await cell.close()


async def test_a_job_that_was_rejected_gives_up_its_name() -> None:
    cell = await a_cell()
    await cell.submit(a_job("wrong", labels={"tor-affinity": "odd"}))
    await cell.turns(3)
    status = await cell.status("wrong")
    assert status is not None
    assert status.phase == "rejected"
    assert ("default", "wrong") in cell.dispatcher.state.jobs
    cell.clock.advance(2)
    await cell.turns(2)
    assert ("default", "wrong") not in cell.dispatcher.state.jobs
    await cell.close()


async def test_what_is_stored_again_stays_at_the_old_end_until_the_next_pass() -> None:
    cell = await a_cell()
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    await over(cell, "old")
    await aged(cell)
    await cell.dispatcher.old_jobs.sweep(StreamName.STATUS, lambda: True)
    assert "status.default.runs" in await names(cell, StreamName.STATUS)
    assert (await cell.user.state(StreamName.STATUS)).floor == 0
    await cell.close()


async def test_a_stream_is_purged_one_pass_after_its_floor_was_raised() -> None:
    cell = await a_cell()
    await over(cell, "old")
    await aged(cell)
    status = cell.server.streams[cell.user.subjects.stream(StreamName.STATUS)]
    below = []
    for _ in range(4):
        await cell.dispatcher.old_jobs.sweep(StreamName.STATUS, lambda: True)
        below.append((status.floor > 0, min(status.messages) < status.floor))
    assert below == [(True, True), (True, True), (True, False), (True, False)]
    await cell.close()


async def test_a_leader_does_not_remember_statuses_of_jobs_without_names() -> None:
    cell = await a_cell()
    await over(cell, "old")
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    first = cell.dispatcher
    await cell.start_dispatcher()
    await cell.turns(2)
    assert list(cell.dispatcher.views._written) == [("default", "runs")]
    assert await of_job(cell, "old")
    await first.stop()
    await cell.close()


async def test_the_last_message_of_a_stream_stays() -> None:
    cell = await a_cell()
    await over(cell, "first", "last")
    cell.clock.advance(9 * DAY_S)
    await sweeps(cell)
    state = await cell.user.state(StreamName.STATUS)
    assert [stored.sequence for stored in await cell.user.read(StreamName.STATUS)] == [state.last_seq]
    assert 0 < state.floor <= state.last_seq
    await cell.close()


async def test_nothing_that_reappears_below_the_floor_counts() -> None:
    cell = await a_cell()
    await over(cell, "old")
    await aged(cell)
    await sweeps(cell)
    latest = cell.server.streams[cell.user.subjects.stream(StreamName.LATEST)]
    latest.raise_ghosts()
    assert [
        decode(one.data, JobSeen).state for one in latest.messages.values() if one.subject.endswith("job.default.old")
    ] == ["accepted"]
    assert await of_job(cell, "old") == []
    await cell.close()


async def test_a_start_knows_the_same_before_and_after() -> None:
    cell = await a_cell()
    await over(cell, "old", "other")
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    await aged(cell)
    await sweeps(cell)
    first = cell.dispatcher
    await cell.start_dispatcher()
    assert cell.dispatcher.state.jobs == first.state.jobs
    assert cell.dispatcher.state.intake_seq == first.state.intake_seq
    assert cell.dispatcher.state.fold.holdings == first.state.fold.holdings
    await first.stop()
    await cell.close()


async def test_the_verdict_on_the_newest_request_stays() -> None:
    cell = await a_cell()
    await over(cell, "first", "last")
    cell.clock.advance(9 * DAY_S)
    for _ in range(3):
        await cell.dispatcher.snapshots.write()
    await sweeps(cell)
    assert await of_job(cell, "first") == []
    assert "fact.job.default.last" in await of_job(cell, "last")
    await cell.close()


async def test_what_became_of_a_job_is_known_as_long_as_the_cluster_has_its_pods() -> None:
    cell = await a_cell()
    members = MembersSeen("default", "old", "uid-old", rank=pack([0], 4), pods=["p"], pod_uids=["u"], rank_index=[""])
    await cell.user.publish(cell.user.subjects.fact_member("default", "old"), encode(members))
    await over(cell, "old")
    await aged(cell)
    await sweeps(cell)
    assert {*await of_job(cell, "old")} == {"fact.member.default.old", "fact.job.default.old"}
    gone = MembersSeen("default", "old", "uid-old")
    await cell.user.publish(cell.user.subjects.fact_member("default", "old"), encode(gone))
    await aged(cell)
    await sweeps(cell)
    assert await of_job(cell, "old") == []
    await cell.close()


async def test_a_fact_that_the_newest_snapshots_lack_stays() -> None:
    cell = await a_cell()
    await over(cell, "old", "other")
    cell.clock.advance(9 * DAY_S)
    for _ in range(3):  # without a turn, which might write a snapshot
        await cell.dispatcher.old_jobs.sweep(StreamName.LATEST, lambda: True)
    assert "fact.job.default.old" in await of_job(cell, "old")
    newest = (await snapshot_ends(cell.user))[-1]
    await cell.turns()
    assert (await snapshot_ends(cell.user))[-1].facts_seq > newest.facts_seq, "no snapshot was asked for"
    await cell.close()


async def test_a_dispatcher_that_no_longer_leads_forgets_nothing() -> None:
    cell = await a_cell()
    await over(cell, "old")
    await aged(cell)
    await sweeps(cell, leads=False)
    assert "fact.job.default.old" in await of_job(cell, "old")
    for stream in (StreamName.LATEST, StreamName.STATUS):
        assert (await cell.user.state(stream)).floor == 0
    await cell.close()


async def test_a_newer_fact_is_not_overwritten_by_the_one_that_is_stored_again() -> None:
    cell = await a_cell()
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    await cell.pods("runs", PodPhase.RUNNING)
    await aged(cell)
    subject = cell.user.subjects.fact_pod("default", "runs")
    old = await cell.user.last(StreamName.LATEST, subject)
    assert old is not None
    await cell.pods("runs", PodPhase.SUCCEEDED)
    await cell.dispatcher.old_jobs._keep(StreamName.LATEST, old)
    newest = await cell.user.last(StreamName.LATEST, subject)
    assert newest is not None
    assert bytes(decode(newest.data, PodsSeen).phase) == bytes([PodPhase.SUCCEEDED])
    await cell.close()


async def test_a_fact_that_a_restore_put_before_the_first_of_facts_is_stored_again() -> None:
    cell = await a_cell()
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    await cell.pods("runs", PodPhase.RUNNING)
    old = await cell.user.last(StreamName.LATEST, cell.user.subjects.fact_pod("default", "runs"))
    assert old is not None
    cell.server.streams[cell.user.subjects.stream(StreamName.FACTS)].floor = old.sequence + 1
    await cell.dispatcher.old_jobs._keep(StreamName.LATEST, old)
    newest = await cell.user.last(StreamName.LATEST, old.subject)
    assert newest is not None
    assert (newest.sequence > old.sequence, newest.data) == (True, old.data)
    await cell.close()


async def test_a_name_that_is_used_again_is_that_of_the_new_job() -> None:
    cell = await a_cell()
    await over(cell, "name")
    await cell.submit(a_job("name", chips=8, uid="second"))
    await cell.turns(3)
    await aged(cell)
    await sweeps(cell)
    assert cell.dispatcher.state.jobs["default", "name"].uid == "second"
    assert {*await of_job(cell, "name")} >= {"fact.job.default.name", "status.default.name"}
    await cell.close()


def pods(*phases: PodPhase, gang: str = "gone") -> PodsSeen:
    return PodsSeen(
        "default", gang, f"uid-{gang}", 1, rank=pack(range(len(phases)), 4), nodes=pack_names(["a"]),
        node_index=pack([0] * len(phases), 4), phase=bytes(phases), chips=pack([0] * len(phases), 8),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fact", "expected"),
    [
        (pods(), True),
        (pods(PodPhase.SUCCEEDED, PodPhase.GONE), True),
        (pods(PodPhase.SUCCEEDED, PodPhase.RUNNING), False),
        (pods(PodPhase.SUCCEEDED, gang="runs"), False),
        (msgspec.structs.replace(pods(PodPhase.SUCCEEDED), uid="uid-runs"), False),
        (MembersSeen("default", "gone", "u"), True),
        (MembersSeen("default", "gone", "u", pods=["p"]), False),
        (MembersSeen("default", "gone", "u", hold="not complete"), False),
        (ReplacementsSeen("default", "gone", "u"), True),
        (ReplacementsSeen("default", "gone", "u", ranks=pack([0], 4)), False),
        (OutcomeSeen("default", "gone", "u", 1, "bound"), True),
        (OutcomeSeen("default", "runs", "uid-runs", 1, "bound"), False),
        (OutcomeSeen("default", "other-name", "uid-runs", 1, "bound"), False),
        (GroupSeen("default", "g", gone=True), True),
        (GroupSeen("default", "g"), False),
        (NamespaceSeen("default", gone=True), True),
        (NamespaceSeen("default"), False),
    ],
)
async def test_which_facts_are_over(fact: Message, *, expected: bool) -> None:
    cell = await a_cell()
    await cell.submit(a_job("runs", chips=8))
    await cell.turns(3)
    assert is_over(cell.dispatcher.state, encode(fact)) is expected
    await cell.close()


async def test_garbage_is_never_over() -> None:
    cell = await a_cell()
    assert not is_over(cell.dispatcher.state, b"\xc1")
    await cell.close()


class Behind:
    """A follower of a stream that grows as fast as it is read."""

    def __init__(self, follower: Follower) -> None:
        self.caught_up = asyncio.Event()
        self._follower = follower

    async def stop(self) -> None:
        await self._follower.stop()


async def test_a_stream_that_grows_as_fast_as_it_is_read_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    cell, count = await a_cell(), 300
    for number in range(count):
        status = JobStatus("default", f"gone-{number}", "uid", "succeeded", 1, 1)
        await cell.user.publish(cell.user.subjects.status("default", status.name), encode(status))
    cell.clock.advance(9 * DAY_S)
    bus = cell.buses[-1]
    follow = bus.follow

    def behind(stream: StreamName, *, start_seq: int, **how: Any) -> Behind | Follower:  # noqa: ANN401  # of the port
        follower = follow(stream, start_seq=start_seq, **how)
        return Behind(follower) if start_seq == 1 else follower

    monkeypatch.setattr(bus, "follow", behind)
    await cell.dispatcher.old_jobs.sweep(StreamName.STATUS, lambda: True)
    assert (await cell.user.state(StreamName.STATUS)).floor == count, "all but the last one"
    await cell.close()
