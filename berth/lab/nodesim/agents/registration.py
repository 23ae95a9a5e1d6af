"""Objects that represent simulated nodes in Kubernetes: Node, Lease, and the ConfigMap of leaf switches. Pure.

Source: docs/reference/kubernetes.md, "Map of leaf switches" and "Node labels and annotations".
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from berth.formats.ascend.check_code import go_json
from berth.formats.ascend.pod_annotations import (
    BASE_DEVICE_INFOS,
    RACK_ID,
    SERIAL_NUMBER,
    SERVER_INDEX,
    SUPERPOD_ID,
    chip_names,
)
from berth.formats.ascend.tor_config import CONFIG_MAP, NAMESPACE, TOR_INFO, TOR_LEVEL
from berth.formats.clusters.topology_file import Cluster
from berth.lab.nodesim.agents.device_plugin import shares_of
from berth.lab.nodesim.agents.device_report import Place
from berth.lab.nodesim.stamps import micro_stamp, stamp
from berth.products.catalogue import A3_NODES
from berth.products.model import LABEL_TYPE, RESOURCE_310, RESOURCE_310P, RESOURCE_NPU
from berth.schemas.nodes import NodeDescription
from berth.schemas.units import UnixMs

SERVER_TYPE: Final = "serverType"
PODS_MAX: Final = 250
DISK: Final = "1Ti"
"""Of each node; kubelet always states it, and some operators ask for a part of it."""
LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_LASTS_S: Final = 40
NO_SUPER_DEVICE: Final = 4_294_967_295
"""SuperDeviceID of a chip in no SuperPoD: the driver's -1 as an unsigned number."""
_CHIP_NAME_LABEL: Final = "node.kubernetes.io/npu.chip.name"
_CHIP_NAMES: Final = {RESOURCE_NPU: "Ascend950PR", RESOURCE_310P: "310P3", RESOURCE_310: "310"}
_SERVER_TYPES: Final = {RESOURCE_NPU: "npu-64", RESOURCE_310P: "Ascend310P-8", RESOURCE_310: "Ascend310-2"}
_CHIPS_BITS: Final = 6


def places_of(nodes: Iterable[NodeDescription]) -> dict[str, Place]:
    """Place of each node in its SuperPoD, in the given order; a name that is not a number gets an unused one."""
    nodes = list(nodes)
    names = list(dict.fromkeys(node.superpod for node in nodes if node.superpod))
    numbers = {name: int(name) for name in names if name.isascii() and name.isdigit()}
    unused = iter(number for number in range(len(names) * 2 + 1) if number not in set(numbers.values()))
    for name in names:
        if name not in numbers:
            numbers[name] = next(unused)
    counted: dict[str, int] = {}
    places: dict[str, Place] = {}
    for node in nodes:
        if not node.superpod:
            places[node.name] = Place()
            continue
        index = counted.get(node.superpod, 0)
        counted[node.superpod] = index + 1
        rack = int(node.rack) if node.rack else None
        places[node.name] = Place(numbers[node.superpod], index, rack)
    return places


def base_device_infos(node: NodeDescription, place: Place, *, reversed_ids: bool) -> dict[str, dict[str, Any]]:
    """Chips of a node with their addresses.

    Args:
        node: The node.
        place: Its place in a SuperPoD.
        reversed_ids: On nodes whose chips have their own device ids, the last chip has id 0.
    """
    _, *parts = (int(part) for part in node.address.split("."))
    number = parts[0] << 16 | parts[1] << 8 | parts[2]
    chips = [chip for chip in range(node.chips.bit_length()) if node.chips >> chip & 1]
    found: dict[str, dict[str, Any]] = {}
    for index, chip in enumerate(chips):
        address = number << _CHIPS_BITS | chip
        info: dict[str, Any] = {
            "IP": f"{20 + (address >> 24)}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}",
            "SuperDeviceID": place.server << _CHIPS_BITS | chip if place.superpod >= 0 else NO_SUPER_DEVICE,
        }
        if node.resource == RESOURCE_NPU:
            info["DeviceID"] = chips[-1 - index] if reversed_ids else chip
        found[chip_names(node.resource, [chip])] = info
    return found


def node_body(
    node: NodeDescription, infos: Mapping[str, Mapping[str, Any]], place: Place, now_ms: UnixMs
) -> dict[str, Any]:
    """Node as registered by kubelet and device plug-in; all its chips are allocatable."""
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node.name,
            "labels": {**_labels(node), **node.labels},
            "annotations": _annotations(node, infos, place),
        },
        "spec": {"unschedulable": node.cordoned, "taints": taints},
        "status": node_status(node, node.chips.bit_count(), is_ready=node.ready, now_ms=now_ms),
    }


def node_status(node: NodeDescription, allocatable: int, *, is_ready: bool, now_ms: UnixMs) -> dict[str, Any]:
    """Status of a node.

    Args:
        node: The node.
        allocatable: Number of chips that kubelet would allocate.
        is_ready: Whether kubelet is healthy; the node controller marks a silent one.
        now_ms: The time.
    """
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "ephemeral-storage": DISK,
        "pods": str(PODS_MAX),
    }
    parts = shares_of(node)
    chips = {node.resource: str(node.chips.bit_count() * parts)} if node.resource else {}
    free = {node.resource: str(allocatable * parts)} if node.resource else {}
    state = ("True", "KubeletReady", "kubelet is posting ready status")
    if not is_ready:
        state = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    return {
        "capacity": amounts | chips,
        "allocatable": amounts | free,
        "addresses": [
            {"type": "InternalIP", "address": node.address},
            {"type": "Hostname", "address": node.name},
        ],
        "conditions": [
            {
                "type": "Ready",
                "status": state[0],
                "reason": state[1],
                "message": state[2],
                "lastHeartbeatTime": stamp(now_ms),
                "lastTransitionTime": stamp(now_ms),
            }
        ],
        "nodeInfo": {
            "architecture": "arm64",
            "bootID": "",
            "containerRuntimeVersion": "sim://1",
            "kernelVersion": "sim",
            "kubeProxyVersion": "sim",
            "kubeletVersion": "sim",
            "machineID": node.name,
            "operatingSystem": "linux",
            "osImage": "sim",
            "systemUUID": node.name,
        },
    }


def lease_body(node: str, now_ms: UnixMs) -> dict[str, Any]:
    """Lease that states that a node's kubelet lives."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": LEASE_LASTS_S,
            "renewTime": micro_stamp(now_ms),
        },
    }


def leaves_data(cluster: Cluster) -> dict[str, str]:
    """Data of ConfigMap ``basic-tor-node-cm``; empty for a cluster without leaf switches."""
    below: dict[str, list[NodeDescription]] = {}
    for node in cluster.nodes:
        if node.leaf:
            below.setdefault(node.leaf, []).append(node)
    if not below:
        return {}
    leaves = [
        {
            "tor_id": index,
            "tor_ip": leaf_address(index),
            "server": [
                {
                    "server_ip": node.address,
                    "npu_count": node.chips.bit_count(),
                    "slice_id": node.position,
                }
                for node in found
            ],
        }
        for index, found in enumerate(below.values())
    ]
    count = cluster.switches.places or max(len(found) for found in below.values())
    info = {"version": "1.0", "tor_count": count, "server_list": leaves}
    return {TOR_INFO: go_json(info), TOR_LEVEL: cluster.switches.level}  # type: ignore[arg-type]  # plain lists and maps


def leaf_address(index: int) -> str:
    """Address of a leaf switch by its number in the file."""
    number = index + 1
    return f"172.{16 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def leaves_body(data: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap of leaf switches."""
    return config_map(NAMESPACE, CONFIG_MAP, data)


def config_map(
    namespace: str, name: str, data: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A ConfigMap."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def _labels(node: NodeDescription) -> dict[str, str]:
    """Labels that kubelet and device plug-in set."""
    found = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "workerselector": "dls-worker-node",
        "nodeDEnable": "on",
    }
    if node.resource:
        found[_CHIP_NAME_LABEL] = _CHIP_NAMES.get(node.resource) or _chip_name(node)
        found["servertype"] = _SERVER_TYPES.get(node.resource, "Ascend910-32")
        found["huawei.com/driver.version"] = "25.5.0"
    return found


def _chip_name(node: NodeDescription) -> str:
    kind = node.labels.get(LABEL_TYPE, "")
    if node.product in A3_NODES:
        return "Ascend910_9392"
    return "910B3" if "910b" in kind else "910A"


def _annotations(node: NodeDescription, infos: Mapping[str, Mapping[str, Any]], place: Place) -> dict[str, str]:
    found = {SERIAL_NUMBER: f"SN-{node.name}"}
    if node.resource:
        found[BASE_DEVICE_INFOS] = go_json(infos)
        found[SUPERPOD_ID] = str(place.superpod)
        found[SERVER_INDEX] = str(place.server)
        found[SERVER_TYPE] = _SERVER_TYPES.get(node.resource, "Ascend910-32")
    if place.rack is not None:
        found[RACK_ID] = str(place.rack)
    return found
