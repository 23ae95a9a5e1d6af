"""Situations that users of other schedulers report, and who goes in them here.

Sources: volcano-sh/volcano 4679, 4817, 4808, 5984, 5994; kubernetes-sigs/kueue 14543; kai-scheduler/KAI-Scheduler 1565,
1750.
"""

import pytest

from berth.core.preemption.model import NoVictims, VictimSet
from berth.core.queues.admission import Ask, minima_of
from berth.schemas.queues.queue import Queue
from tests.support.cells import a_job, a_node
from tests.support.preemption_cells import Contest, PreemptionCell, chips

HALF = "half910x4"
"""Nodes of 4 chips, of which any may be combined."""


def cluster(nodes: int, *queues: Queue) -> PreemptionCell:
    return PreemptionCell([a_node(f"n{number}", leaf="leaf") for number in range(nodes)], *queues)


def test_a_queue_gets_back_what_another_one_borrowed() -> None:
    """Volcano 4679 and 4817: as all that runs counts, the gang is not let in; it has no pods, and nobody goes."""
    cell = cluster(4, Queue("a", deserved=chips(16)), Queue("b", deserved=chips(16)))
    for number in range(4):
        cell.runs(a_job(f"b{number}", chips=8, queue="b"))
    shares = cell.state.queues.shares()
    assert shares is not None
    asks = Ask("a", chips(16), priority=0, may_displace=True)
    assert minima_of(shares, [gang.counted for gang in cell.running()]).refusal(asks) is None
    assert cell.victims(a_job("p", chips=8, replicas=2, queue="a")) == ["b2", "b3"], (
        "the last ones are those who borrow"
    )


@pytest.mark.parametrize(("queue", "priority"), [("a", 5), ("b", 0)], ids=["volcano-5984", "volcano-5994"])
def test_as_few_surplus_pods_go_as_are_needed(queue: str, priority: int) -> None:
    """Volcano evicts all 10 pods beyond the minimum of the gang, where one chip is needed."""
    cell = cluster(2, Queue("a", deserved=chips(4)), Queue("b", deserved=chips(12)))
    cell.runs(a_job("elastic", chips=1, replicas=11, queue="a"), surplus=tuple(range(10, 0, -1)))
    cell.runs(a_job("rest", chips=1, replicas=5, queue="a"), is_preemptable=False)
    found = cell.found(a_job("p", chips=1, queue=queue, priority=priority))
    assert isinstance(found, VictimSet)
    assert [(victim.uid, victim.ranks) for victim in found.victims] == [("uid-elastic", (10,))]


def test_a_gang_at_its_minimum_goes_as_a_whole() -> None:
    """Volcano 4808: the last pods of a gang are never reclaimed, as the gang would be below its minimum."""
    cell = cluster(1, Queue("a", deserved=chips(8)), Queue("b"))
    cell.runs(a_job("last", chips=4, replicas=2, queue="b"))
    found = cell.found(a_job("p", chips=4, queue="a"))
    assert isinstance(found, VictimSet)
    assert [(victim.uid, victim.ranks, victim.chips) for victim in found.victims] == [("uid-last", (), 8)]


def test_what_is_allowed_does_not_depend_on_the_order_in_which_gangs_are_picked() -> None:
    """Kueue 14543: a gang of the own queue is picked, which lets others be picked, and then it is kept after all."""
    cell = cluster(3, Queue("a", deserved=chips(8)), Queue("b", deserved=chips(8)))
    cell.runs(a_job("mine", chips=8, queue="a"), start_ms=0)
    cell.runs(a_job("b0", chips=8, queue="b"))
    cell.runs(a_job("b1", chips=8, queue="b"))
    request = a_job("p", chips=8, queue="a", priority=5)
    assert cell.victims(request) == ["mine"], "b1 is cheaper, but a would hold 16 of 8"
    contest = Contest(cell)
    contest.waiting.append(request)
    assert contest.go_on(10)
    assert contest.evictions == [("p", "mine")]


def test_a_queue_beyond_its_entitlement_reclaims_nothing_and_one_within_as_much_as_it_asks_for() -> None:
    """KAI 1565: a queue beyond its share evicted 376 chips for a request of 48."""
    cell = cluster(64, Queue("over", deserved=chips(64)), Queue("other", deserved=chips(448)), Queue("third"))
    cell.runs(a_job("o0", chips=8, replicas=9, queue="over"))
    for number in range(55):
        cell.runs(a_job(f"t{number:02}", chips=8, queue="third"))
    over = cell.found(a_job("p", chips=8, replicas=6, queue="over"))
    assert over == NoVictims("preempt", gangs=55, chips=440, place="leaf")
    found = cell.found(a_job("q", chips=8, replicas=6, queue="other"))
    assert isinstance(found, VictimSet)
    assert sum(victim.chips for victim in found.victims) == 48


def test_a_protected_queue_keeps_nobody_from_what_a_sibling_borrowed() -> None:
    """KAI 1750: reclaim is given up, because the victims of a protected queue come first."""
    cell = cluster(
        1,
        Queue("org", deserved=chips(6), priority=10),
        Queue("reclaimer", parent="org", deserved=chips(4)),
        Queue("batch", parent="org", deserved=chips(2)),
        Queue("protected", deserved=chips(2)),
    )
    cell.runs(a_job("kept", chips=2, queue="protected"))
    for number in range(3):
        cell.runs(a_job(f"batch{number}", chips=2, queue="batch"))
    assert cell.victims(a_job("p", chips=2, queue="reclaimer")) == ["batch1"], "batch0 is within"


@pytest.mark.parametrize(("keeps_bar", "ends"), [(True, True), (False, False)], ids=["barred", "not barred"])
def test_gangs_that_were_reclaimed_displace_none_beyond_the_entitlement_so_that_it_ends(
    *, keeps_bar: bool, ends: bool
) -> None:
    """Two queues with more entitlement than chips, each with a gang within and a larger one of higher priority."""
    cell = PreemptionCell(
        [a_node(f"n{number}", HALF) for number in range(3)],
        Queue("q", deserved=chips(8)),
        Queue("r", deserved=chips(8)),
        strict_job_shape=False,
    )
    contest = Contest(cell, keeps_bar=keeps_bar)
    for name, queue, pods, priority in (("p", "q", 2, 0), ("h", "q", 3, 5), ("r", "r", 2, 0), ("k", "r", 3, 5)):
        contest.waiting.append(a_job(name, chips=4, replicas=pods, queue=queue, priority=priority, product=HALF))
    assert contest.go_on(40) == ends
    assert not ends or contest.evictions == [("h", "p"), ("r", "h"), ("k", "r"), ("p", "k")]


def test_chips_that_are_freed_in_the_wrong_place_are_no_reason_to_evict() -> None:
    """Half of each ring may go: enough chips for a pod, but no ring."""
    cell = PreemptionCell([a_node("n0", "module910x8")], strict_job_shape=False)
    for name, priority in (("low0", 0), ("high0", 9), ("low1", 0), ("high1", 9)):
        cell.runs(a_job(name, chips=2, priority=priority, product="module910x8"))
    request = a_job("p", chips=4, priority=5, product="module910x8")
    assert cell.found(request) == NoVictims("preempt", gangs=2, chips=4, place="node")
