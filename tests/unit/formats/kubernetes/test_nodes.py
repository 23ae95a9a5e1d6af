import msgspec
import pytest

from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import Node
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.constraints import Taint
from berth.schemas.nodes import NodeDescription

INFOS = msgspec.json.encode({f"Ascend910-{chip}": {"IP": f"10.0.0.{chip}"} for chip in range(8)}).decode()


def node(**changes: object) -> Node:
    """A node with eight chips; ``changes`` are annotations, labels, allocatable, spec or conditions."""
    tree = {
        "metadata": {
            "name": "n1",
            "labels": {"accelerator-type": "module-910b-8", "accelerator": "huawei-Ascend910"},
            "annotations": {"baseDeviceInfos": INFOS},
        },
        "spec": {},
        "status": {
            "capacity": {"huawei.com/Ascend910": "8"},
            "allocatable": {"huawei.com/Ascend910": "7", "cpu": "191500m", "memory": "1500000Mi"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "Hostname", "address": "n1"}, {"type": "InternalIP", "address": "192.0.2.1"}],
        },
    }
    for path, value in changes.items():
        place: dict[str, object] = tree
        *steps, last = path.split("__")
        for step in steps:
            place = place[step]  # type: ignore[assignment]  # trees of dicts
        place[last] = value
    return msgspec.convert(tree, Node)


def test_a_node_is_read_whole() -> None:
    reading = read_node(
        node(
            spec__unschedulable=True,
            spec__taints=[{"key": "own", "value": "x", "effect": "NoExecute"}],
            metadata__annotations={"baseDeviceInfos": INFOS, "superPodID": "7"},
        )
    )
    assert reading.reasons == ()
    assert reading.node == NodeDescription(
        name="n1",
        product="",
        resource="huawei.com/Ascend910",
        chips=0xFF,
        allocatable=7,
        cpu_milli=191_500,
        memory_mib=1_500_000,
        labels={"accelerator-type": "module-910b-8", "accelerator": "huawei-Ascend910"},
        taints=[Taint("own", "x", "NoExecute")],
        cordoned=True,
        ready=True,
        superpod="7",
        address="192.0.2.1",
    )


def test_the_form_of_a_node_follows_from_its_labels() -> None:
    assert read_node(node()).node.product == "module910bx8"
    assert read_node(node(metadata__labels={"accelerator": "huawei-Ascend910"})).node.product == ""
    shared = dict(NODE_PRODUCTS["soft-share"].labels)
    assert read_node(node(metadata__labels=shared)).node.product == "soft-share"


def test_amounts_are_rounded_down() -> None:
    allocatable = {"huawei.com/Ascend910": "8", "cpu": "1.9999", "memory": "3145727"}
    reading = read_node(node(status__allocatable=allocatable))
    assert (reading.node.allocatable, reading.node.cpu_milli, reading.node.memory_mib) == (8, 1999, 2)


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ("{", "expected a JSON map"),
        ("[]", "expected a JSON map"),
        ('{"Ascend910-2c-100-1_0": {}}', "virtual chips are not placed"),
        ('{"Ascend910-0": {}, "Ascend310P-1": {}}', "chips of one kind"),
        ('{"Ascend910-64": {}}', "up to 63"),
        ('{"Ascend910-x": {}}', "<type>-<id>"),
        ('{"Ascend910-1": {}, "Ascend910-01": {}}', "each once"),
    ],
)
def test_a_node_whose_chips_cannot_be_read_is_one_without_chips(annotation: str, words: str) -> None:
    reading = read_node(node(metadata__annotations={"baseDeviceInfos": annotation}))
    assert (reading.node.resource, reading.node.chips, reading.node.allocatable) == ("", 0, 0)
    assert reading.node.cpu_milli == 191_500
    (reason,) = reading.reasons
    assert reason.startswith("node n1: annotation baseDeviceInfos is ")
    assert words in reason


def test_a_node_with_chips_that_are_cut_keeps_its_whole_ones() -> None:
    names = ["Ascend910-0", "Ascend910-3", "Ascend910-2c-100-1_0", "Ascend910-2c.1cpu-101-1_0", "Ascend910-16c-102-2_0"]
    infos = msgspec.json.encode({name: {} for name in names}).decode()
    allocatable = {"huawei.com/Ascend910": "2", "huawei.com/Ascend910-2c": "2", "cpu": "4"}
    reading = read_node(node(metadata__annotations={"baseDeviceInfos": infos}, status__allocatable=allocatable))
    assert reading.reasons == ()
    assert (reading.node.resource, reading.node.chips, reading.node.allocatable) == ("huawei.com/Ascend910", 0b1001, 2)


def test_a_node_with_chips_but_without_the_annotation_is_told_of() -> None:
    reading = read_node(node(metadata__annotations=None))
    assert reading.node.chips == 0
    assert reading.reasons == (
        'node n1: annotation baseDeviceInfos is missing: expected a JSON map of chip names, such as {"Ascend910-0": {}}',
    )


def test_a_node_without_chips_is_nothing_wrong() -> None:
    reading = read_node(
        node(metadata__annotations=None, status__capacity={"cpu": "4"}, status__allocatable={"cpu": "4"})
    )
    assert reading.reasons == ()
    assert (reading.node.resource, reading.node.cpu_milli, reading.node.memory_mib) == ("", 4000, 0)


def test_a_chip_that_the_plug_in_lost_still_belongs_to_the_node() -> None:
    reading = read_node(node(status__allocatable={"cpu": "1"}))
    assert (reading.node.chips, reading.node.allocatable, reading.reasons) == (0xFF, 0, ())


@pytest.mark.parametrize(
    ("annotation", "label", "superpod", "complaints"),
    [
        ("3", "", "3", 0),
        ("-2", "", "", 0),
        ("-2", "5", "", 0),
        ("", "5", "5", 0),
        ("-1", "", "", 0),
        ("-3", "", "", 1),
        ("03", "", "3", 0),
        ("x", "", "", 1),
        ("x", "5", "5", 1),
        ("4_2", "", "", 1),
        ("٣", "", "", 1),
    ],
)
def test_superpods(annotation: str, label: str, superpod: str, complaints: int) -> None:
    annotations = {"baseDeviceInfos": INFOS, "superPodID": annotation}
    labels = {"huawei.com/topotree.superpodid": label}
    reading = read_node(node(metadata__annotations=annotations, metadata__labels=labels))
    assert (reading.node.superpod, len(reading.reasons)) == (superpod, complaints)


@pytest.mark.parametrize(
    ("annotations", "labels", "superpod", "rack", "position"),
    [
        ({"superPodID": "1", "rackID": "0", "serverIndex": "9"}, {}, "1", "0", 9),
        ({"superPodID": "0", "rackID": "-2"}, {}, "0", "", 0),
        ({"superPodID": "-2", "rackID": "3", "serverIndex": "4"}, {}, "", "", 0),
        ({"rackID": "3", "serverIndex": "4"}, {}, "", "", 0),
        ({"superPodID": "1"}, {"rackid": "5", "serverid": "6"}, "1", "5", 6),
        ({"superPodID": "1", "rackID": "2", "serverIndex": "3"}, {"rackid": "5", "serverid": "6"}, "1", "2", 3),
        ({"superPodID": "1", "serverIndex": "40000"}, {}, "1", "", 32767),
    ],
)
def test_racks_and_indexes_count_inside_a_superpod(
    annotations: dict[str, str], labels: dict[str, str], superpod: str, rack: str, position: int
) -> None:
    found = read_node(
        node(
            metadata__annotations={"baseDeviceInfos": INFOS, **annotations},
            metadata__labels={f"huawei.com/topotree.{key}": value for key, value in labels.items()},
        )
    )
    assert (found.node.superpod, found.node.rack, found.node.position) == (superpod, rack, position)
    assert found.reasons == ()


def test_a_rack_that_is_no_number_is_none_and_told_with_its_value() -> None:
    found = read_node(node(metadata__annotations={"baseDeviceInfos": INFOS, "superPodID": "1", "rackID": "top"}))
    assert (found.node.superpod, found.node.rack) == ("1", "")
    assert found.reasons == (
        "node n1: annotation rackID is 'top': expected the number of a rack, 0 or more, or a negative number (-1 or -2) for "
        "none",
    )


def test_what_is_wrong_beside_the_chips_is_told_and_the_rest_counts() -> None:
    allocatable = {"huawei.com/Ascend910": "many", "cpu": "-1", "memory": "9E"}
    taints = [{"key": "a", "effect": "Sometimes"}, {"key": "b", "effect": "NoSchedule"}]
    reading = read_node(node(status__allocatable=allocatable, spec__taints=taints, status__conditions=None))
    assert (reading.node.allocatable, reading.node.cpu_milli, reading.node.memory_mib) == (0, 0, (1 << 31) - 1)
    assert reading.node.taints == [Taint("b", "", "NoSchedule")]
    assert not reading.node.ready
    assert len(reading.reasons) == 4
    assert "status.allocatable huawei.com/Ascend910 is 'many'" in reading.reasons[0]
