"""A gang whose pods name nodes is asked for once, each pod goes where a name lets it, and refusals count its nodes."""

import msgspec
import pytest

from berth.core.scheduling.turn import MissingShards
from berth.schemas.constraints import Expression, Term
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import PodConstraints, PreferredNodes
from berth.schemas.refusal import NodeReason, Refusal
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, OneNode, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell

PODS = 256
NODES = [f"n{n:03}" for n in range(64)]
WAYS = ("selector", "field", "others-excluded")


def home(rank: int) -> str:
    """Node that a pod names, in no order."""
    return NODES[(rank * 37) % len(NODES)]


def pinned(way: str, rank: int, **fields: object) -> Task:
    """Pod of a gang that may use one node."""
    name = home(rank)
    task = Task(f"t{rank}", 1, 1, 100, **fields)  # type: ignore[arg-type]  # a builder
    match way:
        case "selector":
            return msgspec.structs.replace(task, node_selector={HOST: name})
        case "field":
            term = Term((Expression("metadata.name", "In", (name,)),))
        case _:
            term = Term((Expression(HOST, "NotIn", tuple(other for other in NODES if other != name)),))
    return msgspec.structs.replace(task, affinity=[term])


def replicas(way: str) -> JobRequest:
    return a_job("db", tasks=[pinned(way, rank) for rank in range(PODS)])


def a_cell() -> CoreCell:
    return CoreCell([a_node(name) for name in NODES], keeps=False)


@pytest.mark.parametrize("way", WAYS)
def test_pods_that_differ_in_the_names_of_nodes_alone_are_one_shape_to_scorers(way: str) -> None:
    cell = a_cell()
    cell.ask(replicas(way))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    assert len(opening.asks) == 1
    assert not opening.heavy
    (verdict,) = cell.scheduler.decide(opening).round.verdicts
    assert verdict.placement is not None
    assert verdict.placement.names() == [home(rank) for rank in range(PODS)]


def test_many_gangs_of_a_pod_each_are_one_shape_to_scorers() -> None:
    cell = a_cell()
    cell.ask(*(a_job(f"j{rank}", tasks=[pinned("field", rank)]) for rank in range(PODS)))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    assert (len(opening.gangs), len(opening.asks)) == (PODS, 1)
    names = [one.placement.names() for one in cell.scheduler.decide(opening).round.verdicts if one.placement]
    assert names == [[home(rank)] for rank in range(PODS)]


@pytest.mark.parametrize("way", WAYS)
def test_a_full_node_refuses_the_pod_that_names_it_with_the_reasons_of_its_own_nodes(way: str) -> None:
    cell = a_cell()
    cell.place(a_job("full", chips=8, node_selector={HOST: home(7), "accelerator-type": "module-910b-8"}))
    refusal = cell.refuse(replicas(way))
    assert refusal.task == "t7"
    assert refusal.nodes_fit == 0
    assert reasons_of(refusal) == {NodeReason.SELECTOR: len(NODES) - 1, NodeReason.SHORTAGE: 1}


def test_nodes_of_shards_that_did_not_answer_are_counted_as_such() -> None:
    cell = CoreCell([a_node(name, leaf=name[-1]) for name in NODES])
    cell.ask(a_job("one", tasks=[pinned("selector", 0)]))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    (verdict,) = cell.scheduler.decide(opening, MissingShards(2, [0, 1])).round.verdicts
    assert verdict.refusal is not None
    assert reasons_of(verdict.refusal) == {NodeReason.SHARD_MISSING: len(NODES)}


def test_with_constraints_a_pod_that_names_a_node_still_leaves_it_to_as_many_pods_as_it_takes() -> None:
    cell = a_cell()
    usage = usage_of("all", [OneNode(name, pods_max=2 if name == home(0) else 9) for name in NODES], ())
    cell.fact(SUBJECTS.fact_usage("all"), usage)
    again = [rank for rank in range(PODS) if home(rank) == home(0)]
    assert cell.refuse(replicas("field")).task == f"t{again[2]}"


def test_preferred_names_are_left_to_constraints() -> None:
    cell = a_cell()
    wish = PreferredNodes(50, Term((Expression(HOST, "In", (home(5),)),)))
    cell.ask(a_job("j", tasks=[Task("t", 1, 1, constraints=PodConstraints(preferred_nodes=(wish,)))]))
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    ((shape, _),) = opening.gangs[0].request_class
    assert not shape.names_nodes
    (verdict,) = cell.scheduler.decide(opening).round.verdicts
    assert verdict.placement is not None
    assert verdict.placement.names() == [home(5)]


def reasons_of(refusal: Refusal) -> dict[NodeReason, int]:
    return {NodeReason(one.reason): one.nodes for one in refusal.counts}
