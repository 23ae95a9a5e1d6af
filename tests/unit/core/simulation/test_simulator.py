"""Simulations: times worked out by hand, what is rejected, what the course says, and that the history replays."""

import msgspec
import pytest

from berth.core.cluster.domains import domains
from berth.core.cluster.node_packing import pack_health
from berth.core.replay.replay import replayed
from berth.core.simulation.planned_cluster import TimedFact
from berth.core.simulation.statistics import OUT, statistics_of
from berth.formats.clusters.cluster_text import read_cluster
from berth.schemas.envelope import encode
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import Settings
from berth.schemas.nodes import NodeCondition
from berth.schemas.recording import BEGINNING
from berth.schemas.subjects import Subjects
from tests.support.simulations import CELL, a_plan, cluster_facts, from_trace, jobs_of, planned, run_of, times_s
from tests.support.traces import trace_lines

FIFO = Settings(queue_policy="fifo")


def test_one_node_jobs_that_fill_it_follow_one_another() -> None:
    _, timeline, _ = run_of(a_plan(planned("a", 0, 100, 8), planned("b", 10, 50, 8), planned("c", 20, 30, 4)))
    assert times_s(timeline) == {"a": (0, 100), "b": (100, 150), "c": (150, 180)}
    found = statistics_of(timeline)
    assert found.wait.mean_ms == (0 + 90 + 130) / 3 * 1000
    assert found.completion.mean_ms == (100 + 140 + 160) / 3 * 1000
    assert found.makespan_ms == 180_000
    assert found.is_over


def test_one_node_a_small_job_may_go_before_one_that_finds_no_room() -> None:
    _, timeline, _ = run_of(a_plan(planned("a", 0, 100, 6), planned("b", 10, 10, 8), planned("c", 20, 30, 2)))
    assert times_s(timeline) == {"a": (0, 100), "b": (100, 110), "c": (20, 50)}


def test_one_node_under_fifo_it_may_not() -> None:
    jobs = (planned("a", 0, 100, 6), planned("b", 10, 10, 8), planned("c", 20, 30, 2))
    _, timeline, _ = run_of(a_plan(*jobs, settings=FIFO))
    assert times_s(timeline) == {"a": (0, 100), "b": (100, 110), "c": (110, 140)}


def test_one_node_priority_goes_first_and_jobs_are_taken_back() -> None:
    simulation, timeline, _ = run_of(
        a_plan(
            planned("a", 0, 60, 8),
            planned("low", 1, 20, 8),
            planned("high", 2, 500, 8, priority=5, cancel_s=70),
            planned("back", 3, 10, 8, cancel_s=30),
            planned("at-once", 200, 0, 8),
        )
    )
    assert times_s(timeline) == {
        "a": (0, 60),
        "high": (60, 70),
        "low": (70, 90),
        "back": (-1, -1),
        "at-once": (200, 200),
    }
    jobs = jobs_of(timeline)
    assert (jobs["back"].left_ms, jobs["back"].refused) == (30_000, "")
    assert simulation.rejected == []
    assert statistics_of(timeline).taken_back == 1


def test_what_ends_and_comes_at_one_moment_is_known_before_the_round_of_that_moment() -> None:
    _, timeline, _ = run_of(
        a_plan(planned("a", 0, 10, 8), planned("b", 10, 10, 8), planned("c", 10, 10, 8, priority=1))
    )
    assert times_s(timeline) == {"a": (0, 10), "c": (10, 20), "b": (20, 30)}


def test_a_job_larger_than_the_cluster_is_turned_away_and_the_rest_goes_on() -> None:
    for settings in (Settings(), FIFO):
        jobs = (planned("a", 0, 10, 8), planned("huge", 1, 10, 8, pods=3), planned("b", 2, 10, 8))
        simulation, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=2", settings=settings))
        assert times_s(timeline) == {"a": (0, 10), "huge": (-1, -1), "b": (2, 12)}
        away = simulation.rejected
        assert [(job.name, job.chips, job.pods, job.code) for job in away] == [("huge", 24, 3, "larger-than-cluster")]
        assert "24 chips" in away[0].expected
        assert "16 in all" in away[0].expected
        assert (jobs_of(timeline)["huge"].refused, jobs_of(timeline)["huge"].left_ms) == ("larger-than-cluster", 1000)


@pytest.mark.parametrize("settings", [Settings(), FIFO], ids=["skip", "fifo"])
def test_jobs_larger_than_the_cluster_run_once_it_has_grown(settings: Settings) -> None:
    """Only the first of two equal jobs is tried when the node comes; it runs, and the other one after it."""
    later = [fact._replace(at_ms=50_000) for fact in cluster_facts("nodes=2,leaf=1")]
    jobs = (planned("first", 1, 10, 8, pods=2), planned("second", 2, 10, 8, pods=2), planned("a", 0, 70, 8))
    simulation, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=1,leaf=1", settings=settings, later=later))
    assert times_s(timeline) == {"a": (0, 70), "first": (70, 80), "second": (80, 90)}
    assert simulation.rejected == []


def test_a_job_larger_than_the_cluster_runs_once_more_nodes_have_come() -> None:
    more = [fact._replace(at_ms=5_000) for fact in cluster_facts("nodes=3")]
    jobs = (planned("huge", 1, 10, 8, pods=3), planned("next", 30, 10, 8))
    simulation, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=2", later=more))
    assert times_s(timeline) == {"huge": (5, 15), "next": (30, 40)}
    assert simulation.rejected == []


def test_a_job_that_an_empty_cluster_cannot_take_is_turned_away_once_nothing_runs() -> None:
    for settings in (Settings(), FIFO):
        jobs = (planned("a", 0, 10, 8), planned("wide", 1, 10, 1, pods=3, switch=True), planned("b", 30, 10, 8))
        simulation, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=2,leaf=2", settings=settings))
        assert times_s(timeline) == {"a": (0, 10), "wide": (-1, -1), "b": (30, 40)}
        assert jobs_of(timeline)["wide"].left_ms == 10_000
        assert [job.name for job in simulation.rejected] == ["wide"]


def test_a_request_that_is_wrong_is_turned_away_when_it_comes() -> None:
    simulation, timeline, _ = run_of(a_plan(planned("a", 0, 10, 9), planned("b", 0, 10, 8)))
    assert [(job.name, job.code, job.field) for job in simulation.rejected] == [
        ("a", "invalid-request", "tasks[0].chips")
    ]
    assert jobs_of(timeline)["a"].refused == "invalid-request"
    assert times_s(timeline)["b"] == (0, 10)


def test_nodes_that_fail_take_no_work_until_they_are_well_again() -> None:
    def health(at_s: int, level: NodeHealth) -> TimedFact:
        fact = pack_health(domain, [NodeCondition("node-00", level=level)], at_ms=at_s * 1000)
        return TimedFact(at_s * 1000, Subjects(CELL).fact_health(domain), encode(fact))

    (domain,) = domains(read_cluster("nodes=1,leaf=1").nodes)
    later = [health(5, NodeHealth.NO_NEW_WORK), health(50, NodeHealth.OK)]
    jobs = (planned("a", 0, 20, 8), planned("b", 6, 20, 8))
    _, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=1,leaf=1", later=later))
    assert times_s(timeline) == {"a": (0, 20), "b": (50, 70)}
    at = {moment.at_ms: moment for moment in timeline.moments}
    assert at[20_000].blocked == {"constraint": 8}
    assert {frame.used[0] for frame in timeline.frames if 5_000 <= frame.at_ms < 50_000} == {OUT}


def test_with_nodes_for_all_nobody_waits() -> None:
    lines = ["at_s,run_s,chips", *(f"{number},{100 + number},{1 + number % 32}" for number in range(60))]
    _, timeline, _ = run_of(from_trace(lines, "nodes=300,leaf=16"))
    assert {job.placed_ms - job.asked_ms for job in timeline.jobs} == {0}
    assert {job.ended_ms - job.placed_ms for job in timeline.jobs} == {(100 + number) * 1000 for number in range(60)}


def test_a_real_trace_on_unlimited_nodes_waits_for_nothing() -> None:
    _, timeline, _ = run_of(from_trace(trace_lines("kalos"), "nodes=5000,leaf=128"))
    found = statistics_of(timeline)
    assert (found.placed, found.wait.max_ms) == (319, 0)


def test_a_real_trace_waits_as_a_simulator_of_others_says() -> None:
    """Orientation from another program: a mean of 15,137 s, every job on as few leaves as possible."""
    _, timeline, _ = run_of(from_trace(trace_lines("kalos"), "nodes=302,leaf=16", compress=8))
    found = statistics_of(timeline)
    assert found.wait.mean_ms / 1000 == pytest.approx(15_137, rel=0.05)
    assert found.leaf_span.ratio_mean < 1.05


def test_the_course_says_how_wide_jobs_lie_and_what_blocks_the_first() -> None:
    _, timeline, _ = run_of(
        a_plan(
            planned("two", 0, 100, 8, pods=2, switch=True),
            planned("one", 0, 100, 6),
            planned("wants-two", 10, 10, 8, pods=2),
            cluster="nodes=4,leaf=2,superpod=4",
        )
    )
    job = jobs_of(timeline)["two"]
    assert (job.nodes, job.leaves, job.leaves_least, job.superpods, job.superpods_least) == (2, 1, 1, 1, 1)
    at = {moment.at_ms: moment for moment in timeline.moments}
    assert (at[10_000].chips, at[10_000].used, at[10_000].waiting, at[10_000].waiting_chips) == (32, 22, 1, 16)
    assert at[10_000].blocked == {"partial": 2, "scattered": 8}
    assert at[100_000].blocked == {}
    assert timeline.nodes == ["node-00", "node-01", "node-02", "node-03"]
    assert timeline.leaves == ["leaf-00", "leaf-00", "leaf-01", "leaf-01"]
    assert timeline.node_chips == [8, 8, 8, 8]


def test_frames_lie_evenly_over_the_time_and_are_never_too_many() -> None:
    _, timeline, _ = run_of(a_plan(planned("a", 0, 10, 8), planned("b", 100_000, 1000, 4)))
    gaps = {after.at_ms - before.at_ms for before, after in zip(timeline.frames, timeline.frames[1:], strict=False)}
    assert len(gaps) == 1
    assert 100 <= len(timeline.frames) < 200
    assert timeline.frames[0].used == b"\x08"
    assert timeline.frames[-1].used == b"\x04"


def test_memory_stays_bounded_because_jobs_that_are_over_are_forgotten() -> None:
    simulation, timeline, _ = run_of(a_plan(*(planned(f"j{number}", number, 1, 8) for number in range(50))))
    state = simulation._state
    assert len(timeline.jobs) == 50
    assert (len(state.jobs), len(state.pods), len(state.fold.gangs), len(state.fold.holdings)) == (0, 0, 0, 0)


def test_a_switch_job_that_finds_nodes_but_no_leaves_is_blocked_by_topology() -> None:
    jobs = [planned(f"fill{number}", 0, 100, 8, pods=1, switch=True) for number in range(2)]
    jobs.append(planned("pair", 5, 10, 8, pods=3, switch=True))
    _, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=6,leaf=3"))
    job = jobs_of(timeline)["pair"]
    assert job.leaves == job.leaves_least == 1


@pytest.mark.parametrize("policy", ["fifo", "skip", "easy", "conservative"])
def test_the_history_of_a_simulation_replays_to_the_same_decisions(policy: str) -> None:
    jobs = [
        planned(
            f"j{number}", number, 7 + number * 5 % 40, 8, pods=1 + number % 5, switch=number % 2 == 0, declared_s=20
        )
        for number in range(40)
    ]
    jobs.append(planned("back", 3, 10, 8, pods=2, cancel_s=9))
    settings = Settings(queue_policy=policy, reserve_chips=16)
    simulation, timeline, entries = run_of(a_plan(*jobs, cluster="nodes=6,leaf=3", settings=settings))
    found = replayed(BEGINNING, entries)
    assert found.is_identical
    assert found.rounds == simulation._state.fold.rounds > 40
    assert found.placed == sum(job.placed_ms >= 0 for job in timeline.jobs)


def test_under_the_reference_rules_pods_are_said_to_run() -> None:
    settings = Settings(reference_parity=True)
    jobs = [planned(f"j{number}", number, 10, 8, pods=2, switch=True) for number in range(6)]
    _, timeline, entries = run_of(a_plan(*jobs, cluster="nodes=4,leaf=2", settings=settings))
    assert all(job.ended_ms == job.placed_ms + 10_000 for job in timeline.jobs)
    assert replayed(BEGINNING, entries).is_identical


def test_two_runs_give_the_same_bytes() -> None:
    jobs = [planned(f"j{number}", number // 3, 5 + number % 7, 1 + number % 8) for number in range(50)]
    encoder = msgspec.msgpack.Encoder()
    first, second = (run_of(a_plan(*jobs, cluster="nodes=2")) for _ in range(2))
    assert encoder.encode(first[1]) == encoder.encode(second[1])
    assert first[2] == second[2]
