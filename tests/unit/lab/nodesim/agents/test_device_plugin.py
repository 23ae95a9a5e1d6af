"""The device plug-in's rules one by one.

Source: docs/reference/kubernetes.md, "Life of a pod".
"""

import json

import pytest

from berth.formats.ascend.pod_annotations import ASCEND_REAL, CONSUMED, KLT_DEV, PREDICATE_TIME
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.pod_spec import Container, Requirements
from berth.lab.nodesim.agents.device_plugin import AllocateError, DevicePlugin
from berth.lab.nodesim.agents.device_report import Place
from berth.lab.nodesim.agents.pods import AgentPod, AgentPodSpec, AgentPodStatus
from berth.lab.nodesim.agents.registration import base_device_infos
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.nodes import NodeDescription

RESOURCE = "huawei.com/Ascend910"


def a_node(product: str = "module910bx8") -> NodeDescription:
    known = NODE_PRODUCTS[product]
    return NodeDescription(
        "n", product, known.resource, (1 << known.chips) - 1, known.chips, 64_000, 65_536, address="10.0.0.9"
    )


def a_pod(
    name: str,
    chips: str,
    *,
    at: str | None = "100",
    asks: tuple[int, ...] = (2,),
    phase: str = "Pending",
    leaving: bool = False,
    resource: str = RESOURCE,
    more: dict[str, str] | None = None,
) -> AgentPod:
    found = {resource: chips} if chips else {}
    if at is not None:
        found[PREDICATE_TIME] = at
    return AgentPod(
        metadata=Meta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            annotations={**found, **(more or {})},
            deletion_timestamp="2026-01-01T00:00:00Z" if leaving else None,
        ),
        spec=AgentPodSpec(
            node_name="n",
            containers=[Container(name=f"c{n}", resources=Requirements(limits={resource: n})) for n in asks],
        ),
        status=AgentPodStatus(phase=phase),
    )


def a_plugin(product: str = "module910bx8", *, preset: bool = True, reversed_ids: bool = False) -> DevicePlugin:
    node = a_node(product)
    infos = base_device_infos(node, Place(), reversed_ids=reversed_ids)
    return DevicePlugin(node, infos, Place(), preset_virtual_devices=preset)


def chosen(plugin: DevicePlugin, *pods: AgentPod, ids: tuple[int, ...] = (0, 1)) -> str:
    given = plugin.allocate(ids, pods)
    return given.source.metadata.name if given.source is not None else ""


def test_the_smallest_predicate_time_is_taken_whoever_the_container_belongs_to() -> None:
    first, second = a_pod("first", "Ascend910-4,Ascend910-5", at="99"), a_pod("second", "Ascend910-0,Ascend910-1")
    plugin = a_plugin()
    given = plugin.allocate((6, 7), [second, first])
    assert (given.chips, given.ids) == ((4, 5), (6, 7))
    assert given.source is first
    assert chosen(plugin, second, first, ids=(2, 3)) == "second"


def test_times_are_numbers_of_64_bits_and_not_texts() -> None:
    assert chosen(a_plugin(), a_pod("x", "Ascend910-0,Ascend910-1", at="1000"), a_pod("y", "Ascend910-2,Ascend910-3", at="999")) == "y"  # fmt: skip


@pytest.mark.parametrize("at", [None, "", "soon", "-1", "1e3", "99999999999999999999999"])
def test_a_time_that_is_missing_or_no_number_comes_last(at: str | None) -> None:
    odd = a_pod("a-odd", "Ascend910-0,Ascend910-1", at=at)
    late = a_pod("z-late", "Ascend910-2,Ascend910-3", at=str((1 << 64) - 2))
    plugin = a_plugin()
    assert chosen(plugin, odd, late) == "z-late"
    assert chosen(plugin, odd, late, ids=(2, 3)) == "a-odd"


def test_of_equal_times_the_last_name_is_taken() -> None:
    pods = [a_pod(name, "Ascend910-0,Ascend910-1") for name in ("a", "c", "b")]
    assert chosen(a_plugin(), *pods) == "c"


@pytest.mark.parametrize(
    "other",
    [
        a_pod("x", "Ascend910-0,Ascend910-1", phase="Failed"),
        a_pod("x", "Ascend910-0,Ascend910-1", phase="Succeeded"),
        a_pod("x", "Ascend910-0,Ascend910-1", leaving=True),
        a_pod("x", "Ascend910-0,Ascend910-1", at=CONSUMED),
        a_pod("x", "Ascend910-0,Ascend910-1", asks=()),
        a_pod("x", ""),
        a_pod("x", "Ascend910-0"),
        a_pod("x", "Ascend910-0,Ascend910-1,Ascend910-2"),
        a_pod("x", "Ascend910-0,junk"),
        a_pod("x", "Ascend910-0,Ascend910-9"),
    ],
    ids=["failed", "over", "leaving", "consumed", "asks for none", "no list", "too few", "too many", "no chip", "not of the node"],
)  # fmt: skip
def test_a_pod_that_does_not_wait_for_so_many_chips_is_not_taken(other: AgentPod) -> None:
    with pytest.raises(AllocateError, match="no pod on node n has 2 chips"):
        a_plugin().allocate((0, 1), [other])
    assert chosen(a_plugin(), other, a_pod("y", "Ascend910-6,Ascend910-7", at="900")) == "y"


def test_a_pod_is_taken_once_even_while_the_api_still_shows_it_as_it_was() -> None:
    plugin, pod = a_plugin(), a_pod("p", "Ascend910-0,Ascend910-1")
    assert chosen(plugin, pod) == "p"
    with pytest.raises(AllocateError):
        plugin.allocate((2, 3), [pod])


def test_a_pod_with_chips_in_two_containers_matches_neither() -> None:
    with pytest.raises(AllocateError):
        a_plugin().allocate((0,), [a_pod("p", "Ascend910-0,Ascend910-1", asks=(1, 1))])


def test_a_container_with_all_chips_is_not_looked_up() -> None:
    pod = a_pod("p", ",".join(f"Ascend910-{chip}" for chip in range(8)), asks=(8,))
    given = a_plugin().allocate(tuple(range(8)), [pod])
    assert (given.chips, given.source) == (tuple(range(8)), None)
    assert a_plugin(preset=False).allocate(tuple(range(8)), [pod]).source is pod


def test_what_kubelet_holds_stands_for_what_is_mounted_and_the_rest_for_the_rest() -> None:
    plugin = a_plugin()
    plugin.allocate((0, 1), [a_pod("p", "Ascend910-6,Ascend910-7")])
    assert {plugin.stands_for(klt) for klt in (0, 1)} == {6, 7}
    assert {plugin.stands_for(klt) for klt in range(2, 8)} == {0, 1, 2, 3, 4, 5}
    plugin.allocate((6, 2), [a_pod("q", "Ascend910-0,Ascend910-5")])
    assert {plugin.stands_for(klt) for klt in (6, 2)} == {0, 5}
    assert sorted(map(plugin.stands_for, range(8))) == list(range(8))


def test_the_next_period_tells_kubelets_ids_real_chips_and_configuration_unless_somebody_has() -> None:
    plugin, pod = a_plugin(), a_pod("p", "Ascend910-7,Ascend910-6")
    given = plugin.allocate((3, 1), [pod])
    told = plugin.report(pod, given)
    assert told[KLT_DEV] == "Ascend910-1,Ascend910-3"
    assert told[ASCEND_REAL] == "Ascend910-6,Ascend910-7"
    configuration = json.loads(told["ascend.kubectl.kubernetes.io/ascend-910-configuration"])
    assert configuration["server_id"] == "uid-p"
    assert [device["device_id"] for device in configuration["devices"]] == ["6", "7"]
    known = a_pod("p", "Ascend910-7,Ascend910-6", more={ASCEND_REAL: "Ascend910-0,Ascend910-1"})
    assert plugin.report(known, given) == {}


def test_device_ids_of_the_annotation_are_not_numbers_of_chips_where_the_node_says_so() -> None:
    plugin = a_plugin("module850x8", reversed_ids=True)
    pod = a_pod("p", "npu-0,npu-1", resource="huawei.com/npu")
    given = plugin.allocate((0, 1), [pod])
    assert given.chips == (6, 7)
    told = plugin.report(pod, given)
    assert told[ASCEND_REAL] == "npu-6,npu-7"
    assert "ascend.kubectl.kubernetes.io/ascend-npu-configuration" in told
