"""Faults of whole leaf switches in a simulated cluster without an API server."""

from berth.core.cluster.node_packing import unpack_nodes
from berth.formats.clusters.topology_file import parse_cluster
from berth.lab.nodesim.sim_nodes import SimNodes
from berth.schemas.simulation import BreakNode

CLUSTER = parse_cluster(
    """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: module910bx8, count: 4, name: "a2-{index}", leaf: {size: 2, name: "leaf-{index}"}}
"""
)
T0 = 1_000


def not_ready(nodes: SimNodes, now_ms: int) -> list[str]:
    found = [node for domain in nodes.domains for node in unpack_nodes(nodes.facts(domain, now_ms).nodes)]
    return sorted(node.name for node in found if not node.ready)


def test_all_nodes_of_a_leaf_break_for_a_time_or_until_they_are_repaired() -> None:
    nodes = SimNodes(CLUSTER, start_ms=0)
    assert nodes.names_of(BreakNode("leaf-1", "kubelet", leaf=True)) == ["a2-2", "a2-3"]
    assert nodes.break_node(BreakNode("leaf-1", "kubelet", lasts_ms=500, leaf=True), T0) == ""
    assert not_ready(nodes, T0) == ["a2-2", "a2-3"]
    assert not_ready(nodes, T0 + 500) == []
    assert nodes.break_node(BreakNode("leaf-0", "kubelet", leaf=True), T0) == ""
    assert nodes.break_node(BreakNode("a2-1", "kubelet", repair=True), T0) == ""
    assert not_ready(nodes, T0 + 600) == ["a2-0"]
    assert nodes.break_node(BreakNode("leaf-0", "kubelet", repair=True, leaf=True), T0) == "", "one of them was broken"
    assert not_ready(nodes, T0 + 600) == []
    assert "has no such fault" in nodes.break_node(BreakNode("leaf-0", "kubelet", repair=True, leaf=True), T0)


def test_what_is_no_leaf_breaks_nothing() -> None:
    nodes = SimNodes(CLUSTER, start_ms=0)
    for name in ("", "leaf-9", "a2-0"):
        assert nodes.break_node(BreakNode(name, "kubelet", leaf=True), T0) == (
            f"leaf switch is {name!r}, expected a leaf switch of the topology file"
        )
    assert "node is 'leaf-0'" in nodes.break_node(BreakNode("leaf-0", "kubelet"), T0)
