"""Rivals: which nodes they take, that chips within a node stay Berth's, and that leaf switches play no part."""

import numpy as np
import pytest

from berth.core.changes import ChangesBuilder
from berth.core.simulation.baselines import BASELINES, Baseline, BaselineScorer
from berth.core.simulation.simulator import SimulationPlan
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.offers import Shape
from berth.schemas.recording import Entry
from tests.support.simulations import a_plan, jobs_of, planned, run_of

A_POD = Shape("module910bx8", "huawei.com/Ascend910", 2, 1)


def placed(entries: list[Entry]) -> dict[str, list[str]]:
    """Node of each rank by the name of the job."""
    found = {}
    for entry in entries:
        envelope = open_envelope(entry.data)
        if envelope.kind == Round.KIND:
            for verdict in body_of(envelope, Round).verdicts:
                if verdict.placement is not None:
                    found[verdict.name] = verdict.placement.names()
    return found


def rival_plan(baseline: Baseline | None, *, seed: int = 0) -> SimulationPlan:
    jobs = [
        planned("small", 0, 100, 2),
        planned("two", 1, 100, 4),
        planned("three", 2, 100, 2),
        planned("pair", 3, 100, 8, pods=2, switch=True),
    ]
    return a_plan(*jobs, cluster="nodes=8,leaf=2", baseline=baseline, seed=seed)


def test_first_fit_takes_the_first_nodes_by_name_that_have_room() -> None:
    _, _, entries = run_of(rival_plan("first-fit"))
    assert placed(entries) == {
        "small": ["node-00"],
        "two": ["node-00"],
        "three": ["node-00"],
        "pair": ["node-01", "node-02"],
    }


def test_spread_takes_the_emptiest_nodes() -> None:
    _, timeline, entries = run_of(rival_plan("spread"))
    assert placed(entries) == {
        "small": ["node-00"],
        "two": ["node-01"],
        "three": ["node-02"],
        "pair": ["node-03", "node-04"],
    }
    assert (jobs_of(timeline)["pair"].leaves, jobs_of(timeline)["pair"].leaves_least) == (2, 1)


def test_berth_itself_keeps_a_pair_below_one_leaf() -> None:
    _, timeline, _ = run_of(rival_plan(None))
    assert jobs_of(timeline)["pair"].leaves == 1


def test_random_nodes_follow_from_the_seed() -> None:
    runs = [placed(run_of(rival_plan("random", seed=seed))[2]) for seed in (1, 1, 2, 3, 4)]
    assert runs[0] == runs[1]
    assert len({str(run) for run in runs}) > 2


def test_random_nodes_are_all_taken_about_as_often() -> None:
    jobs = [planned(f"j{number}", number, 1, 8) for number in range(800)]
    _, _, entries = run_of(a_plan(*jobs, cluster="nodes=8", baseline="random", seed=7))
    nodes = [node for nodes in placed(entries).values() for node in nodes]
    counts = [nodes.count(f"node-{number:02}") for number in range(8)]
    assert sum(counts) == 800
    assert all(60 < count < 140 for count in counts)  # 100 each, with a deviation of about 10


@pytest.mark.parametrize("baseline", BASELINES)
def test_one_row_is_scored_as_all_rows_are(baseline: Baseline) -> None:
    simulation, _, _ = run_of(a_plan(planned("a", 0, 10, 6), cluster="nodes=5"))
    state = simulation._state
    state.table.hold(ChangesBuilder(), 2, 0b1111, cpu_milli=0, memory_mib=0)
    state.table.hold(ChangesBuilder(), 3, 0b1111_1111, cpu_milli=0, memory_mib=0)
    scorer = BaselineScorer(state, baseline, seed=5)
    reasons, scores = scorer.evaluate(A_POD)
    one_by_one = [scorer.evaluate_one(A_POD, row, scorer.row_state(row)) for row in range(5)]
    assert one_by_one == list(zip(reasons.tolist(), scores.tolist(), strict=True))
    assert reasons[3]
    assert np.all(scores >= 0)


def test_a_job_that_asks_for_leaves_is_placed_by_rivals_where_there_are_none() -> None:
    jobs = (planned("a", 0, 10, 8, pods=2, switch=True),)
    _, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=2", baseline="first-fit"))
    assert jobs_of(timeline)["a"].placed_ms == 0
    simulation, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=2"))
    assert [job.code for job in simulation.rejected] == ["no-topology"]


def test_the_settings_of_the_queue_hold_for_rivals_too() -> None:
    jobs = (planned("a", 0, 100, 6), planned("b", 10, 10, 8), planned("c", 20, 30, 2))
    for baseline in BASELINES:
        _, timeline, _ = run_of(a_plan(*jobs, settings=Settings(queue_policy="fifo"), baseline=baseline))
        assert jobs_of(timeline)["c"].placed_ms == 110_000
