"""Faults in the dispatcher: steps are recorded, time opens turns, and the number of shards does not matter."""

import pytest

from berth.schemas.columns import pack
from berth.schemas.envelope import body_of, encode, open_envelope
from berth.schemas.facts import HealthSource, PodPhase
from berth.schemas.fault_facts import ApprovalSeen, BackupPod, GroupSeen, ReplacementsSeen
from berth.schemas.ledger import Round, Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.recovery import BackupWaiting, Recovery
from berth.services.dispatcher.config import DecisionConfig
from tests.support.cells import Cell, a_job, a_node

PODS_FIRST = {"fault-scheduling": "grace", "pod-rescheduling": "on"}


async def rounds(cell: Cell) -> list[Round]:
    envelopes = [open_envelope(data) for data in await cell.ledger()]
    return [body_of(envelope, Round) for envelope in envelopes if envelope.kind == Round.KIND]


async def steps(cell: Cell) -> list[Recovery]:
    return [step for record in await rounds(cell) for step in record.recoveries]


async def group(cell: Cell, job: str, labels: dict[str, str]) -> None:
    fact = GroupSeen("default", f"pg-{job}", labels=labels, jobs=[job], at_ms=cell.clock.now_ms())
    await cell.user.publish(cell.user.subjects.fact_group("default", f"pg-{job}"), encode(fact))


async def new_pods(cell: Cell, name: str, *ranks: int) -> None:
    fact = ReplacementsSeen("default", name, f"uid-{name}", pack(ranks, 4), cell.clock.now_ms())
    await cell.user.publish(cell.user.subjects.fact_replacement("default", name), encode(fact))


async def a_running_job(shards: int = 0, nodes: str = "ab", *, plan_before_delete: bool = True) -> Cell:
    cell = await Cell(shards=shards, plan_before_delete=plan_before_delete).open()
    await cell.nodes([a_node(name, leaf=name) for name in nodes])
    await cell.submit(a_job("j", chips=8, replicas=2))
    await group(cell, "j", PODS_FIRST)
    await cell.turns(3)
    await cell.pods("j", PodPhase.RUNNING)
    await cell.turns(2)
    return cell


async def lives_through_a_fault(shards: int) -> Cell:
    cell = await a_running_job(shards)
    await cell.health("leaf-b", [NodeCondition("b", unhealthy=1)])
    await cell.turns(2)
    await cell.pods("j", PodPhase.RUNNING, PodPhase.GONE)
    await cell.turns(2)
    await new_pods(cell, "j", 1)
    await cell.turns(2)
    cell.clock.advance(11.9)
    await cell.turns(2)
    await cell.nodes([a_node(name, leaf=name) for name in "abc"])
    await cell.turns(3)
    return cell


@pytest.mark.parametrize("shards", [1, 3, 8])
async def test_shard_counts_write_equal_ledgers(shards: int) -> None:
    cells = [await lives_through_a_fault(count) for count in (0, shards)]
    try:
        told = [[encode(record) for record in await rounds(cell)] for cell in cells]
        assert told[0] == told[1]
        assert [(one.step, one.how, one.ranks) for one in await steps(cells[0])] == [
            (1, "grace", [1]),
            (2, "place", [1]),
        ]
    finally:
        for cell in cells:
            await cell.close()


async def test_time_opens_a_turn() -> None:
    cell = await a_running_job(plan_before_delete=False)
    try:
        await cell.health("leaf-b", [NodeCondition("b", unhealthy=1)])
        await cell.turns(2)
        await cell.pods("j", PodPhase.RUNNING, PodPhase.GONE)
        await new_pods(cell, "j", 1)
        await cell.turns(3)
        stored = len(await cell.ledger())
        assert not cell.dispatcher.has_work
        assert cell.dispatcher.rest_s == cell.config.tick_s
        cell.clock.advance(11.6)
        assert 0.39 < cell.dispatcher.rest_s < 0.41
        await cell.turns(3)
        assert len(await cell.ledger()) == stored, "a turn that decides nothing writes nothing"
        cell.clock.advance(0.5)
        assert cell.dispatcher.has_work
        await cell.turns(1)
        assert [step.scope for step in await steps(cell)] == ["pod", "job"]
        assert cell.dispatcher.scheduler.next_due_ms == 0
    finally:
        await cell.close()


async def test_a_restart_of_the_dispatcher_goes_on_where_it_was() -> None:
    cell = await a_running_job(plan_before_delete=False)
    try:
        await cell.health("leaf-b", [NodeCondition("b", unhealthy=1)])
        await cell.turns(2)
        await cell.pods("j", PodPhase.RUNNING, PodPhase.GONE)
        await new_pods(cell, "j", 1)
        await cell.turns(3)
        cell.clock.advance(6)
        await cell.dispatcher.stop()
        await cell.start_dispatcher()
        await cell.turns(2)
        assert len(await steps(cell)) == 1
        cell.clock.advance(6)
        await cell.turns(2)
        assert [step.scope for step in await steps(cell)] == ["pod", "job"], "the clock did not begin again"
    finally:
        await cell.close()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"escalate_block_ms": 7_000},
            "escalate_block_ms, escalate_superpod_ms, escalate_job_ms are 7000, 6000, 12000",
        ),
        ({"escalate_job_ms": 5_999}, "escalate_block_ms, escalate_superpod_ms, escalate_job_ms are 3000, 6000, 5999"),
    ],
)
def test_steps_that_do_not_follow_one_another_are_refused(fields: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        DecisionConfig(**fields)  # type: ignore[arg-type]  # fields of the settings


async def test_settings_of_faults_are_those_of_the_epoch() -> None:
    found = Cell(fault_wait_ms=7, restarts_at_once=3).config.decisions.to_settings()
    assert (found.fault_wait_ms, found.restarts_at_once) == (7, 3)
    assert Cell().config.decisions.to_settings() == Settings()


async def test_restarts_that_are_held_back_are_in_the_statuses_and_counted() -> None:
    cell = await Cell(restarts_at_once=1, restart_share_percent=20).open()
    await cell.nodes([a_node("a", leaf="a"), a_node("b", leaf="b")])
    for number in range(4):
        await cell.submit(a_job(f"j{number}", chips=1))
        await group(cell, f"j{number}", {"fault-scheduling": "grace"})
    await cell.turns(3)
    for number in range(4):
        await cell.pods(f"j{number}", PodPhase.RUNNING)
    await cell.turns(2)
    broken = [NodeCondition("a", unhealthy=0b1111, sources=HealthSource.DEVICE_PLUGIN)]
    try:
        await cell.health("leaf-a", broken)
        await cell.turns(3)
        assert await steps(cell) == []
        status = await cell.status("j0")
        assert status is not None
        assert status.phase == "running"
        assert "or after `berth faults approve CardUnhealthy --domain leaf-a`" in status.restart_held
        assert status.sentence == status.restart_held
        assert counted(cell) == {"approval": 4, "jobs": 0}
        wish = ApprovalSeen("CardUnhealthy", "leaf-a", cell.clock.now_ms() + 60_000, "ops")
        await cell.user.publish(cell.user.subjects.fact_approval("CardUnhealthy", "leaf-a"), encode(wish))
        await cell.turns(3)
        assert [(step.name, step.scope) for step in await steps(cell)] == [("j0", "job")]
        told = [await cell.status(f"j{number}") for number in range(4)]
        assert [one is not None and one.restart_held.endswith("is placed again") for one in told] == [
            False, True, True, True,
        ]  # fmt: skip
        assert counted(cell) == {"approval": 0, "jobs": 3}
        await cell.health("leaf-a", [NodeCondition("a")])
        await cell.turns(3)
        told = [await cell.status(f"j{number}") for number in range(4)]
        assert [one.restart_held if one is not None else None for one in told] == ["", "", "", ""]
        assert counted(cell) == {"approval": 0, "jobs": 0}
    finally:
        await cell.close()


def counted(cell: Cell) -> dict[str, float | None]:
    """Jobs that are held back, by what they wait for."""
    metrics = cell.instruments.registry.collectors
    name = "berth_dispatcher_held_jobs"
    return {word: metrics.get_sample_value(name, {"waits_for": word}) for word in ("approval", "jobs")}


async def test_the_status_says_why_a_new_pod_has_no_place_until_it_has_one() -> None:
    cell = await a_running_job()
    try:
        await cell.health("leaf-b", [NodeCondition("b", unhealthy=1)])
        await cell.turns(2)
        await cell.pods("j", PodPhase.RUNNING, PodPhase.GONE)
        await cell.turns(2)
        await new_pods(cell, "j", 1)
        await cell.turns(3)
        status = await cell.status("j")
        assert status is not None
        assert status.recovery is not None
        assert status.recovery.unplaced == [1]
        assert status.recovery.refusal
        assert status.sentence.endswith(f"; the new pod of rank 1 waits for a place: {status.recovery.refusal}")
        await cell.nodes([a_node(name, leaf=name) for name in "abc"])
        await cell.turns(3)
        status = await cell.status("j")
        assert status is not None
        assert status.recovery is not None
        assert (status.recovery.unplaced, status.recovery.refusal) == ([], "")
    finally:
        await cell.close()


async def back_up(cell: Cell, **uids: str) -> None:
    """These backup pods exist, by rank."""
    backups = [BackupPod(int(rank[1:]), f"j-{rank}-hot", uid) for rank, uid in sorted(uids.items())]
    fact = ReplacementsSeen("default", "j", "uid-j", at_ms=cell.clock.now_ms(), backups=backups)
    await cell.user.publish(cell.user.subjects.fact_replacement("default", "j"), encode(fact))


async def told(cell: Cell) -> tuple[str, list[BackupWaiting]]:
    """The sentence about the job, and its backup pods without a place."""
    status = await cell.status("j")
    assert status is not None
    return status.sentence, status.backups


async def start_again(cell: Cell) -> None:
    """Another dispatcher takes over from what is stored."""
    await cell.dispatcher.stop()
    await cell.start_dispatcher()


async def test_the_status_says_why_a_backup_pod_has_no_place_until_it_has_one() -> None:
    cell = await a_running_job()
    try:
        await back_up(cell, r1="hot")
        await cell.turns(2)
        words, backups = await told(cell)
        assert [(one.rank, one.uid) for one in backups] == [(1, "hot")]
        assert backups[0].refusal
        assert words == f"the backup pod of rank 1 waits for a place: {backups[0].refusal}"
        await back_up(cell, r1="hot-2")
        await cell.turns(2)
        assert [one.uid for one in (await told(cell))[1]] == ["hot-2"]
        assert (await told(cell))[1][0].refusal == backups[0].refusal
        await cell.nodes([a_node(name, leaf=name) for name in "abc"])
        await cell.turns(3)
        assert await told(cell) == ("", [])
        assert [(one.how, one.backups) for one in await steps(cell)] == [("backup", ["hot-2"])]
    finally:
        await cell.close()


async def test_a_backup_pod_that_goes_is_not_waited_for() -> None:
    cell = await a_running_job()
    try:
        await back_up(cell, r1="hot")
        await cell.turns(2)
        assert (await told(cell))[1]
        await back_up(cell)
        await cell.turns(2)
        assert await told(cell) == ("", [])
    finally:
        await cell.close()


async def test_a_dispatcher_that_takes_over_knows_why_pods_have_no_place_before_it_plans_again() -> None:
    cell = await a_running_job()
    try:
        await cell.health("leaf-b", [NodeCondition("b", unhealthy=1)])
        await cell.turns(2)
        await cell.pods("j", PodPhase.RUNNING, PodPhase.GONE)
        await cell.turns(2)
        await new_pods(cell, "j", 1)
        await cell.turns(3)
        before = await told(cell)
        assert "the new pod of rank 1 waits for a place: " in before[0]
        for _ in range(2):
            await start_again(cell)
            cell.dispatcher.views.all_jobs()
            await cell.dispatcher.views.publish()
            assert await told(cell) == before
        await cell.nodes([a_node(name, leaf=name) for name in "abc"])
        await cell.turns(3)
        status = await cell.status("j")
        assert status is not None
        assert status.recovery is not None
        assert (status.recovery.unplaced, status.recovery.refusal) == ([], "")
    finally:
        await cell.close()
