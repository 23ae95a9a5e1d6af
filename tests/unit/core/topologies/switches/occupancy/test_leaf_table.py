import numpy as np
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable, check_topology, leaf_table
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import Leaf, TopologySeen
from berth.schemas.nodes import NodeDescription

LEAVES = [Leaf("sw2", "sw2", ["c", "", "a"], [2, 0, 1]), Leaf("empty", "empty", []), Leaf("sw1", "sw1", ["b"])]


def topology(*leaves: Leaf, places: int = 0, level: str = "") -> TopologySeen:
    return TopologySeen("switch", list(leaves), level=level, places=places)


def nodes(*names: str) -> NodeTable:
    """A table with these nodes, in this order."""
    table = NodeTable()
    for name in names:
        table.apply_nodes(
            pack_nodes(f"d-{name}", [NodeDescription(name, "module910bx8", "huawei.com/Ascend910", 0xFF)])
        )
    return table


def test_places_are_a_grid_in_the_order_of_the_lists() -> None:
    table = leaf_table(topology(*LEAVES, places=4, level="single_layer"))
    assert (table.names, table.index) == (["sw2", "empty", "sw1"], {"sw2": 0, "empty": 1, "sw1": 2})
    assert (len(table), table.width, table.places, table.is_single_layer) == (3, 3, 4, True)
    assert table.node_names == ["c", "", "a", "", "", "", "b", "", ""]
    assert table.cell_of == {"c": 0, "a": 2, "b": 6}
    assert table.slices.tolist() == [[2, 0, 1], [0, 0, 0], [0, 0, 0]]
    assert table.listed.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    assert [table.leaf_of(name) for name in ("c", "a", "b", "z", "")] == [0, 0, 2, -1, -1]
    assert leaf_table(topology(*LEAVES)).places == 3
    assert not leaf_table(topology(*LEAVES, level="double_layer")).is_single_layer


def test_without_leaves_nothing_is_known() -> None:
    table = LeafTable()
    assert (len(table), table.width, table.leaf_of("a")) == (0, 0, -1)
    assert table.usable(nodes("a"), np.array([True])).size == 0


def test_places_are_usable_whose_nodes_are_there_and_fit() -> None:
    leaves = leaf_table(topology(*LEAVES))
    table = nodes("b", "x", "a")
    assert leaves.rows(table).tolist() == [-1, -1, 2, -1, -1, -1, 0, -1, -1]
    fits = np.array([False, True, True])
    assert leaves.usable(table, fits).tolist() == [[False, False, True], [False] * 3, [False] * 3]
    assert not leaves.usable(nodes(), np.zeros(0, np.bool_)).any()
    grown = nodes("b", "x", "a", "c")
    assert leaves.usable(grown, np.ones(4, np.bool_)).tolist() == [
        [True, False, True],
        [False] * 3,
        [True, False, False],
    ]


@pytest.mark.parametrize(
    "fact",
    [
        topology(),
        topology(*LEAVES),
        topology(*LEAVES, places=3),
        topology(Leaf("a", "", ["", ""]), Leaf("b", "", ["", ""], [1, 0], ["x", "y"])),
        topology(Leaf("a", "", ["n"], [32_767]), places=32_768),
    ],
)
def test_a_sound_topology_passes(fact: TopologySeen) -> None:
    check_topology(fact)


@pytest.mark.parametrize(
    ("fact", "words"),
    [
        (topology(Leaf("a", "", []), Leaf("b", "", []), Leaf("a", "", [])), "leaves[2].name is 'a': expected a name that no other leaf has"),
        (topology(Leaf("", "", [])), "leaves[0].name is ''"),
        (topology(Leaf("a", "", ["n", "m"]), Leaf("b", "", ["m"])), "leaves[1].nodes[0] is 'm': expected a node that is not below leaf a as well"),
        (topology(Leaf("a", "", ["n", "n"])), "leaves[0].nodes[1] is 'n'"),
        (topology(Leaf("a", "", ["n", "m"], [0, 2]), places=2), "leaves[0].positions[1] is 2: expected a number of its own from 0 to 1"),
        (topology(Leaf("a", "", ["n"], [-1])), "leaves[0].positions[0] is -1"),
        (topology(Leaf("a", "", ["n"], [32_768])), "leaves[0].positions[0] is 32768: expected a number of its own from 0 to 32767"),
        (topology(Leaf("a", "", ["n", "m"], [1, 1])), "leaves[0].positions[1] is 1"),
        (topology(Leaf("a", "", ["n", "m", ""]), places=2), "leaves[0].nodes is 3 nodes: expected at most 2 (places)"),
        (topology(Leaf("a", "", ["n", "m"], [0])), "leaves[0].positions is 1 positions: expected 2, one a node"),
        (topology(Leaf("a", "", ["n"], [0], ["x", "y"])), "leaves[0].addresses is 2 addresses: expected 1, one a node"),
        (topology(*LEAVES, places=-1), "places is -1"),
        (topology(*LEAVES, places=32_769), "places is 32769: expected the most nodes below a leaf, at most 32768, or 0"),
    ],
)  # fmt: skip
def test_a_topology_that_cannot_be_meant_is_refused_with_its_entry(fact: TopologySeen, words: str) -> None:
    with pytest.raises(DecodeError) as caught:
        check_topology(fact)
    assert words in str(caught.value)
    assert caught.value.kind == "fact.topology"
