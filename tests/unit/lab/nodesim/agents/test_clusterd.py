"""What the played ClusterD makes of the reports of nodes."""

import json
from random import Random

import pytest

from berth.formats.ascend.check_code import check_code
from berth.formats.ascend.cluster_info import Chunks, read_devices, read_nodes, read_switches
from berth.formats.ascend.device_info import DeviceReport, parse_device_info
from berth.formats.ascend.node_info import judge_node, parse_node_info
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import ConfigMap
from berth.lab.nodesim.agents.clusterd import CHUNK_BYTES_MAX, ClusterD
from berth.lab.nodesim.agents.device_report import (
    Place,
    Release,
    device_data,
    device_list,
    node_data,
    other_release,
)
from berth.lab.nodesim.breakage import Breakage, Broken
from berth.products.catalogue import NODE_PRODUCTS
from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeDescription

T0 = 1_763_640_000_000
FAULT = Broken((Breakage("node", level="PreSeparateFault", code="AB", from_ms=T0),))


def a_node(name: str, product: str = "module910bx8") -> NodeDescription:
    known = NODE_PRODUCTS[product]
    return NodeDescription(name, product, known.resource, (1 << known.chips) - 1, known.chips)


def devices(name: str, *, taken: int = 0, product: str = "module910bx8", now_ms: int = T0) -> ConfigMap:
    node = a_node(name, product)
    lists = device_list(node, Broken(), taken=taken, used=taken)
    data = device_data(node, Place(), Broken(), lists, now_ms, release="this")
    return ConfigMap(metadata=Meta(name=f"mindx-dl-deviceinfo-{name}"), data=data)


def of_noded(name: str) -> ConfigMap:
    return ConfigMap(metadata=Meta(name=f"mindx-dl-nodeinfo-{name}"), data=node_data(FAULT, T0, release="this"))


def a_clusterd(*used: str, chunk_bytes: int = CHUNK_BYTES_MAX) -> ClusterD:
    return ClusterD(lambda node: node in used, Random(0), chunk_bytes=chunk_bytes)  # noqa: S311 - repeatable


def free(text: str, name: str) -> dict[str, int]:
    found = read_devices(text, {}, name=name)
    assert found.errors == {}
    return {node: entry.value.chips["huawei.com/Ascend910"].free_mask for node, entry in found.entries.items()}


def test_reports_are_flattened_and_found_again_by_their_reader() -> None:
    clusterd = a_clusterd()
    assert clusterd.take(devices("a", taken=3), T0) == ""
    assert clusterd.take(devices("b", product="superpod910a3x16"), T0) == ""
    assert clusterd.take(of_noded("a"), T0) == ""
    found = clusterd.written()
    assert sorted(found) == ["cluster-info-device-0", "cluster-info-node-cm", "cluster-info-switch-0"]
    assert free(found["cluster-info-device-0"], "cluster-info-device-0") == {"a": 0xFC, "b": 0xFFFF}
    (node,) = read_nodes(found["cluster-info-node-cm"], {}).entries.items()
    assert (node[0], node[1].value.node_status, node[1].updated_ms) == ("a", "UnHealthy", T0)
    switches = read_switches(found["cluster-info-switch-0"], {}, name="cluster-info-switch-0").entries
    assert {name: entry.value.node_status for name, entry in switches.items()} == {"b": "Healthy"}


@pytest.mark.parametrize("release", ["early", "later"])
def test_reports_of_other_releases_say_the_same(release: Release) -> None:
    node = a_node("a")
    lists = device_list(node, Broken(), taken=3, used=3)
    plain, other = (device_data(node, Place(1, 2, 3), Broken(), lists, T0, one) for one in ("this", release))
    assert parse_device_info(other["DeviceInfoCfg"]) == parse_device_info(plain["DeviceInfoCfg"])
    plain, other = (node_data(FAULT, T0, one) for one in ("this", release))
    assert other != plain
    assert parse_node_info(other["NodeInfo"]) == parse_node_info(plain["NodeInfo"])
    healthy = node_data(Broken(), T0, release)
    assert bool(healthy) is (release == "early")
    assert not healthy or judge_node(parse_node_info(healthy["NodeInfo"])).level is NodeHealth.OK


def test_nodes_of_a_cluster_have_agents_of_all_releases() -> None:
    assert {other_release(f"n{number}") for number in range(20)} == {"this", "early", "later"}


def test_a_wrong_sum_is_dropped_and_the_last_word_holds() -> None:
    clusterd = a_clusterd()
    clusterd.take(devices("a"), T0)
    wrong = devices("a", taken=1)
    text = dict(wrong.data or {})
    config = json.loads(text["DeviceInfoCfg"])
    config["CheckCode"] = check_code({"other": 1})
    broken = ConfigMap(metadata=wrong.metadata, data={"DeviceInfoCfg": json.dumps(config)})
    assert "CheckCode" in clusterd.take(broken, T0)
    assert "DeviceInfoCfg" in clusterd.take(ConfigMap(metadata=wrong.metadata, data={}), T0)
    assert free(clusterd.written()["cluster-info-device-0"], "x") == {"a": 0xFF}


def test_a_node_to_be_left_when_idle_is_healthy_while_it_is_used() -> None:
    clusterd = a_clusterd("a")
    clusterd.take(of_noded("a"), T0)
    clusterd.take(of_noded("b"), T0)
    entries = read_nodes(clusterd.written()["cluster-info-node-cm"], {}).entries
    assert {name: entry.value.node_status for name, entry in entries.items()} == {"a": "Healthy", "b": "UnHealthy"}
    clusterd.drop("mindx-dl-nodeinfo-a")
    clusterd.drop("mindx-dl-nodeinfo-b")
    assert clusterd.written()["cluster-info-node-cm"] == ""


def test_chunks_are_bounded_hold_every_node_once_and_shrink_to_empty_ones() -> None:
    limit = 2_000
    clusterd = a_clusterd(chunk_bytes=limit)
    names = [f"n{index}" for index in range(20)]
    for name in names:
        clusterd.take(devices(name), T0)
    before = clusterd.written()
    texts = {name: text for name, text in before.items() if name.startswith("cluster-info-device-")}
    assert len(texts) > 3
    assert max(len(text.encode()) for text in texts.values()) <= limit
    assert sorted(node for name, text in texts.items() for node in free(text, name)) == sorted(names)
    hops = [clusterd.written() for _ in range(3)]
    assert any(after != before for after in hops), "nodes change their chunk"
    for name in names[1:]:
        clusterd.drop(f"mindx-dl-deviceinfo-{name}")
    after = clusterd.written()
    assert set(texts) <= set(after)
    assert [text for text in (after[name] for name in sorted(texts)[1:]) if text] == []
    chunks: Chunks[DeviceReport] = Chunks()
    for name in texts:
        chunks.take(name, read_devices(after[name], {}, name=name).entries, now_ms=T0)
    assert sorted(chunks.newest) == ["n0"]


def test_chunks_are_as_large_as_those_of_the_real_one() -> None:
    assert CHUNK_BYTES_MAX == 819_200


def test_an_entry_that_is_too_large_stands_alone() -> None:
    clusterd = a_clusterd(chunk_bytes=10)
    for name in ("a", "b"):
        clusterd.take(devices(name), T0)
    found = clusterd.written()
    assert sorted(name for name in found if "device" in name) == ["cluster-info-device-0", "cluster-info-device-1"]
