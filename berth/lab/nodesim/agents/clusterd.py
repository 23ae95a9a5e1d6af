"""ClusterD: checks and merges the reports of all nodes and spreads them over ConfigMaps of bounded size. Pure.

Source: docs/reference/kubernetes.md, "Cluster information".
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

import msgspec

from berth.formats.ascend import cluster_info, device_info, node_info
from berth.formats.ascend.check_code import GoValue, go_json
from berth.formats.ascend.device_info import DeviceInfo, DeviceInfoCfg, parse_switch_info, read_config
from berth.formats.ascend.node_info import NodeInfo, parse_node_info
from berth.formats.ascend.report_error import ReportError
from berth.formats.kubernetes.objects import ConfigMap
from berth.schemas.units import UnixMs

CHUNK_BYTES_MAX: Final = 800 * 1024
FOR_SCHEDULERS: Final = {"mx-consumer-volcano": "true"}
"""Label of ConfigMaps that schedulers read."""
_UNDECIDED: Final = "PreSeparate"


class ClusterD:
    """State of all nodes.

    Args:
        is_used: Whether some chip of a node is in use, by name of the node.
        rng: Determines the order in which nodes fill the chunks; it differs each time.
        chunk_bytes: Maximum size of a chunk; a larger node is alone in its chunk.
    """

    def __init__(self, is_used: Callable[[str], bool], rng: Random, *, chunk_bytes: int = CHUNK_BYTES_MAX) -> None:
        self._is_used = is_used
        self._rng = rng
        self._chunk_bytes = chunk_bytes
        self._devices: dict[str, tuple[DeviceInfoCfg, DeviceInfo]] = {}
        self._switches: dict[str, dict[str, GoValue]] = {}
        self._nodes: dict[str, tuple[NodeInfo, UnixMs]] = {}
        self._chunks: dict[str, int] = {}

    def take(self, found: ConfigMap, now_ms: UnixMs) -> str:
        """Take a report; returns why it is dropped, or an empty text. A node then keeps its previous report."""
        name, data = found.metadata.name, found.data or {}
        try:
            if name.startswith(device_info.NAME_PREFIX):
                self._take_devices(name.removeprefix(device_info.NAME_PREFIX), data)
            elif name.startswith(node_info.NAME_PREFIX):
                info = parse_node_info(data.get(node_info.KEY, ""))
                self._nodes[name.removeprefix(node_info.NAME_PREFIX)] = (info, now_ms)
        except ReportError as error:
            return f"{name}: {error}"
        return ""

    def drop(self, name: str) -> None:
        """Take the deletion of a ConfigMap: a node without NodeD's ConfigMap is healthy."""
        if name.startswith(node_info.NAME_PREFIX):
            self._nodes.pop(name.removeprefix(node_info.NAME_PREFIX), None)
        elif name.startswith(device_info.NAME_PREFIX):
            node = name.removeprefix(device_info.NAME_PREFIX)
            self._devices.pop(node, None)
            self._switches.pop(node, None)

    def names(self) -> list[str]:
        """Names of the known ConfigMaps, sorted."""
        return sorted(
            [
                *(device_info.NAME_PREFIX + node for node in self._devices),
                *(node_info.NAME_PREFIX + node for node in self._nodes),
            ]
        )

    def written(self) -> dict[str, str]:
        """Text of each ConfigMap by name; chunks that are no longer needed are empty."""
        devices = {device_info.NAME_PREFIX + node: self._device(node, found) for node, found in self._devices.items()}
        switches = {
            cluster_info.SWITCH_ENTRY_PREFIX + node: self._switch(node, found) for node, found in self._switches.items()
        }
        nodes = {
            node_info.NAME_PREFIX + node: self._node(node, info, at_ms)
            for node, (info, at_ms) in sorted(self._nodes.items())
        }
        whole = _joined([_member(key, value) for key, value in nodes.items()]) if nodes else ""
        return {
            **self._spread(cluster_info.DEVICE_PREFIX, devices),
            **self._spread(cluster_info.SWITCH_PREFIX, switches),
            cluster_info.NODE_NAME: whole,
        }

    def _take_devices(self, node: str, data: Mapping[str, str]) -> None:
        """Take the report of a device plug-in.

        Raises:
            ReportError: It cannot be read, or its check code is wrong.
        """
        self._devices[node] = read_config(data.get(device_info.KEY, ""))
        text = data.get(device_info.SWITCH_KEY)
        if text:
            parse_switch_info(text)
            self._switches[node] = msgspec.json.decode(text, type=dict[str, object])

    def _device(self, node: str, found: tuple[DeviceInfoCfg, DeviceInfo]) -> str:
        config, info = found
        return _joined(
            [
                _member("DeviceList", go_json(info.device_list)),
                _member("UpdateTime", str(info.update_time)),
                _member("CmName", go_json(device_info.NAME_PREFIX + node)),
                _member("SuperPodID", str(config.super_pod_id)),
                _member("RackID", str(config.rack_id or 0)),
                _member("ServerIndex", str(config.server_index)),
            ]
        )

    def _switch(self, node: str, found: dict[str, GoValue]) -> str:
        name = cluster_info.SWITCH_ENTRY_PREFIX + node
        status = self._decided(node, str(found.get("NodeStatus", "")))
        return _joined(
            [_member(key, go_json(value)) for key, value in {**found, "NodeStatus": status, "CmName": name}.items()]
        )

    def _node(self, node: str, info: NodeInfo, at_ms: UnixMs) -> str:
        return _joined(
            [
                _member("FaultDevList", go_json(tuple(info.fault_dev_list or ()))),
                _member("NodeStatus", go_json(self._decided(node, info.node_status))),
                _member("CmName", go_json(node_info.NAME_PREFIX + node)),
                _member("UpdateTime", str(at_ms)),
            ]
        )

    def _decided(self, node: str, status: str) -> str:
        """State of a node; a node to be left when idle is healthy while it is in use."""
        if status != _UNDECIDED:
            return status
        return "Healthy" if self._is_used(node) else "UnHealthy"

    def _spread(self, prefix: str, entries: Mapping[str, str]) -> dict[str, str]:
        """Entries as texts of at most ``chunk_bytes``, filled as far as possible, in random order."""
        order = sorted(entries)
        self._rng.shuffle(order)
        chunks: list[list[str]] = []
        size = 0
        for key in order:
            member = _member(key, entries[key])
            more = len(member.encode()) + 1
            if not chunks or size + more > self._chunk_bytes:
                chunks.append([])
                size = 1  # two brackets, and one comma fewer than members
            chunks[-1].append(member)
            size += more
        count = max(len(chunks), self._chunks.get(prefix, 0))
        self._chunks[prefix] = count
        return {f"{prefix}{index}": _joined(chunks[index]) if index < len(chunks) else "" for index in range(count)}


def _member(key: str, text: str) -> str:
    return f'"{key}":{text}'


def _joined(members: list[str]) -> str:
    return f"{{{','.join(members)}}}"
