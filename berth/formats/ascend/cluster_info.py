"""Reports of ClusterD on all nodes.

ConfigMaps ``cluster-info-device-<m>``, ``cluster-info-switch-<x>`` and ``cluster-info-node-cm``. ClusterD redistributes
the nodes over chunks at each write, in no order: a node that is missing from a chunk is in another one, or will be. A
chunk that is no longer needed is emptied, or keeps old entries forever. So a chunk removes nothing, and of several
entries of a node the newest counts. ``cluster-info-node-cm`` is one object: it replaces its former content.

Source: docs/reference/kubernetes.md, "Cluster information" and "Rules for readers".
"""

from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from berth.formats.ascend import device_info, node_info
from berth.formats.ascend.device_info import (
    DeviceReport,
    SwitchInfo,
    report_of,
    switch_info_of,
    texts_of,
)
from berth.formats.ascend.node_info import FaultDevice, NodeInfo, refused_info_of, with_health
from berth.formats.ascend.refused_devices import refused_report_of, refused_switch_info
from berth.formats.ascend.report_error import RefusedReport, ReportError, decoded
from berth.formats.whole_numbers import Int64

E = TypeVar("E")

NAMESPACE: Final = "mindx-dl"
DEVICE_PREFIX: Final = "cluster-info-device-"
SWITCH_PREFIX: Final = "cluster-info-switch-"
NODE_NAME: Final = "cluster-info-node-cm"
SWITCH_ENTRY_PREFIX: Final = "mindx-dl-switchinfo-"
_MS: Final = 1000


class _DeviceEntry(msgspec.Struct, frozen=True, rename="pascal"):
    device_list: dict[str, object] | None = None
    update_time: Int64 = 0
    device_info: "_DeviceEntry | None" = None
    """In early releases: the object of the device plug-in's report, which has the list."""
    super_pod_id: Int64 = msgspec.field(default=-2, name="SuperPodID")
    server_index: Int64 = -2
    rack_id: Int64 | None = msgspec.field(default=None, name="RackID")


class _NodeEntry(msgspec.Struct, frozen=True, rename="pascal"):
    fault_dev_list: list[FaultDevice] | None = None
    node_status: str = ""
    update_time: Int64 = 0


class Entry(msgspec.Struct, Generic[E], frozen=True):
    """Entry of a node in a chunk.

    Attributes:
        value: The report.
        updated_ms: Its UpdateTime in milliseconds, by the clock of its writer.
        raw: Its bytes, to recognize an unchanged entry.
    """

    value: E
    updated_ms: int
    raw: bytes


class _LooseEntry(msgspec.Struct, frozen=True, rename="pascal"):
    device_list: dict[str, object]
    update_time: object = 0


class _Kind(NamedTuple, Generic[E]):
    """How the entries of a kind of chunk are read.

    Attributes:
        prefix: Of the keys; the name of the node follows.
        parse: Report of an entry and its time in milliseconds; it raises :class:`ReportError`.
        refused: What can be read of an entry that ``parse`` refuses.
    """

    prefix: str
    parse: Callable[[msgspec.Raw, str], tuple[E, int]]
    refused: Callable[[msgspec.Raw, str], RefusedReport[E]]


_DEVICE: Final = msgspec.json.Decoder(_DeviceEntry)
_LOOSE: Final = msgspec.json.Decoder(_LooseEntry)
_NODE: Final = msgspec.json.Decoder(_NodeEntry)
_CHUNK: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ChunkRead(msgspec.Struct, Generic[E], frozen=True):
    """A decoded chunk.

    Attributes:
        entries: Entries by node; those that are refused are the known ones.
        errors: Errors of those that are refused, by node, or by key where no node is named.
        refused: What can be read of those, by node.
    """

    entries: dict[str, Entry[E]]
    errors: dict[str, ReportError]
    refused: dict[str, RefusedReport[E]]


def read_devices(text: str, before: Mapping[str, Entry[DeviceReport]], *, name: str) -> ChunkRead[DeviceReport]:
    """Device reports of a chunk.

    Args:
        text: Value of the key of the chunk; empty for a chunk that is no longer needed.
        before: Known entries: one with the same bytes is not decoded again.
        name: Name of the chunk, for errors.

    Raises:
        ReportError: The chunk as a whole is no JSON object.
    """
    return _read(text, before, _Kind(device_info.NAME_PREFIX, _device, _refused_device), name=name)


def read_switches(text: str, before: Mapping[str, Entry[SwitchInfo]], *, name: str) -> ChunkRead[SwitchInfo]:
    """Switch reports of a chunk; as :func:`read_devices`.

    Raises:
        ReportError: As there.
    """
    return _read(text, before, _Kind(SWITCH_ENTRY_PREFIX, _switch, refused_switch_info), name=name)


def read_nodes(text: str, before: Mapping[str, Entry[NodeInfo]], *, name: str = NODE_NAME) -> ChunkRead[NodeInfo]:
    """Reports of all nodes that have a fault; as :func:`read_devices`, but missing nodes are healthy.

    Raises:
        ReportError: As there.
    """
    return _read(text, before, _Kind(node_info.NAME_PREFIX, _node, refused_info_of), name=name)


class Chunks(Generic[E]):
    """Merged entries of all chunks of a kind; see the module.

    An entry that is no longer in any chunk is kept until :meth:`forget`.
    """

    def __init__(self) -> None:
        self._chunks: dict[str, dict[str, Entry[E]]] = {}
        self._holders: dict[str, dict[str, None]] = {}
        """Names of the chunks that have each node now."""
        self._taken: dict[str, int] = {}
        """Order in which chunks were last taken, as an increasing number."""
        self._memory: dict[str, tuple[Entry[E], int]] = {}
        """Newest entry of a node that left its chunk, and the time at which it left."""
        self.newest: dict[str, Entry[E]] = {}
        """Valid entry of each node."""

    def take(self, name: str, entries: Mapping[str, Entry[E]], *, now_ms: int) -> list[str]:
        """Take the present content of a chunk.

        Args:
            name: Name of the chunk.
            entries: All its entries by node; none for a chunk that was emptied or deleted.
            now_ms: The time.

        Returns:
            Nodes whose valid entry changed, sorted.
        """
        old = self._chunks.get(name, {})
        self._chunks[name] = dict(entries)
        self._taken[name] = max(self._taken.values(), default=0) + 1
        touched = sorted({*old, *entries})
        for node in touched:
            holders = self._holders.setdefault(node, {})
            if node in entries:
                holders[name] = None
            else:
                holders.pop(name, None)
                left = self._memory.get(node)
                if left is None or left[0].updated_ms <= old[node].updated_ms:
                    self._memory[node] = (old[node], now_ms)
        return [node for node in touched if self._settle(node)]

    def held_by(self, name: str) -> list[str]:
        """Nodes that are in a chunk now, sorted."""
        return sorted(self._chunks.get(name, ()))

    def forget(self, *, now_ms: int, after_ms: int) -> list[str]:
        """Forget entries that left their chunk ``after_ms`` ago or earlier; returns as :meth:`take`."""
        due = sorted(node for node, (_, left_ms) in self._memory.items() if now_ms - left_ms >= after_ms)
        for node in due:
            del self._memory[node]
        return [node for node in due if self._settle(node)]

    def _settle(self, node: str) -> bool:
        """Choose the valid entry of a node; whether it changed."""
        holders = self._holders.get(node, {})
        # Of equal times the chunk that was written last counts: ClusterD may change an entry without a new time.
        best_chunk = max(
            holders, key=lambda chunk: (self._chunks[chunk][node].updated_ms, self._taken[chunk]), default=None
        )
        best = self._chunks[best_chunk][node] if best_chunk is not None else None
        left = self._memory.get(node)
        if left is not None and (best is None or left[0].updated_ms > best.updated_ms):
            best = left[0]
        elif best is not None:
            self._memory.pop(node, None)
        before = self.newest.get(node)
        if best is None:
            self.newest.pop(node, None)
            self._holders.pop(node, None)
            return before is not None
        self.newest[node] = best
        return before is None or before.raw != best.raw


def _read(text: str, before: Mapping[str, Entry[E]], kind: _Kind[E], *, name: str) -> ChunkRead[E]:
    entries: dict[str, Entry[E]] = {}
    errors: dict[str, ReportError] = {}
    refused: dict[str, RefusedReport[E]] = {}
    for key, raw in (decoded(text, _CHUNK, field=name) if text.strip() else {}).items():
        node = key.removeprefix(kind.prefix)
        field = f"{name}[{key}]"
        if node == key or not node:
            errors[key] = ReportError(field=field, value=key, expected=f"a key {kind.prefix}<node>")
            continue
        known = before.get(node)
        data = bytes(raw)
        if known is not None and known.raw == data:
            entries[node] = known
            continue
        try:
            value, updated_ms = kind.parse(raw, field)
        except ReportError as error:
            errors[node] = error
            refused[node] = kind.refused(raw, field)
            if known is not None:
                entries[node] = known  # the last valid entry stays in force
            continue
        entries[node] = Entry(value, updated_ms, data)
    return ChunkRead(entries, errors, refused)


def _device(raw: msgspec.Raw, field: str) -> tuple[DeviceReport, int]:
    entry = decoded(raw, _DEVICE, field=field)
    sent, where = entry, field
    if entry.device_list is None and entry.device_info is not None:
        sent, where = entry.device_info, f"{field}.DeviceInfo"
    if sent.device_list is None:
        raise ReportError(field=f"{where}.DeviceList", value=None, expected="a map of texts")
    report = report_of(texts_of(sent.device_list, where), update_s=sent.update_time, field=where)
    report = msgspec.structs.replace(
        report, superpod_id=entry.super_pod_id, server_index=entry.server_index, rack_id=entry.rack_id
    )
    return report, sent.update_time * _MS


def _refused_device(raw: msgspec.Raw, field: str) -> RefusedReport[DeviceReport]:
    try:
        loose = decoded(raw, _LOOSE, field=field)
    except ReportError as error:
        return RefusedReport(None, str(error))
    return refused_report_of(loose.device_list, loose.update_time, field=field)


def _switch(raw: msgspec.Raw, field: str) -> tuple[SwitchInfo, int]:
    entry = switch_info_of(raw, field)
    return entry, entry.update_time * _MS


def _node(raw: msgspec.Raw, field: str) -> tuple[NodeInfo, int]:
    entry = decoded(raw, _NODE, field=field)
    info = with_health(NodeInfo(entry.fault_dev_list, entry.node_status), field)
    return info, entry.update_time  # this one is in milliseconds
