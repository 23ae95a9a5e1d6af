"""Clusters in a few words: nodes, leaves, SuperPoDs, the cluster that fits a workload, and the facts of a plan."""

from pathlib import Path

import numpy as np
import pytest

from berth.core.cluster.node_packing import RepeatedNodeError
from berth.core.simulation.planned_cluster import facts_of
from berth.core.state.cell import State
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.formats.clusters.cluster_text import (
    ClusterTextError,
    default_cluster,
    offered_load,
    read_cluster,
)
from berth.formats.clusters.topology_file import TopologyError
from berth.formats.traces.reader import read_trace
from berth.schemas.envelope import encode
from berth.schemas.subjects import Subjects
from berth.schemas.workload import ClusterPlan, Workload
from tests.support.cells import a_node
from tests.support.traces import trace_lines

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "cluster.yaml"


def state_of(plan: ClusterPlan) -> State:
    state = State()
    for sequence, (subject, fact) in enumerate(facts_of(plan, subjects=Subjects("sim"), at_ms=7), 1):
        assert state.apply_fact(subject, sequence, encode(fact)).error == ""
    return state


def jobs(*rows: str) -> Workload:
    return read_trace(["at_s,run_s,chips", *rows])


def test_words_make_numbered_nodes_below_leaves_and_in_superpods() -> None:
    plan = read_cluster("nodes=302,leaf=16,superpod=48,product=module910bx8,prefix=a2")
    assert len(plan.nodes) == 302
    first, last = plan.nodes[0], plan.nodes[-1]
    assert (first.name, first.leaf, first.position, first.superpod) == ("a2-000", "leaf-00", 0, "0")
    assert (last.name, last.leaf, last.position, last.superpod) == ("a2-301", "leaf-18", 13, "6")
    assert {(node.product, node.chips, node.allocatable) for node in plan.nodes} == {("module910bx8", 255, 8)}
    assert [node.name for node in plan.nodes] == sorted(node.name for node in plan.nodes)
    assert plan.name == "nodes=302,leaf=16,superpod=48,product=module910bx8,prefix=a2"


def test_without_leaf_and_superpod_nodes_stand_below_none() -> None:
    plan = read_cluster("nodes=3")
    assert [(node.name, node.leaf, node.superpod) for node in plan.nodes] == [
        ("node-00", "", ""),
        ("node-01", "", ""),
        ("node-02", "", ""),
    ]


def test_a_state_that_is_told_the_facts_has_nodes_leaves_and_free_chips() -> None:
    state = state_of(read_cluster("nodes=40,leaf=16"))
    assert state.facts_seq == 7  # nodes and health of three leaves, and the leaves
    assert list(leaf_index_of(state.indexes).leaves.names) == ["leaf-00", "leaf-01", "leaf-02"]
    table = state.table
    rows = [table.row(f"node-{index:02}") for index in range(40)]
    assert all(row >= 0 for row in rows)
    assert int(np.bitwise_count(table.free[rows]).sum()) == 320


def test_a_plan_without_leaves_tells_of_none() -> None:
    facts = facts_of(read_cluster("nodes=3"), subjects=Subjects("sim"), at_ms=7)
    assert [subject for subject, _ in facts] == ["berth.sim.fact.node.bucket-all", "berth.sim.fact.health.bucket-all"]


def test_a_plan_with_a_node_twice_makes_no_facts() -> None:
    plan = ClusterPlan("two", [a_node("n", leaf="a"), a_node("m"), a_node("n", leaf="b")])
    with pytest.raises(RepeatedNodeError, match="'n'"):
        facts_of(plan, subjects=Subjects("sim"), at_ms=0)


def test_a_topology_file_is_read_as_one_and_its_faults_are_said_to_be_left_out() -> None:
    plan = read_cluster(EXAMPLE.read_text("utf-8"), name="example")
    assert (plan.name, len(plan.nodes), plan.level, plan.places) == ("example", 42, "double_layer", 4)
    assert plan.notes == ["faults of the topology file that are left out: 3"]
    assert len(leaf_index_of(state_of(plan).indexes).leaves.names) == 6
    with pytest.raises(TopologyError, match="apiVersion"):
        read_cluster("kind: Cluster")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "cluster: '', expected key=value,key=value, such as nodes=302,leaf=16, or a topology file"),
        ("nodes=3,", "cluster: '', expected key=value,key=value, such as nodes=302,leaf=16, or a topology file"),
        ("nodes", "cluster: 'nodes', expected key=value,key=value, such as nodes=302,leaf=16, or a topology file"),
        (
            "node=3",
            "cluster: node is an unknown key, expected 'nodes'? (one of leaf, nodes, prefix, product, superpod)",
        ),
        ("leaf=4", "cluster: nodes is missing, expected a whole number from 1 to 100000"),
        ("nodes=x", "cluster: nodes is 'x', expected a whole number from 1 to 100000"),
        ("nodes=0", "cluster: nodes is '0', expected a whole number from 1 to 100000"),
        ("nodes=100001", "cluster: nodes is '100001', expected a whole number from 1 to 100000"),
        ("nodes=4,leaf=-1", "cluster: leaf is '-1', expected a whole number from 1 to 32768"),
        ("nodes=4,nodes=5", "cluster: nodes is given twice, expected each key once"),
        ("nodes=4,prefix=A_", "cluster: prefix is 'A_', expected lower-case letters, digits, inner '-' and '.'"),
        (
            "nodes=4,product=superpod910a3x16",
            "cluster: superpod is missing, expected the nodes of a SuperPoD, to which nodes of superpod910a3x16 belong",
        ),
    ],
)
def test_wrong_words_are_answered_with_what_would_be_right(words: str, message: str) -> None:
    with pytest.raises(ClusterTextError) as caught:
        read_cluster(words)
    assert str(caught.value) == message


def test_an_unknown_product_is_answered_with_the_nearest() -> None:
    with pytest.raises(ClusterTextError, match=r"product is 'module910', expected 'module910x8'\? \(one of 310, "):
        read_cluster("nodes=4,product=module910")
    with pytest.raises(ClusterTextError, match="product is 'x'"):
        default_cluster(jobs("0,1,1"), product="x")


def test_the_default_cluster_has_a_load_of_seventy_percent() -> None:
    workload = jobs(*[f"{10 * number},100,8" for number in range(101)])
    words = default_cluster(workload)
    assert words == "nodes=15,leaf=16,product=module910bx8"
    assert offered_load(workload, read_cluster(words).nodes) == pytest.approx(101 * 100 / (15 * 1000))


@pytest.mark.parametrize(
    ("rows", "nodes"),
    [
        (["0,1,1", "1000,1,256"], 32),  # room for the largest
        (["0,60,16", "1,60,8"], 3),  # no more than all of them take
        (["0,60,16", "0,60,8"], 3),  # no time between arrivals
    ],
)
def test_the_default_cluster_has_room_for_the_largest_and_not_for_more_than_all(rows: list[str], nodes: int) -> None:
    assert default_cluster(jobs(*rows)) == f"nodes={nodes},leaf=16,product=module910bx8"


def test_a_cluster_without_nodes_has_no_load() -> None:
    assert offered_load(jobs("0,1,32", "1,1,33", "2,1,8"), []) == 0.0


@pytest.mark.parametrize(
    ("trace", "compress", "words", "load"),
    [
        ("kalos", 8, "", 0.70),
        ("kalos", 12, "", 1.05),
        ("philly", 1, "", 0.73),
        ("philly", 1, "nodes=56", 0.83),
    ],
)
def test_real_traces_give_the_loads_that_are_known_of_them(trace: str, compress: int, words: str, load: float) -> None:
    workload = read_trace(trace_lines(trace), compress=compress)
    nodes = read_cluster(words or default_cluster(workload)).nodes
    assert offered_load(workload, nodes) == pytest.approx(load, abs=0.006)
    total, most = sum(node.whole_chips for node in nodes), max(node.whole_chips for node in nodes)
    for job in workload.jobs:
        assert sum(task.chips * task.replicas for task in job.request.tasks) <= total
        assert max(task.chips for task in job.request.tasks) <= most
