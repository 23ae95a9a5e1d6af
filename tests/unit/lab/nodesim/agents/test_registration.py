"""Simulated nodes say where they stand in SuperPoDs, on their objects and in their device plug-ins' reports."""

from random import Random
from typing import Final

import msgspec

from berth.formats.ascend.cluster_info import read_devices
from berth.formats.ascend.device_info import NAME_PREFIX
from berth.formats.clusters.topology_file import parse_cluster
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.node_place import NodePlace, reported_place
from berth.formats.kubernetes.nodes import read_node
from berth.formats.kubernetes.objects import ConfigMap, Node
from berth.lab.nodesim.agents.clusterd import ClusterD
from berth.lab.nodesim.agents.device_report import Place, device_data, device_list
from berth.lab.nodesim.agents.registration import base_device_infos, node_body, places_of
from berth.lab.nodesim.breakage import Broken

TOPOLOGY: Final = """
apiVersion: berth/v1
kind: Cluster
nodes:
  - {product: superpod950x8, count: 10, name: "a5-{index}", superpod: {size: 9}}
  - {product: superpod910a3x16, count: 2, name: "a3-{index}", superpod: {size: 2, name: "p{index}"}, rack: {size: 1}}
  - {product: superpod910a3x8, name: a4, superpod: "0"}
  - {product: module910bx8, name: a2, leaf: sw}
"""
"""Two SuperPoDs with racks, one with a name that is no number, a node without a rack, and one outside."""


def test_numbers_follow_the_file_and_a_name_that_is_none_gets_one() -> None:
    places = places_of(parse_cluster(TOPOLOGY).nodes)
    assert places["a5-0"] == Place(0, 0, 0)
    assert places["a5-8"] == Place(0, 8, 1)
    assert places["a5-9"] == Place(1, 0, 0)
    assert (places["a3-0"], places["a3-1"]) == (Place(2, 0, 0), Place(2, 1, 1))
    assert places["a4"] == Place(0, 9, None)
    assert places["a2"] == Place()


def test_what_a_node_registers_is_read_back_from_its_object_and_from_its_report() -> None:
    cluster = parse_cluster(TOPOLOGY)
    places = places_of(cluster.nodes)
    clusterd = ClusterD(lambda _: False, Random(0))  # noqa: S311 - repeatable
    for node in cluster.nodes:
        place = places[node.name]
        body = node_body(node, base_device_infos(node, place, reversed_ids=False), place, 0)
        found = read_node(msgspec.convert(body, Node))
        rack = "" if place.rack is None else str(place.rack)
        number = "" if place.superpod < 0 else str(place.superpod)
        assert (found.node.superpod, found.node.rack, found.node.position) == (number, rack, max(place.server, 0))
        assert found.reasons == ()
        data = device_data(node, place, Broken(), device_list(node, Broken(), taken=0, used=0), 0, release="this")
        assert reported_place(data["DeviceInfoCfg"]) == NodePlace(place.superpod, place.rack, place.server)
        assert clusterd.take(ConfigMap(metadata=Meta(name=NAME_PREFIX + node.name), data=data), 0) == ""
    chunk = clusterd.written()["cluster-info-device-0"]
    for name, entry in read_devices(chunk, {}, name="chunk").entries.items():
        place, told = places[name], entry.value
        assert (told.superpod_id, told.server_index, told.rack_id) == (place.superpod, place.server, place.rack or 0)
