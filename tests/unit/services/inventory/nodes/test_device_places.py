"""Places in SuperPoDs that only the reports of device plug-ins tell."""

import json
from typing import Final

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes, unpack_nodes
from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.node_place import DeviceMap, NodePlace, needs_report, reported_place
from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import Node
from berth.schemas.facts import NodesSeen
from berth.schemas.nodes import NodeDescription
from berth.services.inventory.nodes.collection import Nodes

A3: Final = {"accelerator-type": "module-a3-16-super-pod", "accelerator": "huawei-Ascend910"}
NPU: Final = {"accelerator": "huawei-npu"}


def a_node(
    name: str = "n", *, kind: str = "Ascend910", chips: int = 16, labels: dict[str, str] = A3, **told: str
) -> Node:
    infos: dict[str, object] = {f"{kind}-{chip}": {} for chip in range(chips)}
    annotations = {"baseDeviceInfos": json.dumps(infos)} if chips else {}
    return msgspec.convert({"metadata": {"name": name, "labels": labels, "annotations": annotations | told}}, Node)


def report(**numbers: object) -> str:
    return json.dumps({"DeviceInfo": {"DeviceList": {}, "UpdateTime": 1}, **numbers, "CheckCode": "any"})


def only(nodes: Nodes) -> NodeDescription:
    """The one node that is said."""
    due = nodes.due(1)
    found = [node for fact in due.rest for node in unpack_nodes(fact)]
    for fact in (*due.leaving, *due.rest):
        nodes.note_published(fact)
    assert len(found) == 1
    return found[0]


def test_a_report_is_read_for_three_numbers_only() -> None:
    assert reported_place(report(SuperPodID=3, ServerIndex=4, RackID=5)) == NodePlace(3, 5, 4)
    assert reported_place(report(SuperPodID=-2, ServerIndex=-2)) == NodePlace(-2, None, -2)
    assert reported_place("{}") == NodePlace()
    text = report(SuperPodID=1)
    found = msgspec.json.decode(
        msgspec.json.encode({"metadata": {"name": "m"}, "data": {"DeviceInfoCfg": text, "SwitchInfoCfg": "x"}}),
        type=DeviceMap,
    )
    assert (found.metadata.name, found.text) == ("m", text)
    assert msgspec.json.decode(b'{"metadata":{}}', type=DeviceMap).text == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "DeviceInfoCfg is '{', expected JSON"),
        (report(SuperPodID="7"), "DeviceInfoCfg.SuperPodID is '7', expected a whole number"),
        (report(SuperPodID=1.5), "DeviceInfoCfg.SuperPodID is 1.5"),
        (report(RackID=True), "DeviceInfoCfg.RackID is True"),
        (report(ServerIndex=-3), "DeviceInfoCfg.ServerIndex is -3"),
        (report(SuperPodID=1 << 31), "DeviceInfoCfg.SuperPodID is 2147483648"),
    ],
)
def test_a_report_that_cannot_be_read_says_which_number_and_its_value(text: str, words: str) -> None:
    with pytest.raises(ReportError) as error:
        reported_place(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("node", "needed"),
    [
        (a_node(), True),
        (a_node(superPodID="x"), True),
        (a_node(superPodID="1"), False),
        (a_node(superPodID="-2"), False),
        (a_node(chips=0), False),
        (a_node(kind="npu", labels=NPU, superPodID="1"), True),
        (a_node(kind="npu", labels=NPU, superPodID="1", rackID="-1"), False),
        (a_node(kind="npu", labels=NPU, superPodID="-1"), False),
        (a_node(labels=A3 | {"huawei.com/topotree.superpodid": "4"}), False),
    ],
)
def test_which_nodes_need_their_report(node: Node, needed: bool) -> None:  # noqa: FBT001 - a parameter of the table
    reading = read_node(node)
    assert needs_report(reading.node, reading.place) is needed
    nodes = Nodes()
    nodes.put(node)
    assert nodes.needs_devices is needed


@pytest.mark.parametrize("first", ["node", "report"])
def test_a_node_stands_where_its_report_says_whichever_comes_first(first: str) -> None:
    nodes = Nodes()
    if first == "report":
        nodes.note_device_report("n", report(SuperPodID=7, ServerIndex=3, RackID=1))
    nodes.put(a_node())
    if first == "node":
        assert (only(nodes).superpod, nodes.reasons["n"]) == (
            "",
            (
                "node n: SuperPodID is not known: expected 0 or more, because its label accelerator-type is "
                "'module-a3-16-super-pod'",
            ),
        )
        nodes.note_device_report("n", report(SuperPodID=7, ServerIndex=3, RackID=1))
    found = only(nodes)
    assert (found.superpod, found.rack, found.position, found.product) == ("7", "1", 3, "superpod910a3x16")
    assert nodes.reasons == {}


def test_the_nodes_own_word_outranks_the_report_and_the_report_fills_the_rest() -> None:
    nodes = Nodes()
    nodes.note_device_report("n", report(SuperPodID=7, ServerIndex=3, RackID=1))
    nodes.put(a_node(kind="npu", labels=NPU, superPodID="2"))
    found = only(nodes)
    assert (found.superpod, found.rack, found.position) == ("2", "1", 3)
    nodes.put(a_node(kind="npu", labels=NPU, superPodID="-2"))
    found = only(nodes)
    assert (found.superpod, found.rack, found.position) == ("", "", 0)


def test_a_bad_report_leaves_the_last_good_one_in_force_and_is_told() -> None:
    nodes = Nodes()
    nodes.put(a_node())
    nodes.note_device_report("n", report(SuperPodID="seven"))
    assert only(nodes).superpod == ""
    assert "DeviceInfoCfg.SuperPodID is 'seven'" in nodes.reasons["n"][0]
    nodes.note_device_report("n", report(SuperPodID=7))
    assert only(nodes).superpod == "7"
    nodes.note_device_report("n", "")
    assert not nodes.due(1).rest
    (reason,) = nodes.reasons["n"]
    assert reason.endswith("; the previous report stays in force")
    nodes.note_device_report("n", report(SuperPodID=-1))
    assert only(nodes).superpod == ""
    assert "SuperPodID is -1: expected 0 or more" in nodes.reasons["n"][0]


def test_a_report_that_is_deleted_leaves_what_it_said_and_a_node_that_comes_back_stands_where_it_did() -> None:
    nodes = Nodes()
    nodes.put(a_node())
    nodes.note_device_report("n", report(SuperPodID=7))
    nodes.note_device_report("n", None)
    assert only(nodes).superpod == "7"
    nodes.remove("n")
    assert not nodes.needs_devices
    nodes.put(a_node())
    assert not nodes.due(1).leaving
    nodes.remove("n")
    nodes.note_device_report("n", None)
    nodes.put(a_node())
    assert only(nodes).superpod == ""


def after_a_restart(said: list[NodesSeen]) -> Nodes:
    nodes = Nodes()
    nodes.restore(said)
    return nodes


@pytest.mark.parametrize("text", [None, "{", report(SuperPodID="seven")])
def test_a_restart_without_a_good_report_leaves_a_node_where_it_was_said_to_be(text: str | None) -> None:
    before = Nodes()
    for name in ("n", "m"):
        before.put(a_node(name, kind="npu", labels=NPU))
        before.note_device_report(name, report(SuperPodID=7, ServerIndex=3, RackID=1))
    nodes = after_a_restart(before.due(1).rest)
    nodes.replace([a_node("n", kind="npu", labels=NPU), a_node("m", kind="npu", labels=NPU)])
    if text is not None:
        nodes.note_device_report("n", text)
        assert nodes.reasons["n"][0].endswith("; the previous report stays in force")
    due = nodes.due(1)
    assert (due.leaving, due.rest) == ([], [])
    nodes.note_device_report("n", report(SuperPodID=-2))
    found = nodes.due(1)
    assert {node.name: node.superpod for fact in found.rest for node in unpack_nodes(fact)} == {"n": ""}


def test_what_was_said_before_a_restart_counts_only_for_nodes_that_are_silent_since() -> None:
    before = Nodes()
    for name in ("n", "m"):
        before.put(a_node(name, kind="npu", labels=NPU, superPodID="7", rackID="1"))
    nodes = after_a_restart(before.due(1).rest)
    nodes.replace([a_node("n", kind="npu", labels=NPU, superPodID="8")])
    found = only(nodes)
    assert (found.name, found.superpod, found.rack) == ("n", "8", "")
    nodes.put(a_node("n", kind="npu", labels=NPU, superPodID="8", rackID="2"))
    nodes.put(a_node("n", kind="npu", labels=NPU))
    assert only(nodes).superpod == ""
    nodes.put(a_node("m", kind="npu", labels=NPU))
    assert {node.superpod for fact in nodes.due(1).rest for node in unpack_nodes(fact)} == {""}


@pytest.mark.parametrize(
    ("named", "superpod", "rack", "leaf"), [("x", "x", "", ""), ("9" * 30, "9" * 30, "0", ""), ("3", "3", "r", "leaf")]
)
def test_places_that_were_said_and_are_no_numbers_are_forgotten(
    named: str, superpod: str, rack: str, leaf: str
) -> None:
    said = NodeDescription("n", superpod=superpod, rack=rack, leaf=leaf, position=9)
    nodes = after_a_restart([pack_nodes("d", [said], at_ms=1)])
    nodes.replace([a_node()])
    found = {node.name: node for fact in nodes.due(1).rest for node in unpack_nodes(fact)}["n"]
    assert (found.superpod, found.rack, found.position) == (named if leaf else "", "", 0)


def test_nodes_of_other_forms_in_no_superpod_are_nothing_wrong() -> None:
    nodes = Nodes()
    nodes.put(a_node(labels={"accelerator-type": "module-910b-8"}, superPodID="-2"))
    nodes.put(a_node("m", labels={"accelerator-type": "module-910b-8"}))
    nodes.note_device_report("m", report(SuperPodID=-2))
    nodes.put(a_node("c", chips=0))
    assert nodes.reasons == {}
