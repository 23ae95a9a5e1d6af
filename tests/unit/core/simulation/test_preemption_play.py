"""Jobs that end for others in a simulation: when they train again, and what it cost."""

import msgspec
import pytest

from berth.core.simulation.comparison import rows_of
from berth.core.simulation.fault_plan import FaultPlan
from berth.core.simulation.statistics import FaultFigures, statistics_of
from berth.core.simulation.timeline import Timeline
from berth.schemas.ledger import Settings
from berth.schemas.workload import PlannedJob
from tests.support.simulations import a_plan, fault_plan, jobs_of, planned, run_of, times_s

LOW = planned("low", 0, 7_200, 8)
HIGH = planned("high", 1_800, 600, 8, priority=1)
GONE_S = 1_800 + 30
"""The grace period of pods is 30 s."""
BACK_S = GONE_S + 600
TRAINS_S = BACK_S + 10 + 300
"""A controller makes the pods in 10 s, and training begins 5 minutes later."""


def lived(*jobs: PlannedJob, preempt: int = 2, faults: FaultPlan | None = None) -> tuple[Timeline, FaultFigures]:
    timeline = run_of(a_plan(*jobs, settings=Settings(preempt=preempt), faults=faults))[1]
    figures = statistics_of(timeline).faults
    assert figures is not None
    return timeline, figures


def test_a_job_that_ended_for_another_one_loses_its_work_since_the_checkpoint_and_goes_on_later() -> None:
    timeline, figures = lived(LOW, HIGH)
    assert times_s(timeline) == {"high": (GONE_S, BACK_S), "low": (BACK_S, TRAINS_S + 7_200)}
    assert (figures.ends, figures.interruptions, figures.pods, figures.failures) == (1, 1, 1, {})
    assert figures.ends_chip_h == pytest.approx(8 * (1_800 + TRAINS_S - 1_800) / 3_600)


def test_what_was_saved_is_not_done_again() -> None:
    timeline, figures = lived(LOW, HIGH, faults=FaultPlan(checkpoint_ms=900_000))
    assert times_s(timeline)["low"] == (BACK_S, TRAINS_S + 5_400)
    assert figures.redone_chip_h == 0


def test_nobody_ends_where_preemption_is_off() -> None:
    timeline = run_of(a_plan(LOW, HIGH, settings=Settings(preempt=0)))[1]
    assert times_s(timeline)["high"] == (7_200, 7_800)
    assert timeline.faults is None


def test_failures_are_not_counted_as_ends_for_others() -> None:
    faults = fault_plan("nodes=1", strategy="pods", mtbf_ms=3_600_000, chip=0, node=1, leaf=0, repair_ms=1, seed=1)
    _, figures = lived(planned("low", 0, 72_000, 8), faults=faults)
    assert figures.interruptions > 0
    assert (figures.ends, figures.ends_chip_h) == (0, 0)


def test_the_table_has_the_ends_and_what_they_cost_only_with_preemption() -> None:
    statistics = [statistics_of(run_of(a_plan(LOW, HIGH, settings=Settings(preempt=level)))[1]) for level in (0, 2)]
    rows = {row.metric: row.texts for row in rows_of(statistics) if row.section == "training under failures"}
    assert rows["ends for other jobs"] == ["-", "1"]
    assert rows["lost by ends for other jobs"] == ["-", "6.1"]
    assert "ends for other jobs" not in {row.metric for row in rows_of(statistics[:1])}


def test_a_job_of_one_leaf_switch_counts_there_after_its_return() -> None:
    low = planned("low", 0, 7_200, 8, pods=2, switch=True)
    high = planned("high", 60, 600, 8, pods=2, switch=True, priority=1)
    timeline = run_of(a_plan(low, high, cluster="nodes=2,leaf=2", settings=Settings(preempt=2)))[1]
    assert jobs_of(timeline)["low"].leaves == 1
    assert times_s(timeline)["high"] == (90, 690)


def test_an_elastic_job_trains_on_without_the_pods_that_it_gives_up_until_they_are_back() -> None:
    low = planned("low", 0, 7_200, 8, pods=2)
    low = msgspec.structs.replace(low, request=msgspec.structs.replace(low.request, min_available=1))
    timeline = run_of(a_plan(low, HIGH, cluster="nodes=2", settings=Settings(preempt=2)))[1]
    assert times_s(timeline) == {"low": (0, 9_930), "high": (GONE_S, BACK_S)}
    assert timeline.faults is not None
    stops = [(one.at_ms // 1_000, one.trains_ms // 1_000, one.scope) for one in timeline.faults.interruptions]
    assert stops == [(1_800, GONE_S + 300, "pod"), (BACK_S, BACK_S + 300, "pod")]
