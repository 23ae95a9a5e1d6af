"""The choice of a round on nodes that it has touched: ties, gangs that leave nothing behind, ends of offers, shares."""

import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import NeedMoreError
from berth.schemas.facts import JobSeen, NodeHealth
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeDescription
from tests.support.cells import a_job, a_node
from tests.unit.core.scheduling.test_scheduler import Seat
from tests.unit.core.scheduling.test_scheduler_policies import told


def nodes_by_job(seat: Seat) -> dict[str, list[str]]:
    """Nodes of each job that is placed, by rank."""
    return {one.name: one.placement.names() for one in seat.state.fold.holdings.values()}


def on(node: str, name: str, **fields: object) -> JobRequest:
    """A job that takes one node alone."""
    request = a_job(name, **fields)  # type: ignore[arg-type]  # fields of a request
    selector = request.node_selector | {"kubernetes.io/hostname": node}
    return a_job(name, **fields | {"node_selector": selector})  # type: ignore[arg-type]  # as above


def share(name: str, quota: int, *, pods: int = 1, node: str = "") -> JobRequest:
    """A soft-share job."""
    labels = {
        "huawei.com/scheduler.softShareDev.aicoreQuota": str(quota),
        "huawei.com/scheduler.softShareDev.hbmQuota": "1000",
        "huawei.com/scheduler.softShareDev.policy": "elastic",
    }
    fields: dict[str, object] = {"product": "soft-share", "replicas": pods}
    bare = a_job(name, **fields)  # type: ignore[arg-type]  # fields of a request
    fields["labels"] = bare.labels | labels
    return on(node, name, **fields) if node else a_job(name, **fields)  # type: ignore[arg-type]  # as above


def seat_of(*nodes: NodeDescription, **settings: object) -> Seat:
    seat = Seat(**settings)
    for node in nodes:
        seat.fact(f"node.leaf-{node.name}", pack_nodes(f"leaf-{node.name}", [node], at_ms=1))
    return seat


def test_of_touched_nodes_alike_the_lower_name_wins_whichever_came_first() -> None:
    for nodes in ("ab", "ba"):
        seat = Seat(*nodes)
        seat.job(on("a", "one", chips=4))
        seat.job(on("b", "two", chips=4))
        seat.job(a_job("three", chips=4))
        seat.round()
        assert nodes_by_job(seat)["three"] == ["a"]


@pytest.mark.parametrize("touched", ["a", "b"])
def test_a_touched_node_and_one_that_is_not_are_ordered_by_name_when_they_are_alike(touched: str) -> None:
    seat = Seat("a", "b")
    seat.job(on("b" if touched == "a" else "a", "before", chips=4))
    seat.round()
    seat.job(on(touched, "now", chips=4))
    seat.job(a_job("three", chips=4))
    seat.round()
    assert nodes_by_job(seat)["three"] == ["a"]


@pytest.mark.parametrize("nodes", ["ab", "ba"])
def test_candidates_alike_are_ordered_by_name_and_so_is_the_best(nodes: str) -> None:
    seat = Seat(*nodes)
    gang = seat.scheduler.gang(_seen(a_job("j", chips=8)), a_job("j", chips=8), 1)
    shape = gang.request_class[0][0]
    scorer = seat.scheduler.scorer
    names = seat.state.table.names
    assert [names[row] for row in scorer.candidates(shape, 2).rows] == ["a", "b"]
    best = scorer.best(shape)
    assert best is not None
    assert names[best[0]] == "a"


def test_more_offers_are_asked_for_when_those_of_a_shard_with_more_end() -> None:
    seat = Seat("a", "b", "c")
    request = a_job("j", chips=8, replicas=3)
    gang = seat.scheduler.gang(_seen(request), request, 1)
    shape = gang.request_class[0][0]
    scorer = seat.scheduler.scorer
    for count, more in ((1, 3), (2, 5)):
        found = scorer.candidates(shape, count)
        assert (len(found.rows), found.fit, found.exhausted) == (count, 3, False)
        with pytest.raises(NeedMoreError) as error:
            PlacementRound(scorer, {shape: found}, {shape: count}).choose([gang])
        assert (error.value.shape, error.value.count) == (shape, more)
    assert scorer.candidates(shape, 3).exhausted
    (verdict,) = PlacementRound(scorer, {shape: scorer.candidates(shape, 3)}, {shape: 3}).choose([gang]).verdicts
    assert verdict.placement is not None


def test_a_gang_behind_a_reservation_leaves_its_room_to_one_that_runs_shorter() -> None:
    seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=5_000)
    seat.job(a_job("first", chips=8, run_ms=1_000))
    seat.round(at_ms=1)
    seat.job(a_job("large", chips=8, replicas=2))
    seat.job(a_job("long", chips=8))
    seat.job(a_job("short", chips=8, run_ms=10))
    assert told(seat.round(at_ms=100)) == {"large": ("no-room", 1001), "long": ("reserved", 1001)}
    assert sorted(nodes_by_job(seat)) == ["first", "short"]


def test_a_gang_that_ends_when_a_reservation_begins_does_not_delay_it() -> None:
    for run_ms, starts in ((901, True), (902, False)):
        seat = Seat("a", "b", queue_policy="easy", reserve_chips=16, unknown_run_ms=5_000)
        seat.job(a_job("first", chips=8, run_ms=1_000))
        seat.round(at_ms=1)
        seat.job(a_job("large", chips=8, replicas=2))
        seat.job(a_job("small", chips=8, run_ms=run_ms))
        seat.round(at_ms=100)
        assert ("small" in nodes_by_job(seat)) is starts


def test_pods_of_a_soft_share_gang_do_not_count_against_their_own_gang() -> None:
    seat = seat_of(a_node("a", "soft-share", chips=0b11, allocatable=2))
    seat.job(share("pair", 60, pods=2))
    seat.round()
    assert nodes_by_job(seat) == {"pair": ["a", "a"]}


def test_pods_of_a_soft_share_gang_count_against_the_next_gang_of_their_class() -> None:
    """Two chips a node; the first gang leaves node b early, when its own pods still count as gone."""
    seat = seat_of(*(a_node(name, "soft-share", chips=0b11, allocatable=2) for name in ("a", "b")))
    seat.job(share("half", 50, node="b"))
    seat.job(share("fifth", 20, node="a"))
    seat.round()
    seat.job(share("one", 40, pods=3))
    seat.job(share("two", 40, pods=3))
    record = seat.round()
    assert nodes_by_job(seat)["one"] == ["b", "a", "a"]
    assert record is not None
    assert _pods_have(record, "two") == 0


def test_a_job_that_does_not_ignore_sub_health_gets_no_degraded_node() -> None:
    seat = Seat("a")
    seat.ill("a", NodeHealth.SUB_HEALTHY)
    labels = a_job("j").labels
    seat.job(a_job("strict", chips=8, labels=labels | {"subHealthyStrategy": "graceExit"}))
    assert list(seat.verdicts()) == [("strict", False)]
    seat.job(a_job("lenient", chips=8, labels=labels | {"subHealthyStrategy": "ignore"}))
    assert list(seat.verdicts()) == [("lenient", True)]


@pytest.mark.parametrize(("cpu_milli", "fits"), [(192_000, True), (192_001, False)])
def test_a_pod_may_take_all_cpu_of_a_node(cpu_milli: int, *, fits: bool) -> None:
    seat = Seat("a")
    request = a_job("j", chips=1)
    seat.job(_with_cpu(request, cpu_milli))
    assert list(seat.verdicts()) == [("j", fits)]


def _with_cpu(request: JobRequest, cpu_milli: int) -> JobRequest:
    (task,) = request.tasks
    return a_job(request.name, tasks=[type(task)(task.name, task.replicas, task.chips, cpu_milli, 0)])


def _seen(request: JobRequest) -> JobSeen:
    return JobSeen("default", request.name, request.uid, "accepted", 1, 1, 1, request)


def _pods_have(record: Round, name: str) -> int:
    (verdict,) = [one for one in record.verdicts if one.name == name]
    assert verdict.refusal is not None
    return verdict.refusal.pods_have
