"""Random jobs on clusters that break: no chip has two owners, no job is lost, and time is accounted for."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.replay.replay import replayed
from berth.core.simulation.fault_plan import FaultPlan, Strategy
from berth.core.simulation.simulator import Simulation, SimulationPlan
from berth.core.simulation.statistics import statistics_of
from berth.core.simulation.timeline import Timeline
from berth.core.state.invariants import check
from berth.schemas.envelope import open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.recording import BEGINNING, Entry
from berth.schemas.workload import PlannedJob
from tests.property.test_simulation import CLUSTERS, POLICIES, workloads
from tests.support.simulations import a_plan, fault_plan, run_of

STRATEGIES = st.sampled_from(("pods", "pods-only", "job"))
NEVER_MS = 1 << 50


@st.composite
def fault_plans(draw: st.DrawFn, cluster: str, strategy: Strategy) -> FaultPlan:
    """Failures of all kinds, some while others are repaired, with costs from none to longer than the jobs.

    Nodes work longer than a way back to training takes, or a job on all of them would hardly ever train.
    """
    grace_ms = draw(st.sampled_from((0, 500, 8_000)))
    recreate_ms = draw(st.sampled_from((0, 300, 20_000)))
    repair_ms = draw(st.sampled_from((1, 5_000, 40_000)))
    restart_ms = draw(st.sampled_from((0, 2_000)))
    return fault_plan(
        cluster,
        strategy=strategy,
        mtbf_ms=max(draw(st.sampled_from((15_000, 60_000, 300_000))), 2 * (grace_ms + recreate_ms + repair_ms)),
        repair_ms=repair_ms,
        chip=draw(st.sampled_from((0, 1, 3))),
        node=1,
        leaf=draw(st.sampled_from((0, 1))),
        weibull=draw(st.sampled_from((0.5, 1.0, 2.0))),
        seed=draw(st.integers(0, 1 << 40)),
        checkpoint_ms=draw(st.sampled_from((1, 1_000, 7_000))),
        grace_ms=grace_ms,
        recreate_ms=recreate_ms,
        restart_ms=restart_ms,
        rejoin_ms=draw(st.sampled_from((0, 1_000))),
        has_replica=draw(st.booleans()),
    )


def checked(plan: SimulationPlan) -> tuple[Timeline, list[Entry]]:
    """A run whose state is examined after each record: no chip has two owners, reserved ones included."""
    entries: list[Entry] = []
    pending: list[Simulation] = []

    def add(entry: Entry) -> None:
        entries.append(entry)
        if pending and open_envelope(entry.data).kind == Round.KIND:
            check(pending[0]._state)  # a simulation shows its state to nobody else

    simulation = Simulation(plan, on_entry=add)
    pending.append(simulation)
    return simulation.run(), entries


@settings(max_examples=30)
@given(data=st.data(), jobs=workloads(), policy=POLICIES, strategy=STRATEGIES)
def test_jobs_survive_failures_on_chips_of_their_own_and_the_history_replays(
    data: st.DataObject, jobs: list[PlannedJob], policy: str, strategy: Strategy
) -> None:
    plans_first = data.draw(st.booleans())
    cluster = data.draw(st.sampled_from(CLUSTERS))
    faults = data.draw(fault_plans(cluster, strategy))
    decisions = Settings(queue_policy=policy, reserve_chips=8, plan_before_delete=plans_first)
    plan = a_plan(*jobs, cluster=cluster, settings=decisions, faults=faults)
    timeline, entries = checked(plan)
    assert timeline.faults is not None
    see_accounts(timeline, {job.request.name: job for job in jobs}, faults)
    found = replayed(BEGINNING, entries)
    assert found.is_identical, found.found


def see_accounts(timeline: Timeline, asked: dict[str, PlannedJob], faults: FaultPlan) -> None:
    """Every job came to an end that fits it, and each millisecond of a placed job is in one account."""
    history = timeline.faults
    assert history is not None
    assert sorted(job.name for job in timeline.jobs) == sorted(asked)
    shown = statistics_of(timeline)
    assert (shown.waiting, shown.running) == (0, 0)
    without_training_ms: dict[str, int] = {}
    redone_ms: dict[str, int] = {}
    for one in history.interruptions:
        end_ms = (
            one.trains_ms if one.trains_ms >= 0 else next(job for job in history.jobs if job.name == one.name).end_ms
        )
        assert one.is_cancelled == (one.trains_ms < 0)
        assert end_ms >= one.at_ms
        assert one.redone_ms < faults.checkpoint_ms
        without_training_ms[one.name] = without_training_ms.get(one.name, 0) + end_ms - one.at_ms
        redone_ms[one.name] = redone_ms.get(one.name, 0) + one.redone_ms
    for job in history.jobs:
        planned = asked[job.name]
        assert job.redone_ms == redone_ms.get(job.name, 0)
        passed_ms = job.productive_ms + job.redone_ms + without_training_ms.get(job.name, 0)
        assert job.end_ms - job.begin_ms == passed_ms
        if job.productive_ms < planned.run_ms:
            assert planned.cancel_ms
            assert job.end_ms >= planned.cancel_ms
    placed = {job.name for job in timeline.jobs if job.placed_ms >= 0}
    assert placed <= {job.name for job in history.jobs}


@settings(max_examples=12)
@given(jobs=workloads(), policy=POLICIES, strategy=STRATEGIES, cluster=st.sampled_from(CLUSTERS))
def test_where_nothing_breaks_in_time_a_run_is_as_without_failures(
    jobs: list[PlannedJob], policy: str, strategy: Strategy, cluster: str
) -> None:
    decisions = Settings(queue_policy=policy, reserve_chips=8)
    without = run_of(a_plan(*jobs, cluster=cluster, settings=decisions))[1]
    faults = fault_plan(cluster, strategy=strategy, mtbf_ms=NEVER_MS)
    decisions = msgspec.structs.replace(decisions)
    found = run_of(a_plan(*jobs, cluster=cluster, settings=decisions, faults=faults))[1]
    assert found.faults is not None
    assert found.faults.interruptions == []
    assert all(job.end_ms - job.begin_ms == job.productive_ms for job in found.faults.jobs)
    assert msgspec.structs.replace(found, faults=None) == without


@settings(max_examples=8)
@given(data=st.data(), jobs=workloads(), strategy=STRATEGIES)
def test_two_runs_with_failures_are_the_same_bytes(
    data: st.DataObject, jobs: list[PlannedJob], strategy: Strategy
) -> None:
    faults = data.draw(fault_plans("nodes=4,leaf=2", strategy))
    plan = a_plan(*jobs, cluster="nodes=4,leaf=2", settings=Settings(), faults=faults)
    first, second = run_of(plan), run_of(plan)
    assert msgspec.msgpack.encode(first[1]) == msgspec.msgpack.encode(second[1])
    assert first[2] == second[2]
