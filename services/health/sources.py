"""Sources: ConfigMaps from the API server, decoded into reports.

A refused report makes the node suspect. It is counted, and logged once while it lasts. The last valid report stays in
force beside what can be read of the refused one. The reports of a deleted ConfigMap end with it.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from berth.formats.ascend import cluster_info, device_info, node_info
from berth.formats.ascend.cluster_info import ChunkRead, Chunks, Entry
from berth.formats.ascend.device_info import (
    DeviceReport,
    SwitchInfo,
    parse_device_info,
    parse_switch_info,
)
from berth.formats.ascend.node_info import NodeInfo, parse_node_info, refused_node_info
from berth.formats.ascend.refused_devices import refused_device_info, refused_switch_info
from berth.formats.ascend.report_error import RefusedReport, ReportError
from berth.formats.kubernetes.objects import ConfigMap
from berth.formats.kubernetes.paths import api_path
from berth.runtime.clock import Clock
from berth.runtime.instruments import Instruments
from berth.runtime.kube.port import Api, Change, Reflection
from berth.services.health.cluster_state import ClusterState
from berth.services.health.metrics import HealthMetrics
from berth.services.health.report_store import DEVICE, NODED, SWITCH, ReportStore

E = TypeVar("E")

_DIRECT_LABEL: Final = {"labelSelector": "mx-consumer-cim=true"}
_CLUSTERD_LABEL: Final = {"labelSelector": "mx-consumer-volcano=true"}


class ReportIntake:
    """Intake of reports, shared by all sources: stores reports and marks nodes as suspect.

    Args:
        report_store: Store of reports.
        cluster: Nodes and pods.
        clock: Source of time.
        on_change: Called with the nodes whose reports changed.
        instruments: Of the process.
    """

    def __init__(
        self,
        report_store: ReportStore,
        cluster: ClusterState,
        clock: Clock,
        on_change: Callable[[list[str]], None],
        instruments: Instruments[HealthMetrics],
    ) -> None:
        self.report_store = report_store
        self.clock = clock
        self.on_change = on_change
        self.log = instruments.log
        self.metrics = instruments.metrics
        self._cluster = cluster

    def device(self, node: str, report: DeviceReport, *, is_live: bool) -> None:
        """Take a report of a device plug-in."""
        self.report_store.put_device(
            node, report, now_ms=self.clock.now_ms(), is_live=is_live, idle=self._cluster.idle(node)
        )

    def accept(self, node: str, source: str) -> None:
        """Note that the newest report of a source on a node was read."""
        self.metrics.taken.labels(source).inc()
        if self.report_store.mark_valid(node, source):
            self.log.info("report recovered", node=node, source=source)

    def reject(
        self, node: str, source: str, error: ReportError, found: RefusedReport[E], *, is_live: bool = False
    ) -> None:
        """Note that the newest report of a source on a node is refused.

        Args:
            node: The node.
            source: The source.
            error: Why it is refused.
            found: What can be read of it.
            is_live: The change was watched, not found in a list.
        """
        self.refused(source)
        why = str(error)
        self.report_store.refuse(node, source, found, now_ms=self.clock.now_ms(), is_live=is_live)
        if self.report_store.mark_suspect(node, source, why):
            self.log.warning("report rejected, last valid one stays in force", node=node, source=source, reason=why)

    def refused(self, source: str) -> None:
        """Count content that cannot be read."""
        self.metrics.refused.labels(source).inc()


class DirectMaps:
    """ConfigMaps of one kind, one per node, written on the node.

    Args:
        intake: Intake of reports.
        prefix: Prefix of the names; the node's name follows.
        read: Takes a node, the data, and whether the change was watched live.
        drop: Takes a node whose ConfigMap is gone.
    """

    def __init__(
        self,
        intake: ReportIntake,
        prefix: str,
        read: Callable[[str, Mapping[str, str], bool], None],
        drop: Callable[[str], None],
    ) -> None:
        self._intake = intake
        self._prefix = prefix
        self._read = read
        self._drop = drop
        self._versions: dict[str, str] = {}
        """Resource versions of the ConfigMaps that were read, by node."""

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take all ConfigMaps."""
        found = {node: one for one in objects if (node := self._node(one))}
        changed = [node for node in sorted(found) if self._take(node, found[node], is_live=False)]
        gone = sorted(set(self._versions) - set(found))
        for node in gone:
            self._lose(node)
        self._intake.on_change([*changed, *gone])

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take changes."""
        touched = []
        for kind, one in changes:
            node = self._node(one)
            if not node:
                continue
            if kind == "DELETED":
                self._lose(node)
            else:
                self._take(node, one, is_live=True)
            touched.append(node)
        self._intake.on_change(touched)

    def _node(self, one: ConfigMap) -> str:
        name = one.metadata.name
        return name.removeprefix(self._prefix) if name.startswith(self._prefix) else ""

    def _take(self, node: str, one: ConfigMap, *, is_live: bool) -> bool:
        version = one.metadata.resource_version
        if version and self._versions.get(node) == version:
            return False
        self._versions[node] = version
        self._read(node, one.data or {}, is_live)
        return True

    def _lose(self, node: str) -> None:
        self._versions.pop(node, None)
        self._drop(node)


class Direct:
    """ConfigMaps that device plug-ins and NodeD write, one per node."""

    def __init__(self, intake: ReportIntake) -> None:
        self._intake = intake
        self.devices = DirectMaps(intake, device_info.NAME_PREFIX, self._device, self._no_device)
        self.nodes = DirectMaps(intake, node_info.NAME_PREFIX, self._noded, self._no_noded)

    def reflections(self, api: Api) -> list[Reflection]:
        """Reflections of both kinds."""
        return [
            api.reflect(_maps(device_info.NAMESPACE), ConfigMap, self.devices, params=_DIRECT_LABEL),
            api.reflect(_maps(node_info.NAMESPACE), ConfigMap, self.nodes, params=_DIRECT_LABEL),
        ]

    def _device(self, node: str, data: Mapping[str, str], is_live: bool) -> None:  # noqa: FBT001 - called by position
        try:
            report = parse_device_info(_value(data, device_info.KEY))
        except ReportError as error:
            found = _refused(data, device_info.KEY, refused_device_info, error)
            self._intake.reject(node, DEVICE, error, found, is_live=is_live)
        else:
            self._intake.device(node, report, is_live=is_live)
            self._intake.accept(node, DEVICE)
        self._switch(node, data.get(device_info.SWITCH_KEY, ""))

    def _switch(self, node: str, text: str) -> None:
        """Take the part of the switch; most products have none."""
        try:
            info = parse_switch_info(text) if text.strip() else None
        except ReportError as error:
            self._intake.reject(node, SWITCH, error, refused_switch_info(text))
            return
        self._intake.report_store.put_switch(node, info)
        self._intake.accept(node, SWITCH)

    def _no_device(self, node: str) -> None:
        """Drop the reports of the plug-in, and those of the switch."""
        self._intake.report_store.drop_device(node)
        self._intake.report_store.put_switch(node, None)
        self._intake.report_store.mark_valid(node, SWITCH)

    def _noded(self, node: str, data: Mapping[str, str], is_live: bool) -> None:  # noqa: FBT001 - called by position
        del is_live  # NodeD writes only while there is a fault, not periodically
        try:
            info = parse_node_info(_value(data, node_info.KEY))
        except ReportError as error:
            found = _refused(data, node_info.KEY, refused_node_info, error)
            self._intake.reject(node, NODED, error, found)
            return
        self._intake.report_store.put_node(node, info)
        self._intake.accept(node, NODED)

    def _no_noded(self, node: str) -> None:
        """Take the deletion of NodeD's ConfigMap: the node is healthy."""
        self._intake.report_store.put_node(node, None)
        self._intake.report_store.mark_valid(node, NODED)


class Clusterd:
    """ConfigMaps that ClusterD writes, each with many nodes."""

    def __init__(self, intake: ReportIntake) -> None:
        self._intake = intake
        self._devices: Chunks[DeviceReport] = Chunks()
        self._switches: Chunks[SwitchInfo] = Chunks()
        self._nodes: dict[str, Entry[NodeInfo]] | None = None
        """By node, as the last list said that could be read; None before the first."""
        self._versions: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        """Why chunks cannot be read as a whole, by name."""
        self._is_live = False
        self._log = intake.log
        self._metrics = intake.metrics

    def reflections(self, api: Api) -> list[Reflection]:
        """The one reflection."""
        return [api.reflect(_maps(cluster_info.NAMESPACE), ConfigMap, self, params=_CLUSTERD_LABEL)]

    def replace(self, objects: list[ConfigMap]) -> None:
        """Take all ConfigMaps."""
        self._is_live = False
        found = {one.metadata.name: one for one in objects}
        for name in sorted(found):
            self._take(name, found[name])
        for name in sorted(set(self._versions) - set(found)):
            self._lose(name)

    def change(self, changes: list[tuple[Change, ConfigMap]]) -> None:
        """Take changes."""
        self._is_live = True
        for kind, one in changes:
            if kind == "DELETED":
                self._lose(one.metadata.name)
            else:
                self._take(one.metadata.name, one)

    def forget(self, *, after_ms: int) -> None:
        """Drop reports that no chunk has held for ``after_ms``: a node's switch then counts as healthy."""
        now_ms = self._intake.clock.now_ms()
        self._devices.forget(now_ms=now_ms, after_ms=after_ms)
        gone = self._switches.forget(now_ms=now_ms, after_ms=after_ms)
        self._put_switches(gone)
        for node in gone:
            self._intake.report_store.mark_valid(node, SWITCH)
        if gone:
            self._intake.on_change(gone)

    def _lose(self, name: str) -> None:
        """Take the deletion of a chunk, which removes no report; a deleted list of unhealthy nodes counts as empty."""
        self._versions.pop(name, None)
        self._take(name, ConfigMap(data={name: ""}))
        self._versions.pop(name, None)

    def _take(self, name: str, one: ConfigMap) -> None:
        version = one.metadata.resource_version
        if version and self._versions.get(name) == version:
            return
        self._versions[name] = version
        try:
            text = _value(one.data or {}, name)
            if name.startswith(cluster_info.DEVICE_PREFIX):
                changed = self._take_devices(name, text)
            elif name.startswith(cluster_info.SWITCH_PREFIX):
                changed = self._take_switches(name, text)
            elif name == cluster_info.NODE_NAME:
                changed = self._take_nodes(text)
            else:
                return
        except ReportError as error:
            self._refuse(name, error)
            return
        if self._refused.pop(name, None) is not None:
            self._log.info("chunk recovered", chunk=name)
        self._intake.on_change(changed)

    def _refuse(self, name: str, error: ReportError) -> None:
        """Reject a chunk that cannot be read as a whole: its previous content stays in force and ages."""
        self._intake.refused("ClusterD")
        if name not in self._refused:
            self._log.warning("chunk rejected, previous content stays in force", chunk=name, reason=str(error))
        self._refused[name] = str(error)
        nodes = self._held_by(name)
        self._suspect(nodes, _source_of(name), str(error))
        self._intake.on_change(nodes)

    def _held_by(self, name: str) -> list[str]:
        if name == cluster_info.NODE_NAME:
            return sorted(self._devices.newest if self._nodes is None else self._nodes)
        chunks = self._devices if name.startswith(cluster_info.DEVICE_PREFIX) else self._switches
        return chunks.held_by(name)

    def _suspect(self, nodes: list[str], source: str, why: str) -> None:
        """Mark nodes of a chunk that cannot be read: without a list of unhealthy nodes, any node may be one."""
        gap = why if source == NODED and self._nodes is None else ""
        for node in nodes:
            found: RefusedReport[object] = RefusedReport(None, gap)
            self._intake.report_store.refuse(node, source, found, now_ms=self._intake.clock.now_ms())
            self._intake.report_store.mark_suspect(node, source, why)

    def _take_devices(self, name: str, text: str) -> list[str]:
        read = cluster_info.read_devices(text, self._devices.newest, name=name)
        changed = self._devices.take(name, read.entries, now_ms=self._intake.clock.now_ms())
        for node in changed:
            self._intake.device(node, self._devices.newest[node].value, is_live=self._is_live)
        if self._nodes is None and (why := self._refused.get(cluster_info.NODE_NAME)):
            self._suspect(changed, NODED, why)
        return [*changed, *self._judge(read, DEVICE)]

    def _take_switches(self, name: str, text: str) -> list[str]:
        read = cluster_info.read_switches(text, self._switches.newest, name=name)
        changed = self._switches.take(name, read.entries, now_ms=self._intake.clock.now_ms())
        self._put_switches(changed)
        return [*changed, *self._judge(read, SWITCH)]

    def _put_switches(self, nodes: list[str]) -> None:
        for node in nodes:
            entry = self._switches.newest.get(node)
            self._intake.report_store.put_switch(node, entry.value if entry is not None else None)

    def _take_nodes(self, text: str) -> list[str]:
        before = self._nodes or {}
        read = cluster_info.read_nodes(text, before)
        self._nodes = read.entries
        changed = sorted(node for node in {*before, *read.entries} if before.get(node) is not read.entries.get(node))
        for node in changed:
            entry = read.entries.get(node)
            self._intake.report_store.put_node(node, entry.value if entry is not None else None)
        known = {*read.entries, *read.errors}
        healthy = [node for node in self._intake.report_store.suspects_of(NODED) if node not in known]
        for node in healthy:
            self._intake.report_store.mark_valid(node, NODED)
        return [*changed, *healthy, *self._judge(read, NODED)]

    def _judge(self, read: ChunkRead[E], source: str) -> list[str]:
        """Note which entries are valid and which are not; returns the nodes that changed."""
        for node, error in read.errors.items():
            found = read.refused.get(node) or RefusedReport(None)
            self._intake.reject(node, source, error, found, is_live=self._is_live)
        self._metrics.taken.labels(source).inc(len(read.entries))
        trusted = [
            node
            for node in read.entries
            if node not in read.errors and self._intake.report_store.mark_valid(node, source)
        ]
        if trusted:
            self._log.info("reports recovered", source=source, nodes=len(trusted), first=trusted[0])
        return [*read.errors, *trusted]


def _value(data: Mapping[str, str], key: str) -> str:
    """Value of a key.

    Raises:
        ReportError: The key is missing.
    """
    if key not in data:
        raise ReportError(field=f"data.{key}", value=None, expected=f"a text; the keys are {sorted(data)}")
    return data[key]


def _refused(
    data: Mapping[str, str], key: str, read: Callable[[str], RefusedReport[E]], error: ReportError
) -> RefusedReport[E]:
    """What can be read under a key whose report is refused with an error."""
    return read(data[key]) if key in data else RefusedReport(None, str(error))


def _source_of(chunk: str) -> str:
    if chunk == cluster_info.NODE_NAME:
        return NODED
    return DEVICE if chunk.startswith(cluster_info.DEVICE_PREFIX) else SWITCH


def _maps(namespace: str) -> str:
    return api_path("v1", "namespaces", namespace, "configmaps")
