from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_facts import check_health, check_nodes
from berth.core.cluster.node_packing import (
    HOSTNAME_LABEL,
    RepeatedNodeError,
    pack_health,
    pack_nodes,
    pack_switches,
    unpack_health,
    unpack_nodes,
)
from berth.core.topologies.switches.occupancy.leaf_table import check_topology
from berth.schemas.constraints import Taint
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import HealthSeen, Leaf, NodeHealth, NodesSeen
from berth.schemas.nodes import NodeCondition, NodeDescription

names = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
words = st.text(st.characters(codec="utf-8"), max_size=8)
masks = st.integers(0, 2**64 - 1)
taints = st.builds(Taint, key=words, value=words, effect=st.sampled_from(["NoSchedule", "NoExecute"]))
descriptions = st.builds(
    NodeDescription,
    name=names,
    product=st.sampled_from(["", "module910bx8"]),
    resource=st.sampled_from(["", "huawei.com/Ascend910"]),
    chips=masks,
    allocatable=st.integers(0, 64),
    cpu_milli=st.integers(0, 2**31 - 1),
    memory_mib=st.integers(0, 2**31 - 1),
    labels=st.dictionaries(words, words, max_size=2),
    taints=st.lists(taints, max_size=2, unique=True).map(lambda items: sorted(items, key=lambda t: (t.key, t.value, t.effect))),
    cordoned=st.booleans(),
    ready=st.booleans(),
    superpod=st.sampled_from(["", "0", "pod-1"]),
    leaf=st.sampled_from(["", "a", "b"]),
    position=st.integers(0, 32_767),
)  # fmt: skip
conditions = st.builds(
    NodeCondition,
    name=names,
    unhealthy=masks,
    recovering=masks,
    network_unhealthy=masks,
    level=st.sampled_from(NodeHealth),
    network_known=st.booleans(),
    withheld=st.just(0) | masks,
    reason=st.sampled_from(["", "no report", "chip 3: RestartNPU"]),
    updated_ms=st.just(0) | st.integers(0, 2**53),
)


@given(nodes=st.lists(descriptions, max_size=8, unique_by=lambda node: node.name), addressed=st.booleans())
def test_nodes_come_back_from_their_columns(nodes: list[NodeDescription], addressed: bool) -> None:  # noqa: FBT001  # drawn
    if addressed:
        nodes = [msgspec.structs.replace(node, address=f"10.0.0.{index}") for index, node in enumerate(nodes)]
    message = pack_nodes("d", nodes, at_ms=5)
    assert unpack_nodes(decode(encode(message), NodesSeen)) == sorted(nodes, key=lambda node: node.name)
    assert encode(pack_nodes("d", reversed(nodes), at_ms=5)) == encode(message)
    check_nodes(message)


@given(rows=st.lists(conditions, max_size=8, unique_by=lambda row: row.name))
def test_health_comes_back_from_its_columns(rows: list[NodeCondition]) -> None:
    message = pack_health("d", reversed(rows), source="s", at_ms=5)
    assert unpack_health(decode(encode(message), HealthSeen)) == sorted(rows, key=lambda row: row.name)
    check_health(message)


def test_a_health_fact_without_the_later_columns_is_read() -> None:
    rows = [NodeCondition("a", unhealthy=1), NodeCondition("b", level=NodeHealth.EVICT, network_known=False)]
    message = pack_health("d", rows)
    assert (message.withheld, message.reasons, message.reason_index, message.updated_ms) == (b"", [], b"", b"")
    assert (message.source, message.at_ms) == ("", 0)
    assert unpack_health(message) == rows


_WHOLE = pack_health(
    "d",
    [
        NodeCondition(
            name,
            unhealthy=1,
            withheld=1,
            reason="x",
            updated_ms=1,
            sub_healthy=1,
            sources=1,
            noded_level=NodeHealth.EVICT,
            switch_level=NodeHealth.EVICT,
        )
        for name in "ab"
    ],
)


@pytest.mark.parametrize(
    "column", [name for name in HealthSeen.__struct_fields__ if isinstance(getattr(_WHOLE, name), bytes)]
)
def test_no_column_of_a_health_fact_may_have_another_length(column: str) -> None:
    check_health(_WHOLE)
    assert getattr(_WHOLE, column), "it is there, so that it can be damaged"
    with pytest.raises(DecodeError):
        check_health(msgspec.structs.replace(_WHOLE, **{column: getattr(_WHOLE, column) * 2}))


@pytest.mark.parametrize("column", ["level", "noded_level", "switch_level"])
def test_no_level_of_a_health_fact_may_be_unknown(column: str) -> None:
    with pytest.raises(DecodeError, match="level: 4"):
        check_health(msgspec.structs.replace(_WHOLE, **{column: bytes([0, len(NodeHealth)])}))


def test_nodes_share_a_reason() -> None:
    rows = [NodeCondition(name, reason=reason) for name, reason in (("a", "x"), ("b", ""), ("c", "x"), ("d", "w"))]
    message = pack_health("d", rows)
    assert message.reasons == ["w", "x"]
    assert unpack_health(message) == rows
    with pytest.raises(IndexError):
        unpack_health(msgspec.structs.replace(message, reasons=["w"]))
    with pytest.raises(ValueError, match="for 4 names"):
        unpack_health(msgspec.structs.replace(message, reason_index=message.reason_index[:-4]))


def test_equal_nodes_share_a_class_whatever_the_order_of_their_labels_and_taints() -> None:
    first, second = Taint("a"), Taint("b")
    message = pack_nodes(
        "d",
        [
            NodeDescription(name="x", labels={"a": "1", "b": "2", HOSTNAME_LABEL: "x"}, taints=[first, second], cpu_milli=1),
            NodeDescription(name="y", labels={HOSTNAME_LABEL: "y", "b": "2", "a": "1"}, taints=[second, first], cpu_milli=2),
            NodeDescription(name="z", labels={"a": "1"}),
        ],
    )  # fmt: skip
    assert sorted(len(kind.labels) for kind in message.classes) == [1, 2]
    assert len(message.class_index) == 6


def test_no_nodes_mean_that_the_domain_is_gone() -> None:
    message = pack_nodes("d", [])
    assert (message.names, message.classes, message.chips) == (b"", [], b"")
    assert unpack_nodes(message) == []


def test_addresses_are_known_of_all_or_of_none() -> None:
    nodes = [NodeDescription(name="a", address="10.0.0.1"), NodeDescription(name="b")]
    assert pack_nodes("d", nodes).addresses == []


def test_a_node_given_twice_is_refused() -> None:
    with pytest.raises(RepeatedNodeError) as caught:
        pack_nodes("d", [NodeDescription(name="a"), NodeDescription(name="b"), NodeDescription(name="a")])
    assert caught.value.node == "a"
    with pytest.raises(RepeatedNodeError):
        pack_health("d", [NodeCondition("a"), NodeCondition("a")])


@pytest.mark.parametrize("field", ["class_index", "chips", "allocatable", "cpu_milli", "superpod_index", "position"])
def test_a_column_of_another_length_is_refused(field: str) -> None:
    message = pack_nodes("d", [NodeDescription(name="a"), NodeDescription(name="b")])
    column = getattr(message, field)
    with pytest.raises(ValueError, match="for 2 names"):
        unpack_nodes(msgspec.structs.replace(message, **{field: column[: len(column) // 2]}))


def test_switches_come_in_the_order_of_the_nodes_and_list_theirs_by_position() -> None:
    nodes = [
        NodeDescription(name="a", leaf="two", position=1),
        NodeDescription(name="b", leaf="two", position=0),
        NodeDescription(name="c", leaf="one", position=3, address="ip-c"),
        NodeDescription(name="d"),
    ]
    fact = pack_switches(nodes, level="single_layer", places=5, at_ms=7)
    assert fact.leaves == [Leaf("two", "", ["b", "a"], [0, 1]), Leaf("one", "", ["c"], [3], ["ip-c"])]
    assert (fact.level, fact.places, fact.at_ms) == ("single_layer", 5, 7)
    check_topology(fact)
    assert pack_switches(nodes[-1:], level="single_layer").level == ""


@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        ({"superpod_index": b"", "superpods": []}, {"superpod": ""}),
        ({"leaf_index": b"", "leaves": []}, {"leaf": ""}),
        ({"position": b""}, {"position": 0}),
        ({"rack_index": b"", "racks": []}, {"rack": ""}),
        ({"cpu_others": b""}, {"cpu_others": 0}),
        ({"memory_others": b""}, {"memory_others": 0}),
        ({"chips_others": b""}, {"chips_others": 0}),
        ({"unsettled": b""}, {"is_unsettled": False}),
    ],
)
def test_a_column_that_is_left_out_is_empty_for_every_node(columns: dict[str, Any], changes: dict[str, Any]) -> None:
    nodes = [
        NodeDescription(
            name, "module910bx8", "r", 3, 2, 5, 6, superpod="1", leaf="l", position=7, rack="2", cpu_others=8,
            memory_others=9, chips_others=1, is_unsettled=True,
        )
        for name in ("a", "b")
    ]  # fmt: skip
    fact = msgspec.structs.replace(pack_nodes("d", nodes), **columns)
    check_nodes(fact)
    assert unpack_nodes(fact) == [msgspec.structs.replace(node, **changes) for node in nodes]
