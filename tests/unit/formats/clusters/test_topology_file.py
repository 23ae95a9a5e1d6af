from pathlib import Path

import pytest

from berth.formats.clusters.topology_file import Cluster, Fault, Switches, TopologyError, parse_cluster
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.constraints import Taint
from berth.schemas.facts import NodeHealth

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "cluster.yaml"


def cluster(nodes: str, faults: str = "[]") -> str:
    return f"apiVersion: berth/v1\nkind: Cluster\nnodes: {nodes}\nfaults: {faults}\n"


def parsed(nodes: str, faults: str = "[]") -> Cluster:
    return parse_cluster(cluster(nodes, faults))


def test_the_example() -> None:
    found = parse_cluster(EXAMPLE.read_text("utf-8"))
    assert len(found.nodes) == 42
    assert len({node.name for node in found.nodes}) == 42
    assert {node.leaf for node in found.nodes if node.leaf} == {f"leaf-{n}" for n in range(4)} | {
        "leaf-old-0",
        "leaf-old-1",
    }
    assert sorted({node.superpod for node in found.nodes}) == ["", "0", "1"]
    assert found.faults == [
        Fault("a2-003", "unhealthy", 0b1000),
        Fault("a1-002", "network-unhealthy", 0b11),
        Fault("a2-007", level=NodeHealth.SUB_HEALTHY, from_ms=30_000, until_ms=90_000),
    ]


@pytest.mark.parametrize("name", sorted(NODE_PRODUCTS))
def test_a_node_of_every_product(name: str) -> None:
    product = NODE_PRODUCTS[name]
    superpod = ", superpod: {size: 1}" if product.in_superpod else ""
    (node,) = parsed(f"[{{product: '{name}', name: n{superpod}}}]").nodes
    assert node.resource == product.resource
    assert node.chips == (1 << product.chips) - 1
    assert node.allocatable == product.chips
    assert product.labels.items() <= node.labels.items()
    assert product.selector.items() <= node.labels.items()


def test_names_count_from_first_and_fill_up_with_zeros() -> None:
    names = [
        node.name
        for node in parsed(
            '[{product: "310p", count: 3, first: 9, name: "n-{index:03}.a"}, {product: "310", count: 2}]'
        ).nodes
    ]
    assert names == ["n-009.a", "n-010.a", "n-011.a", "310-0", "310-1"]


def test_positions_follow_the_order_in_the_file_across_entries() -> None:
    text = '[{product: "310", name: b, leaf: sw}, {product: "310", count: 3, name: "a{index}", leaf: {size: 2}}, {product: "310", name: z, leaf: sw}]'
    assert [(node.name, node.leaf, node.position) for node in parsed(text).nodes] == [
        ("b", "sw", 0),
        ("a0", "leaf-0", 0),
        ("a1", "leaf-0", 1),
        ("a2", "leaf-1", 0),
        ("z", "sw", 1),
    ]


def test_groups_without_a_name_are_numbered_through_the_file() -> None:
    entry = "product: superpod910a3x16, count: 3"
    text = f'[{{{entry}, name: "a{{index}}", superpod: {{size: 2}}}}, {{{entry}, name: "b{{index}}", superpod: {{size: 2}}}}]'
    assert [node.superpod for node in parsed(text).nodes] == ["0", "0", "1", "2", "2", "3"]
    named = parsed(f'[{{{entry}, superpod: {{size: 2, name: "pod-{{index:02}}", first: 7}}}}]').nodes
    assert [node.superpod for node in named] == ["pod-07", "pod-07", "pod-08"]
    assert named[0].labels["huawei.com/topotree.superpodid"] == "pod-07"


def test_racks_are_numbered_in_each_superpod_in_the_order_of_the_file() -> None:
    entry = "product: superpod910a3x16"
    text = (
        f'[{{{entry}, count: 5, name: "a{{index}}", superpod: {{size: 4}}, rack: {{size: 2}}}}, '
        f'{{{entry}, count: 2, name: "b{{index}}", superpod: "1", rack: {{size: 2}}}}, '
        f'{{{entry}, name: c, superpod: "0", rack: 7}}, {{{entry}, name: d, superpod: "0", leaf: sw}}]'
    )
    assert [(node.name, node.superpod, node.rack, node.position) for node in parsed(text).nodes] == [
        ("a0", "0", "0", 0),
        ("a1", "0", "0", 1),
        ("a2", "0", "1", 2),
        ("a3", "0", "1", 3),
        ("a4", "1", "0", 0),
        ("b0", "1", "0", 1),
        ("b1", "1", "1", 2),
        ("c", "0", "7", 4),
        ("d", "0", "", 0),
    ]


def test_forms_that_have_racks_have_them_of_eight_nodes_unless_told_otherwise() -> None:
    entry = '{product: superpod950x8, count: 18, name: "n{index}", superpod: {size: 17}'
    assert [node.rack for node in parsed(f"[{entry}}}]").nodes] == ["0"] * 8 + ["1"] * 8 + ["2", "0"]
    assert {node.rack for node in parsed(f"[{entry}, rack: 3}}]").nodes} == {"3"}


def test_what_an_entry_says_outranks_the_product() -> None:
    (node,) = parsed(
        "[{product: module910bx8, name: n, chips: 4, cpu: 64500m, memory: 1.5Gi, labels: {accelerator-type: x, zone: b}, "
        "taints: [{key: a}, {key: b, value: c, effect: NoExecute}], cordoned: true, ready: false}]"
    ).nodes
    assert (node.chips, node.allocatable, node.cpu_milli, node.memory_mib) == (0b1111, 4, 64_500, 1536)
    assert (node.labels["accelerator-type"], node.labels["zone"]) == ("x", "b")
    assert node.taints == [Taint("a"), Taint("b", "c", "NoExecute")]
    assert (node.cordoned, node.ready) == (True, False)


def test_what_leaf_switches_have_in_common() -> None:
    nodes = '[{product: "310", count: 5, leaf: {size: 4}}]'
    assert parsed(nodes).switches == Switches("double_layer", 0)
    for text, found in (
        ("{}", Switches()),
        ("{level: single_layer}", Switches("single_layer", 0)),
        ("{level: double_layer, places: 4}", Switches("double_layer", 4)),
        ("{places: 32768}", Switches("double_layer", 32_768)),
    ):
        assert parse_cluster(f"{cluster(nodes)}switches: {text}\n").switches == found


@pytest.mark.parametrize(
    ("entry", "path", "expected"),
    [
        ('{product: "310", rack: 1}', "nodes[0].rack", "nothing here, or a superpod"),
        ("{product: superpod950x8, superpod: p, rack: {size: 0}}", "nodes[0].rack.size", "from 1 to 200000"),
        ("{product: superpod950x8, superpod: p, rack: {name: r, size: 8}}", "nodes[0].rack.name", "size"),
        ("{product: superpod950x8, superpod: p, rack: {}}", "nodes[0].rack.size", "the number of nodes of each rack"),
        ("{product: superpod950x8, superpod: p, rack: top}", "nodes[0].rack", "a whole number from 0"),
        ("{product: superpod950x8, superpod: p, rack: -1}", "nodes[0].rack", "a whole number from 0"),
    ],
)
def test_a_rack_that_cannot_be_is_told(entry: str, path: str, expected: str) -> None:
    with pytest.raises(TopologyError) as error:
        parsed(f"[{entry}]")
    assert error.value.path == path
    assert expected in error.value.expected


@pytest.mark.parametrize(
    ("switches", "path", "expected"),
    [
        ("{places: 3}", "switches.places", "at least 4: so many nodes are below leaf switch 'leaf-0'"),
        ("{places: 0}", "switches.places", "from 1 to 32768"),
        ("{places: 32769}", "switches.places", "from 1 to 32768"),
        ("{level: single}", "switches.level", "'single_layer'?"),
        ("{layer: single_layer}", "switches.layer", "one of level, places"),
        ("7", "switches", "a mapping"),
    ],
)
def test_wrong_words_about_leaf_switches_are_refused(switches: str, path: str, expected: str) -> None:
    nodes = '[{product: "310", count: 5, leaf: {size: 4}}]'
    with pytest.raises(TopologyError) as caught:
        parse_cluster(f"{cluster(nodes)}switches: {switches}\n")
    assert caught.value.path == path
    assert expected in caught.value.expected


def test_words_about_leaf_switches_need_some() -> None:
    with pytest.raises(TopologyError, match="no node of the file has a leaf"):
        parse_cluster(f"""{cluster('[{product: "310"}]')}switches: {{places: 3}}\n""")


def test_a_fault_without_an_end_lasts_for_ever() -> None:
    nodes = '[{product: "310", name: n}]'
    (fault,) = parsed(nodes, "[{node: n, chips: [0, 15], kind: recovering, from: 1m}]").faults
    assert (fault.chips, fault.from_ms, fault.until_ms) == (0x8001, 60_000, None)
    (fault,) = parsed(nodes, "[{node: n, level: no-new-work, for: 5s}]").faults
    assert (fault.level, fault.from_ms, fault.until_ms) == (NodeHealth.NO_NEW_WORK, 0, 5000)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", "", "one document"),
        (cluster("[]") + "---\na: b", "", "one document"),
        ("apiVersion: berth/v2\nkind: Cluster", "apiVersion", "berth/v1"),
        ("apiVersion: berth/v1\nkind: Job", "kind", "Cluster"),
        ("apiVersion: berth/v1\nkind: Cluster\nnode: []", "node", "'nodes'?"),
        ("apiVersion: berth/v1\nkind: Cluster", "nodes", "a list of nodes"),
        (cluster("[]"), "nodes", "at least one node"),
        (cluster("[x]"), "nodes[0]", "a mapping"),
        (cluster("[{}]"), "nodes[0].product", "module910bx8"),
        (cluster("[{product: module910bx9}]"), "nodes[0].product", "'module910bx8'? (one of 310, 310p,"),
        (cluster("[{product: 310}]"), "nodes[0].product", "'310'?"),
        (cluster("[{product: '310', counts: 3}]"), "nodes[0].counts", "'count'?"),
        (cluster("[{product: '310', count: 0}]"), "nodes[0].count", "from 1"),
        (cluster("[{product: '310', count: 200001}]"), "nodes[0].count", "to 200000"),
        (cluster("[{product: '310', count: 200000, name: 'a{index}'}, {product: '310'}]"), "nodes[1]", "at most 200000 nodes"),
        (cluster("[{product: '310', count: 2, name: n}]"), "nodes[0].name", "{index}"),
        (cluster("[{product: '310', name: 'n{index.__class__}'}]"), "nodes[0].name", "RFC 1123"),
        (cluster("[{product: '310', name: Node}]"), "nodes[0].name", "RFC 1123"),
        (cluster("[{product: '310', name: n}, {product: '310', name: n}]"), "nodes[1].name", "given twice"),
        (cluster("[{product: '310'}, {product: '310'}]"), "nodes[1]", "given twice"),
        (cluster("[{product: '310', chips: 65}]"), "nodes[0].chips", "from 1 to 64"),
        (cluster("[{product: '310', cpu: many}]"), "nodes[0].cpu", "a quantity"),
        (cluster("[{product: '310', labels: {a: 1}}]"), "nodes[0].labels.a", "quotes"),
        (cluster("[{product: '310', taints: [{key: a, effect: no}]}]"), "nodes[0].taints[0].effect", "NoSchedule"),
        (cluster("[{product: '310', leaf: {size: 0}}]"), "nodes[0].leaf.size", "from 1"),
        (cluster("[{product: '310', leaf: {}}]"), "nodes[0].leaf.size", "number of nodes"),
        (cluster("[{product: '310', count: 2, leaf: {size: 1, name: x}}]"), "nodes[0].leaf.name", "{index}"),
        (cluster("[{product: '310', leaf: 3}]"), "nodes[0].leaf", "RFC 1123"),
        (cluster("[{product: superpod910a3x16}]"), "nodes[0].superpod", "a SuperPoD"),
        (cluster("[{product: '310', count: 32769, leaf: one}]"), "nodes[0]", "at most 32768 nodes below"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_refused_with_its_place(text: str, path: str, expected: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parse_cluster(text)
    assert caught.value.path == path
    assert expected in caught.value.expected


@pytest.mark.parametrize(
    ("fault", "path", "expected"),
    [
        ("{node: m, level: evict}", "node", "in this file"),
        ("{level: evict}", "node", "the name of a node"),
        ("{node: n}", "kind", "or a level"),
        ("{node: n, kind: unhealthy}", "chips", "a list of chips"),
        ("{node: n, kind: unhealthy, chips: []}", "chips", "at least one chip"),
        ("{node: n, kind: unhealthy, chips: [16]}", "chips[0]", "from 0 to 15"),
        ("{node: n, kind: unhealthy, chips: [-1]}", "chips[0]", "from 0 to 15"),
        ("{node: n, kind: unhealty, chips: [1]}", "kind", "'unhealthy'?"),
        ("{node: n, level: subhealthy}", "level", "'sub-healthy'?"),
        ("{node: n, level: evict, chips: [1]}", "chips", "whole node"),
        ("{node: n, level: evict, kind: unhealthy}", "kind", "whole node"),
        ("{node: n, level: evict, from: 3}", "from", "a duration"),
        ("{node: n, level: evict, until: 3s}", "until", "one of"),
    ],
)
def test_a_wrong_fault_is_refused_with_its_place(fault: str, path: str, expected: str) -> None:
    with pytest.raises(TopologyError) as caught:
        parsed('[{product: "310", name: n}]', f"[{fault}]")
    assert caught.value.path == f"faults[0].{path}"
    assert expected in caught.value.expected
