"""Faults at given and at random times."""

import pytest

from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.fault_plan import FaultPlan, FaultPlanConfig, GivenFault, RandomFaults
from berth.schemas.simulation import BreakNode

CLUSTER = parse_cluster(
    """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2, name: "leaf-{index}"}}
  - {product: superpod910a3x16, count: 2, name: "a3-{index}", superpod: {size: 2}}
"""
)
START_MS = 1_000_000
HOUR_S = 3_600
KINDS = ("chip", "network", "recovering", "node", "switch", "kubelet", "plugin", "gone", "container", "relation")


def plan_of(config: FaultPlanConfig) -> FaultPlan:
    return FaultPlan(config, CLUSTER.nodes, start_ms=START_MS)


def until(plan: FaultPlan, end_s: float) -> list[tuple[int, BreakNode]]:
    """Faults up to a time, with the seconds from the start."""
    found: list[tuple[int, BreakNode]] = []
    while (next_ms := plan.next_ms()) is not None and next_ms <= START_MS + end_s * 1000:
        assert not plan.take(next_ms - 1)
        due = plan.take(next_ms)
        assert due
        found += [((next_ms - START_MS) // 1000, one) for one in due]
    return found


def test_given_faults_come_once_in_the_order_of_their_times() -> None:
    plan = plan_of(
        FaultPlanConfig(
            given=[
                GivenFault(at_s=30, node="a2-1", fault="container", pod="ns/p", exit_code=137),
                GivenFault(
                    at_s=10, node="a2-0", fault="chip", chips=[3], level="SeparateNPU", code="80E24E00", for_s=5
                ),
                GivenFault(at_s=30, node="leaf-0", fault="kubelet", leaf=True),
            ]
        )
    )
    assert plan.next_ms() == START_MS + 10_000
    assert until(plan, 60) == [
        (10, BreakNode("a2-0", "chip", [3], "SeparateNPU", "80E24E00", 5_000)),
        (30, BreakNode("a2-1", "container", pod="ns/p", exit_code=137)),
        (30, BreakNode("leaf-0", "kubelet", leaf=True)),
    ]
    assert plan.next_ms() is None
    assert plan.take(START_MS + 10**9) == []


def test_a_seed_gives_the_same_faults_and_another_kind_changes_none_of_them() -> None:
    chips = RandomFaults(fault="chip", mtbf_s=100, for_s=30)
    first = until(plan_of(FaultPlanConfig(seed=7, random=[chips])), HOUR_S)
    more = until(plan_of(FaultPlanConfig(seed=7, random=[chips, RandomFaults(fault="kubelet", mtbf_s=50)])), HOUR_S)
    assert [one for one in more if one[1].fault == "chip"] == first
    assert until(plan_of(FaultPlanConfig(seed=8, random=[chips])), HOUR_S) != first
    assert 18 < len(first) < 72  # 36 in the mean
    assert len({one.node for _, one in first}) == len(CLUSTER.nodes)


@pytest.mark.parametrize("kind", KINDS)
def test_random_faults_are_of_nodes_that_can_have_them(kind: str) -> None:
    config = FaultPlanConfig(random=[RandomFaults(fault=kind, mtbf_s=60)])  # type: ignore[arg-type]  # one of the kinds
    found = [one for _, one in until(plan_of(config), HOUR_S)]
    assert found
    assert all(one.fault == kind and not one.leaf for one in found)
    assert all(len(one.chips) == (kind in {"chip", "network", "recovering"}) for one in found)
    assert all((one.lasts_ms > 0) == (kind not in {"container", "relation"}) for one in found)
    if kind == "switch":
        assert {one.node for one in found} == {"a3-0", "a3-1"}


def test_random_faults_of_leaves_name_leaves() -> None:
    found = until(plan_of(FaultPlanConfig(random=[RandomFaults(fault="kubelet", mtbf_s=60, leaf=True)])), HOUR_S)
    assert {(one.node, one.leaf) for _, one in found} == {("leaf-0", True), ("leaf-1", True)}


def test_kinds_that_no_node_can_have_never_come() -> None:
    nodes = [node for node in CLUSTER.nodes if node.name.startswith("a2")]
    config = FaultPlanConfig(random=[RandomFaults(fault="switch", mtbf_s=1)])
    assert FaultPlan(config, nodes, start_ms=START_MS).next_ms() is None
