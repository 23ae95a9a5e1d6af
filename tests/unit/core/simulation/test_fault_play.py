"""One failure at a time, played on small clusters: when a job trains again, and what it has lost."""

from itertools import islice

import msgspec
import pytest

from berth.core.simulation.comparison import rows_of
from berth.core.simulation.failures import BreakableNode, failures
from berth.core.simulation.fault_plan import FaultPlan, Strategy
from berth.core.simulation.statistics import FaultFigures, statistics_of
from berth.core.simulation.timeline import Timeline
from berth.core.simulation.training import NoProgressError, Training
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.facts import OutcomeSeen
from berth.schemas.ledger import Round, Settings
from berth.schemas.workload import PlannedJob
from tests.support.simulations import SECOND_MS, a_plan, fault_plan, planned, run_of

DAY_S = 86_400
COSTS = {
    "checkpoint_ms": 3_600_000,
    "grace_ms": 30_000,
    "recreate_ms": 10_000,
    "restart_ms": 300_000,
    "rejoin_ms": 60_000,
}


def only(cluster: str, node: str, strategy: Strategy, *, from_s: int = 7_200, **numbers: float) -> FaultPlan:
    """A plan in which one node alone can break, first some time after ``from_s`` and within a day.

    Raises:
        AssertionError: No seed has such a failure.
    """
    for seed in range(10_000):
        plan = fault_plan(
            cluster, strategy=strategy, mtbf_ms=DAY_S * SECOND_MS, chip=0, node=1, leaf=0, seed=seed,
            **{"repair_ms": 10 * DAY_S * SECOND_MS, **COSTS, **numbers},
        )  # fmt: skip
        plan = msgspec.structs.replace(plan, nodes=[one for one in plan.nodes if one.name == node])
        first = next(failures(plan.model, plan.nodes))
        if from_s * SECOND_MS < first.at_ms < DAY_S * SECOND_MS:
            return plan
    raise AssertionError("no seed breaks it in time")


def figures_of(job: PlannedJob, cluster: str, faults: FaultPlan) -> tuple[Timeline, FaultFigures]:
    plan = a_plan(job, cluster=cluster, settings=Settings(plan_before_delete=False), faults=faults)
    timeline = run_of(plan)[1]
    figures = statistics_of(timeline).faults
    assert figures is not None
    return timeline, figures


def node_of_rank(cluster: str, job: PlannedJob, rank: int) -> str:
    """Where a rank runs if nothing breaks.

    Raises:
        AssertionError: The job is not placed.
    """
    _, _, entries = run_of(a_plan(job, cluster=cluster))
    for entry in entries:
        envelope = open_envelope(entry.data)
        if envelope.kind == Round.KIND:
            for verdict in body_of(envelope, Round).verdicts:
                if verdict.placement is not None:
                    return verdict.placement.names()[rank]
    raise AssertionError("it is not placed")


JOB = planned("j", 0, 2 * DAY_S, 8, pods=4)


@pytest.mark.parametrize(
    ("strategy", "rank", "scope", "wait_s", "pods"),
    [
        ("pods", 2, "pod", 30 + 10 + 60, 1),
        ("pods", 0, "job", 30 + 10 + 300, 4),  # the master is lost
        ("job", 2, "job", 30 + 10 + 300, 4),
    ],
)
def test_a_broken_node_costs_the_work_since_the_checkpoint_and_the_way_back(
    strategy: Strategy, rank: int, scope: str, wait_s: int, pods: int
) -> None:
    faults = only("nodes=6", node_of_rank("nodes=6", JOB, rank), strategy)
    timeline, figures = figures_of(JOB, "nodes=6", faults)
    at_ms = next(failures(faults.model, faults.nodes)).at_ms
    redone_ms = at_ms % 3_600_000
    assert figures.by_scope == {scope: 1}
    assert figures.pods == pods
    assert figures.restart.p50_ms == wait_s * SECOND_MS
    (job,) = timeline.jobs
    assert job.ended_ms == 2 * DAY_S * SECOND_MS + redone_ms + wait_s * SECOND_MS
    assert figures.ettr == pytest.approx(2 * DAY_S * SECOND_MS / job.ended_ms)
    assert figures.redone_chip_h == pytest.approx(32 * redone_ms / 3_600_000)
    assert figures.stopped_chip_h == pytest.approx(32 * wait_s / 3600)


def test_without_a_spare_node_a_job_waits_for_the_repair() -> None:
    """No place for the new pod, so the whole job leaves after 12 s, and is placed again when the node works."""
    faults = only("nodes=4", node_of_rank("nodes=4", JOB, 2), "pods", repair_ms=7_200_000)
    timeline, figures = figures_of(JOB, "nodes=4", faults)
    assert figures.by_scope == {"job": figures.failures["node"]}
    assert figures.restart.p50_ms == figures.restart.max_ms == 7_200_000 + (10 + 300) * SECOND_MS
    assert timeline.jobs[0].ended_ms > 0


def test_pods_alone_wait_for_the_repair_where_there_is_no_spare_node() -> None:
    """The healthy pods stay for as long as it takes, also those of a job whose rank 0 is lost."""
    for rank in (0, 2):
        faults = only("nodes=4", node_of_rank("nodes=4", JOB, rank), "pods-only", repair_ms=7_200_000)
        timeline, figures = figures_of(JOB, "nodes=4", faults)
        assert figures.by_scope == {"pod": figures.failures["node"]}
        assert figures.pods == figures.failures["node"]
        assert figures.restart.p50_ms == figures.restart.max_ms == 7_200_000 + 60 * SECOND_MS
        assert timeline.jobs[0].ended_ms > 0


@pytest.mark.parametrize("strategy", ["pods", "job"])
def test_jobs_below_a_broken_leaf_switch_restart_elsewhere_and_no_second_source_is_waited_for(
    strategy: Strategy,
) -> None:
    """Two sources report each failure, so that more jobs restart than one report may restart."""
    cluster = "nodes=60,leaf=30"
    jobs = [planned(f"j{number:02}", 0, DAY_S, 8) for number in range(24)]
    day_ms = DAY_S * SECOND_MS

    def of_seed(seed: int) -> FaultPlan:
        return fault_plan(
            cluster, strategy=strategy, mtbf_ms=20 * day_ms, chip=0, node=0, leaf=1, seed=seed,
            repair_ms=day_ms, **COSTS,
        )  # fmt: skip

    def hits_all(faults: FaultPlan) -> bool:
        first = next(failures(faults.model, faults.nodes))
        return first.at_ms < day_ms and first.name == faults.nodes[0].leaf

    faults = next(found for found in map(of_seed, range(1_000)) if hits_all(found))
    plan = a_plan(*jobs, cluster=cluster, settings=Settings(), faults=faults)
    found = statistics_of(run_of(plan)[1]).faults
    assert found is not None
    assert found.by_scope["job"] >= len(jobs)
    assert "none" not in found.by_scope
    assert found.restart.max_ms < day_ms // 2


@pytest.mark.parametrize(("strategy", "is_kept"), [("pods", True), ("pods-only", True), ("job", False)])
def test_with_a_replica_the_work_since_the_checkpoint_is_lost_only_where_all_pods_leave(
    strategy: Strategy, *, is_kept: bool
) -> None:
    faults = only("nodes=6", node_of_rank("nodes=6", JOB, 2), strategy, has_replica=True)
    timeline, figures = figures_of(JOB, "nodes=6", faults)
    redone_ms = next(failures(faults.model, faults.nodes)).at_ms % 3_600_000
    assert redone_ms
    wait_ms = (30 + 10 + (60 if is_kept else 300)) * SECOND_MS
    assert figures.redone_chip_h == pytest.approx(0 if is_kept else 32 * redone_ms / 3_600_000)
    assert timeline.jobs[0].ended_ms == 2 * DAY_S * SECOND_MS + wait_ms + (0 if is_kept else redone_ms)


def test_a_replica_is_gone_once_every_pod_was_replaced_before_the_job_trains_again() -> None:
    """Of two pods first one breaks, and while the new one comes the other does.

    Raises:
        AssertionError: No seed has such failures.
    """
    job = planned("j", 0, 2 * DAY_S, 8, pods=2)
    names = [node_of_rank("nodes=6", job, rank) for rank in (0, 1)]
    costs = {**COSTS, "rejoin_ms": 7_200_000}
    for seed in range(10_000):
        plan = fault_plan(
            "nodes=6", strategy="pods-only", mtbf_ms=DAY_S * SECOND_MS, chip=0, node=1, leaf=0, seed=seed,
            repair_ms=10 * DAY_S * SECOND_MS, has_replica=True, **costs,
        )  # fmt: skip
        plan = msgspec.structs.replace(plan, nodes=[one for one in plan.nodes if one.name in names])
        first, second = islice(failures(plan.model, plan.nodes), 2)
        if (
            first.at_ms % 3_600_000 > 60_000
            and 60_000 < second.at_ms - first.at_ms < 7_200_000
            and first.at_ms < DAY_S * SECOND_MS
        ):
            break
    else:
        raise AssertionError("no seed breaks both in time")
    _, figures = figures_of(job, "nodes=6", plan)
    assert figures.interruptions == 1
    assert figures.pods == 2
    assert figures.redone_chip_h == pytest.approx(16 * (first.at_ms % 3_600_000) / 3_600_000)


def test_a_chip_that_a_job_does_not_use_does_not_stop_it() -> None:
    job = planned("j", 0, DAY_S, 4)
    plan = fault_plan("nodes=1", strategy="pods", mtbf_ms=3_600_000, chip=1, node=0, leaf=0, repair_ms=60_000, **COSTS)
    plan = msgspec.structs.replace(plan, nodes=[BreakableNode(plan.nodes[0].name, 0xF0)])
    _, figures = figures_of(job, "nodes=1", plan)
    assert figures.failures["chip"] > 5
    assert figures.interruptions == 0
    assert figures.ettr == 1.0


def test_rows_of_failures_are_there_only_where_some_were_simulated() -> None:
    without = run_of(a_plan(JOB, cluster="nodes=6"))[1]
    timeline, _ = figures_of(JOB, "nodes=6", only("nodes=6", node_of_rank("nodes=6", JOB, 2), "pods"))

    def metrics(*timelines: Timeline) -> set[str]:
        rows = rows_of([statistics_of(one) for one in timelines])
        return {row.metric for row in rows if row.section == "training under failures"}

    assert metrics(without) == set()
    assert metrics(timeline) >= {
        "effective training time ratio",
        "lost",
        "failures: node",
        "jobs stopped, restarted: pod",
    }


def test_training_is_saved_at_checkpoints_and_a_failure_on_the_way_back_belongs_to_the_same_stop() -> None:
    training = Training("team", "j", chips=8, work_ms=1_000, checkpoint_ms=100, at_ms=50)
    training.start(50)
    training.stop(300)  # 250 done, 200 kept
    assert training.left_ms == 800
    training.widen("pod")
    training.stop(310)
    training.widen("job")
    training.widen("pod")
    training.start(400)
    assert not training.is_done(1_199)
    assert training.is_done(1_200)
    job, stops = training.finished(1_200)
    assert (job.productive_ms, job.redone_ms, job.end_ms - job.begin_ms) == (1_000, 50, 1_150)
    (stop,) = stops
    assert (stop.at_ms, stop.trains_ms, stop.scope, stop.redone_ms) == (300, 400, "job", 50)


def test_work_that_is_kept_is_neither_lost_nor_done_twice() -> None:
    training = Training("team", "j", chips=8, work_ms=1_000, checkpoint_ms=100, at_ms=0)
    training.start(0)
    training.stop(250)
    training.start(300, keeps_work=True)
    assert training.left_ms == 750
    training.stop(390)  # 340 done, the last checkpoint at 300
    training.start(400)
    assert training.left_ms == 700
    job, stops = training.finished(1_100)
    assert (job.productive_ms, job.redone_ms, job.end_ms) == (1_000, 40, 1_100)
    assert [stop.redone_ms for stop in stops] == [0, 40]


def test_a_job_that_never_reaches_a_checkpoint_ends_the_simulation_with_its_name() -> None:
    faults = fault_plan("nodes=1", strategy="pods", mtbf_ms=60_000, chip=0, node=1, leaf=0, repair_ms=1, **COSTS)
    with pytest.raises(
        NoProgressError, match="job team/j was stopped 1000 times in a row before it had trained for the 3600 s"
    ):
        figures_of(planned("j", 0, DAY_S, 8), "nodes=1", faults)


def test_the_outcome_says_that_all_pods_are_bound_again() -> None:
    faults = only("nodes=6", node_of_rank("nodes=6", JOB, 2), "pods")
    plan = a_plan(JOB, cluster="nodes=6", settings=Settings(), faults=faults)
    envelopes = [open_envelope(entry.data) for entry in run_of(plan)[2]]
    outcomes = [body_of(envelope, OutcomeSeen) for envelope in envelopes if envelope.kind == OutcomeSeen.KIND]
    assert [(one.state, one.bound, one.step) for one in outcomes] == [("bound", 3, 1), ("bound", 4, 1)]
