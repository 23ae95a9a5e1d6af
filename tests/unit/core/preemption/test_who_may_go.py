"""Who may go for a preemptor, what that costs, and why nobody does."""

import pytest

from berth.core.preemption.candidates import lost_by
from berth.core.preemption.model import NoVictims, RunningGang, Terms, VictimSet
from berth.core.queues.charges import Holding
from berth.schemas.intake import Task
from berth.schemas.queues.queue import Queue
from tests.support.cells import a_job, a_node
from tests.support.core_cells import on
from tests.support.preemption_cells import HOUR_MS, PreemptionCell, chips, named

NOW_MS = 10 * HOUR_MS
"""The moment of these cells."""


def two(first: dict[str, object], *queues: Queue, queue: str = "") -> PreemptionCell:
    """A cell with two gangs, one a node; the first one is cheaper, and something is said of it."""
    cell = PreemptionCell([a_node("n0"), a_node("n1")], *queues)
    cell.runs(a_job("first", chips=8, node_selector=on("n0"), queue=queue), **({"start_ms": NOW_MS - 60_000} | first))
    cell.runs(a_job("second", chips=8, node_selector=on("n1"), queue=queue))
    return cell


def test_the_gang_goes_that_loses_least() -> None:
    assert two({}).victims(a_job("p", chips=8, priority=1)) == ["first"]


def test_nobody_goes_for_a_gang_of_the_same_priority() -> None:
    assert two({}).found(a_job("p", chips=8)) == NoVictims("preempt", place="node")


@pytest.mark.parametrize(
    "said",
    [
        {"is_preemptable": False},
        {"is_critical": True},
        {"is_leaving": True, "start_ms": 0},
        {"cooldown_until_ms": NOW_MS + 1},
        {"evicted_ms": (NOW_MS, NOW_MS - 1, NOW_MS - 2, NOW_MS - HOUR_MS + 1)},
        {"budgets": ("default/first",)},
        {"priority": 1},
    ],
    ids=str,
)
def test_another_one_goes_instead(said: dict[str, object]) -> None:
    cell = two(said)
    if "is_leaving" in said:
        cell.taken.append(
            (cell.preemptor(a_job("q", chips=8)).gang, next(iter(cell.state.fold.holdings.values())).placement)
        )
    assert cell.victims(a_job("p", chips=8, priority=2)) == ["second"]


@pytest.mark.parametrize(
    "said",
    [
        {"cooldown_until_ms": NOW_MS},
        {"evicted_ms": (NOW_MS, NOW_MS - 1, NOW_MS - 2, NOW_MS - HOUR_MS)},
        {"evicted_ms": (NOW_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 3)},
    ],
    ids=str,
)
def test_it_goes_once_that_is_over(said: dict[str, object]) -> None:
    assert two(said).victims(a_job("p", chips=8, priority=2)) == ["first"]


def test_minimum_run_times_count_for_the_own_queue_and_for_others_apart() -> None:
    cell = two({"start_ms": NOW_MS - 60_000})
    asked = a_job("p", chips=8, priority=2)
    assert cell.victims(asked, Terms(preempt_min_run_s=60)) == ["first"]
    assert cell.victims(asked, Terms(preempt_min_run_s=61)) == ["second"]
    assert cell.victims(asked, Terms(reclaim_min_run_s=61)) == ["first"]
    cell = two({"start_ms": NOW_MS - 60_000}, Queue("a", deserved=chips(8)), Queue("b"), queue="b")
    asked = a_job("p", chips=8, queue="a")
    assert cell.victims(asked, Terms(preempt_min_run_s=61)) == ["first"]
    assert cell.victims(asked, Terms(reclaim_min_run_s=61)) == ["second"]


def test_only_those_that_declare_it_go_where_the_terms_say_so() -> None:
    cell = two({})
    asked = a_job("p", chips=8, priority=2)
    assert cell.victims(asked, Terms(declared_only=True)) == "preempt"
    cell.facts["second"] = {"declares_preemptable": True}
    assert cell.victims(asked, Terms(declared_only=True)) == ["second"]


def test_gangs_of_other_queues_go_for_a_critical_one_and_none_for_one_that_never_preempts() -> None:
    cell = two({}, Queue("a", deserved=chips(0)), Queue("b", deserved=chips(16)), queue="b")
    asked = a_job("p", chips=8, queue="a", priority=2)
    assert cell.victims(asked) == "preempt"
    assert cell.victims(asked, is_critical=True) == ["first"]
    assert two({}).victims(a_job("p", chips=8, priority=2), is_never=True) == "never"


def test_evictions_of_the_last_hour_are_told_where_they_are_the_only_reason() -> None:
    cell = two({"evicted_ms": (NOW_MS,) * 5})
    cell.facts["second"] = {"is_preemptable": False}
    assert cell.found(a_job("p", chips=8, priority=2)) == NoVictims("evictions-exhausted", 1, 8, evictions=5)
    assert cell.found(a_job("p", chips=8, replicas=2, priority=2)) == NoVictims("preempt", place="cell")


def test_a_queue_loses_no_more_gangs_in_an_hour_than_the_terms_say() -> None:
    cell = two({}, Queue("a", deserved=chips(16)), Queue("b"), queue="b")
    cell.queue_evictions["b"] = 2
    one, both = a_job("p", chips=8, queue="a"), a_job("p", chips=8, replicas=2, queue="a")
    assert cell.victims(both, Terms(queue_evictions_per_hour=4)) == ["first", "second"]
    assert cell.victims(both, Terms(queue_evictions_per_hour=3)) == "preempt", "one of them alone makes no room"
    assert cell.victims(one, Terms(queue_evictions_per_hour=3)) == ["first"]
    assert cell.victims(one, Terms(queue_evictions_per_hour=2)) == "evictions-exhausted"


@pytest.mark.parametrize(
    ("start_s", "checkpoint_s", "lost_s"),
    [
        (600, 0, 600),
        (7_200, 0, 3_600),
        (7_200, 60, 60),
        (600, 601, 600),
        (600, -1, 600),
        (200_000, 86_400, 86_400),
        (200_000, 86_401, 3_600),
    ],
    ids=["since its start", "silent", "declared", "before its start", "in the future", "just trusted", "too old"],
)
def test_what_is_lost_follows_from_the_last_checkpoint(start_s: int, checkpoint_s: int, lost_s: int) -> None:
    checkpoint_ms = NOW_MS * 10 - checkpoint_s * 1_000 if checkpoint_s else 0
    gang = RunningGang(Holding("u", "", {}), 1, 8, NOW_MS * 10 - start_s * 1_000, checkpoint_ms=checkpoint_ms)
    assert lost_by(gang, 8, Terms(), NOW_MS * 10) == 8 * (lost_s + 300)


def test_a_higher_level_is_dearer_whatever_is_lost_below() -> None:
    cell = two({"start_ms": NOW_MS - 1})
    cell.facts["first"] |= {"priority": 1}  # type: ignore[operator]  # a dict
    assert cell.victims(a_job("p", chips=8, priority=2)) == ["second"]
    cell = PreemptionCell(
        [a_node("n0"), a_node("n1")], Queue("a", deserved=chips(16)), Queue("b", priority=1), Queue("c")
    )
    cell.runs(a_job("dear", chips=8, queue="b", node_selector=on("n0")), start_ms=NOW_MS - 1)
    cell.runs(a_job("cheap", chips=8, queue="c", node_selector=on("n1")))
    assert cell.victims(a_job("p", chips=8, queue="a")) == ["cheap"]


def test_numbers_of_the_queues_come_with_the_victims() -> None:
    cell = two({}, Queue("a", deserved=chips(8)), Queue("b", deserved=chips(8)), queue="b")
    found = cell.found(a_job("p", chips=8, queue="a"))
    assert isinstance(found, VictimSet)
    assert [tuple(one)[:1] + tuple(one)[2:] for one in found.standings] == [("a", 0, 800), ("b", 1600, 800)]
    assert (found.place.kind, found.place.name, named(found)) == ("node", "n1", ["second"])
    assert found.victims[0].is_reclaimed


def test_a_gang_goes_from_wherever_it_is_if_only_the_limit_of_the_queue_binds() -> None:
    cell = PreemptionCell([a_node("n0"), a_node("n1")], Queue("a", capability=chips(8)), Queue("b"))
    cell.runs(a_job("x", chips=8, queue="a"))
    assert cell.found(a_job("p", chips=8, queue="a")) == NoVictims("preempt", place="node")
    assert cell.victims(a_job("p", chips=8, queue="a", priority=1)) == ["x"]


def test_pods_without_chips_go_for_their_cpu() -> None:
    cell = PreemptionCell([a_node("n0", cpu_milli=4_000)])
    cell.runs(a_job("web", tasks=[Task("w", 1, 0, 3_000)]))
    cell.runs(a_job("small", tasks=[Task("w", 1, 4, 1_000)]))
    assert cell.victims(a_job("p", tasks=[Task("w", 1, 0, 2_000)], priority=1)) == ["web"]
    both = [Task("first", 1, 0, 1_000), Task("second", 1, 8, 2_000)]
    assert cell.victims(a_job("p", tasks=both, priority=1)) == ["small", "web"]


@pytest.mark.parametrize("queue", ["shut", "nowhere", "above"])
def test_nobody_goes_for_a_gang_that_its_queue_does_not_let_in(queue: str) -> None:
    cell = PreemptionCell([a_node("n0")], Queue("shut", state="Closed"), Queue("above"), Queue("b", parent="above"))
    cell.runs(a_job("x", chips=8, queue="b"))
    assert cell.victims(a_job("p", chips=8, queue=queue, priority=1)) == "never"


def test_surplus_goes_before_whole_gangs_and_is_not_protected_by_a_cooldown() -> None:
    cell = two({"cooldown_until_ms": NOW_MS + 1, "surplus": ()})
    cell.end("first")
    elastic = a_job("elastic", chips=2, replicas=4, node_selector=on("n0"))
    cell.runs(elastic, cooldown_until_ms=NOW_MS + 1, surplus=(3, 2, 1))
    found = cell.found(a_job("p", chips=4, priority=1))
    assert isinstance(found, VictimSet)
    assert [(victim.uid, victim.ranks) for victim in found.victims] == [("uid-elastic", (3, 2))]
    assert found.victims[0].lost == 4 * (3_600 + 300), "of its own chips alone"
    assert cell.victims(a_job("p", chips=8, priority=1)) == ["second"], "the first rank stays"


def test_ranks_that_a_gang_gives_up_are_taken_and_the_rest_stays_until_the_next_round() -> None:
    cell = PreemptionCell([a_node("n0")], Queue("a", deserved=chips(4)), Queue("b"))
    cell.runs(a_job("elastic", chips=2, replicas=4, queue="b"), surplus=(3, 2, 1))
    search = cell.search()
    first = cell.preemptor(a_job("p0", chips=2, queue="a"))
    found = search.find(first)
    assert isinstance(found, VictimSet)
    assert [victim.ranks for victim in found.victims] == [(3,)]
    search.accept(first, found)
    assert named(search.find(cell.preemptor(a_job("p1", chips=2, queue="a")))) == "preempt"
