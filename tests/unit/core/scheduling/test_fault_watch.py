"""Which changes make a gang be examined again that wants a place for a rank."""

import pytest

from berth.core.changes import Changes, ConstraintChanges
from berth.core.cluster.node_packing import pack_switches
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import PODS_FIRST, FaultCell

PLAIN = a_job("j", chips=8, replicas=2)
BELOW_LEAVES = a_job("j", chips=8, replicas=2, labels={"tor-affinity": "normal-schema"})
IN_SUPERPODS = a_job(
    "j",
    product="superpod910a3x16",
    chips=16,
    replicas=2,
    annotations={"sp-block": "32", "huawei.com/schedule_policy": "chip2-node16-sp"},
)


def examined(request: JobRequest, changes: Changes, product: str = "module910bx8", **settings: object) -> bool:
    """Whether a change makes the watch look at a gang of which a rank waits for a place on a full cluster."""
    nodes = [a_node(f"n{number}", product, leaf="x", position=number, superpod="0", rack="0") for number in range(2)]
    cell = FaultCell(nodes, **settings)
    cell.fact("berth.c.fact.topology.switch", pack_switches(nodes))
    cell.run(request)
    cell.break_chip(cell.node_of("j", 1))
    (step,) = cell.turns()
    assert (step.placement, cell.phase("j")) == (None, "placed")
    faulty, _ = cell.scheduler.watch.find_faulty([], changes, at_ms=cell.now_ms)
    return bool(faulty)


TAKEN = Changes(nodes_changed=True, chips_taken={0: 0xFF})


@pytest.mark.parametrize(
    ("request_", "changes"),
    [
        (PLAIN, Changes(capacity_gained={0: None})),
        (PLAIN, Changes(chips_returned={0: None})),
        (PLAIN, Changes(constraints=ConstraintChanges(rows_freed={0: None}))),
        (PLAIN, Changes(nodes_changed=True, chips_taken={0: 0x1FF})),
        (BELOW_LEAVES, Changes(leaf_opened=True)),
        (IN_SUPERPODS, TAKEN),
    ],
    ids=["room", "chips", "constraints", "another product", "leaf", "fewer nodes change a plan of blocks"],
)
def test_it_is_examined_after_what_may_help(request_: JobRequest, changes: Changes) -> None:
    product = "superpod910a3x16" if request_ is IN_SUPERPODS else "module910bx8"
    assert examined(request_, changes, product)


@pytest.mark.parametrize(
    ("request_", "changes"),
    [(PLAIN, Changes()), (PLAIN, TAKEN), (PLAIN, Changes(leaf_opened=True)), (BELOW_LEAVES, TAKEN)],
    ids=["nothing", "less room", "leaf", "less room below leaves"],
)
def test_it_is_not_examined_after_what_cannot_help(request_: JobRequest, changes: Changes) -> None:
    assert not examined(request_, changes)


def test_a_sub_healthy_node_whose_pods_are_to_leave_is_examined_again() -> None:
    cell = FaultCell([a_node(f"n{number}") for number in range(3)])
    cell.run(a_job("j", chips=8, replicas=2), labels={**PODS_FIRST, "subHealthyStrategy": "ignore"})
    node = cell.node_of("j", 1)
    cell.break_chip(node, mask=0, level=NodeHealth.SUB_HEALTHY)
    assert cell.turns() == []
    cell.break_chip(node, mask=0, level=NodeHealth.EVICT)
    (step,) = cell.turns()
    assert (step.kind, step.ranks) == ("NodeUnhealthy", [1])
