"""Conversion of node descriptions into the columns of facts, and back."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import HealthSeen, Leaf, NodeClass, NodeHealth, NodesSeen, TopologySeen
from berth.schemas.nodes import NodeCondition, NodeDescription
from berth.schemas.units import UnixMs

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
"""Label whose value is the name of the node; classes omit it."""
SWITCHES: Final = "switch"
"""Kind of the topology fact of leaf switches."""
_CLASS_BYTES: Final = msgspec.msgpack.Encoder(order="deterministic")


class RepeatedNodeError(ValueError):
    """A node occurs twice where each node may occur once.

    Attributes:
        node: Name of the node.
    """

    def __init__(self, node: str) -> None:
        super().__init__(f"node {node!r} is given twice")
        self.node = node


def pack_nodes(domain: str, nodes: Iterable[NodeDescription], *, at_ms: UnixMs = 0) -> NodesSeen:
    """Fact with all nodes of a domain. Without nodes it means that the domain does not exist.

    Equal nodes share a class. The bytes depend only on the nodes, not on their order.

    Raises:
        RepeatedNodeError: A name occurs twice.
        OverflowError: A number does not fit into its column.
    """
    rows = sorted(nodes, key=lambda node: node.name)
    _check_once([node.name for node in rows])
    classes, class_index = _classes(rows)
    superpods, superpod_index = _named([node.superpod for node in rows])
    leaves, leaf_index = _named([node.leaf for node in rows])
    racks, rack_index = _named([node.rack for node in rows])
    addresses = [node.address for node in rows]
    return NodesSeen(
        domain=domain,
        names=pack_names([node.name for node in rows]),
        classes=classes,
        class_index=pack(class_index, 2),
        chips=pack([node.chips for node in rows], 8),
        allocatable=pack([node.allocatable for node in rows], 2),
        cpu_milli=pack([node.cpu_milli for node in rows], 4),
        memory_mib=pack([node.memory_mib for node in rows], 4),
        superpods=superpods,
        superpod_index=pack(superpod_index, 4),
        leaves=leaves,
        leaf_index=pack(leaf_index, 4),
        position=pack([node.position for node in rows], 2),
        addresses=addresses if all(addresses) else [],
        at_ms=at_ms,
        racks=racks,
        rack_index=pack(rack_index, 4) if racks else b"",
        cpu_others=_unless_zero([node.cpu_others for node in rows]),
        memory_others=_unless_zero([node.memory_others for node in rows]),
        chips_others=_unless_zero([node.chips_others for node in rows], 2),
        unsettled=_unless_zero([node.is_unsettled for node in rows], 1),
    )


def _unless_zero(amounts: Sequence[int], width: int = 4) -> bytes:
    return pack(amounts, width) if any(amounts) else b""


def unpack_nodes(message: NodesSeen) -> list[NodeDescription]:
    """Nodes of a fact, sorted by name.

    Raises:
        ValueError: A column is damaged, or its length differs from that of the table of names.
        IndexError: An index is outside its table.
    """
    names = unpack_names(message.names)
    count = len(names)
    class_index = _column(message.class_index, 2, count)
    chips = _column(message.chips, 8, count)
    allocatable = _column(message.allocatable, 2, count)
    cpu_milli = _column(message.cpu_milli, 4, count)
    memory_mib = _column(message.memory_mib, 4, count)
    superpod = _column(message.superpod_index, 4, count, optional=True)
    leaf = _column(message.leaf_index, 4, count, optional=True)
    position = _column(message.position, 2, count, optional=True)
    rack = _column(message.rack_index, 4, count, optional=True)
    cpu_others = _column(message.cpu_others, 4, count, optional=True)
    memory_others = _column(message.memory_others, 4, count, optional=True)
    chips_others = _column(message.chips_others, 2, count, optional=True)
    unsettled = _column(message.unsettled, 1, count, optional=True)
    superpods = ["", *message.superpods]
    leaves = ["", *message.leaves]
    racks = ["", *message.racks]
    out: list[NodeDescription] = []
    for row, name in enumerate(names):
        kind = message.classes[class_index[row]]
        out.append(
            NodeDescription(
                name=name,
                product=kind.product,
                resource=kind.resource,
                chips=chips[row],
                allocatable=allocatable[row],
                cpu_milli=cpu_milli[row],
                memory_mib=memory_mib[row],
                labels=kind.labels,
                taints=kind.taints,
                cordoned=kind.cordoned,
                ready=kind.ready,
                superpod=superpods[superpod[row]],
                leaf=leaves[leaf[row]],
                position=position[row],
                address=message.addresses[row] if message.addresses else "",
                rack=racks[rack[row]],
                cpu_others=cpu_others[row],
                memory_others=memory_others[row],
                chips_others=chips_others[row],
                is_unsettled=bool(unsettled[row]),
            )
        )
    return out


def pack_health(domain: str, conditions: Iterable[NodeCondition], *, source: str = "", at_ms: UnixMs = 0) -> HealthSeen:
    """Fact with the health of all nodes of a domain.

    A column in which every value is empty (withheld and sub-healthy chips, reasons, times, sources, levels by source)
    is omitted.

    Raises:
        RepeatedNodeError: A name occurs twice.
        OverflowError: A mask has more than 64 bits.
    """
    rows = sorted(conditions, key=lambda condition: condition.name)
    _check_once([row.name for row in rows])
    reasons, reason_index = _named([row.reason for row in rows])
    withheld = [row.withheld for row in rows]
    updated_ms = [row.updated_ms for row in rows]
    sub_healthy = [row.sub_healthy for row in rows]
    sources = [row.sources for row in rows]
    noded_level, switch_level = [row.noded_level for row in rows], [row.switch_level for row in rows]
    return HealthSeen(
        domain=domain,
        names=pack_names([row.name for row in rows]),
        unhealthy=pack([row.unhealthy for row in rows], 8),
        recovering=pack([row.recovering for row in rows], 8),
        network_unhealthy=pack([row.network_unhealthy for row in rows], 8),
        level=pack([row.level for row in rows], 1),
        network_known=pack([row.network_known for row in rows], 1),
        source=source,
        at_ms=at_ms,
        withheld=pack(withheld, 8) if any(withheld) else b"",
        reasons=reasons,
        reason_index=pack(reason_index, 4) if reasons else b"",
        updated_ms=pack(updated_ms, 8) if any(updated_ms) else b"",
        sub_healthy=pack(sub_healthy, 8) if any(sub_healthy) else b"",
        sources=pack(sources, 1) if any(sources) else b"",
        noded_level=pack(noded_level, 1) if any(noded_level) else b"",
        switch_level=pack(switch_level, 1) if any(switch_level) else b"",
    )


def unpack_health(message: HealthSeen) -> list[NodeCondition]:
    """Conditions of a fact, sorted by name. Values that an older fact does not have are empty.

    Raises:
        ValueError: A column is damaged, its length differs from that of the table of names, or a level is unknown.
        IndexError: An index is outside its table.
    """
    names = unpack_names(message.names)
    count = len(names)
    unhealthy = _column(message.unhealthy, 8, count)
    recovering = _column(message.recovering, 8, count)
    network = _column(message.network_unhealthy, 8, count)
    level = _column(message.level, 1, count)
    known = _column(message.network_known, 1, count)
    withheld = _column(message.withheld, 8, count, optional=True)
    reason = _column(message.reason_index, 4, count, optional=True)
    updated_ms = _column(message.updated_ms, 8, count, optional=True)
    sub_healthy = _column(message.sub_healthy, 8, count, optional=True)
    sources = _column(message.sources, 1, count, optional=True)
    noded_level = _column(message.noded_level, 1, count, optional=True)
    switch_level = _column(message.switch_level, 1, count, optional=True)
    reasons = ["", *message.reasons]
    return [
        NodeCondition(
            name=name,
            unhealthy=unhealthy[row],
            recovering=recovering[row],
            network_unhealthy=network[row],
            level=NodeHealth(level[row]),
            network_known=bool(known[row]),
            withheld=withheld[row],
            reason=reasons[reason[row]],
            updated_ms=updated_ms[row],
            sub_healthy=sub_healthy[row],
            sources=sources[row],
            noded_level=NodeHealth(noded_level[row]),
            switch_level=NodeHealth(switch_level[row]),
        )
        for row, name in enumerate(names)
    ]


def pack_switches(
    nodes: Iterable[NodeDescription], *, level: str = "", places: int = 0, at_ms: UnixMs = 0
) -> TopologySeen:
    """Fact with the leaf switches in the order of first occurrence, and the nodes below each leaf by position.

    Args:
        nodes: All nodes. Nodes with equal leaf and position are ordered by name.
        level: ``single_layer`` or ``double_layer``; empty means ``double_layer``.
        places: Most nodes below a leaf; 0 means the length of the longest list.
        at_ms: Time of the fact.
    """
    below: dict[str, list[NodeDescription]] = {}
    for node in nodes:
        if node.leaf:
            below.setdefault(node.leaf, []).append(node)
    leaves: list[Leaf] = []
    for leaf, found in below.items():
        rows = sorted(found, key=lambda node: (node.position, node.name))
        addresses = [node.address for node in rows]
        leaves.append(
            Leaf(
                name=leaf,
                address="",
                nodes=[node.name for node in rows],
                positions=[node.position for node in rows],
                addresses=addresses if all(addresses) else [],
            )
        )
    return TopologySeen(kind=SWITCHES, leaves=leaves, level=level if leaves else "", places=places, at_ms=at_ms)


def _check_once(names: Sequence[str]) -> None:
    for before, name in pairwise(names):
        if before == name:
            raise RepeatedNodeError(name)


def _classes(rows: Sequence[NodeDescription]) -> tuple[list[NodeClass], list[int]]:
    """Distinct classes in the order of their bytes, and the class of each row."""
    keys: list[bytes] = []
    classes: dict[bytes, NodeClass] = {}
    for node in rows:
        labels = {key: node.labels[key] for key in sorted(node.labels) if key != HOSTNAME_LABEL}
        taints = sorted(node.taints, key=lambda taint: (taint.key, taint.value, taint.effect))
        kind = NodeClass(node.product, node.resource, labels, taints, node.cordoned, node.ready)
        key = _CLASS_BYTES.encode(kind)
        classes[key] = kind
        keys.append(key)
    order = sorted(classes)
    index = {key: number for number, key in enumerate(order)}
    return [classes[key] for key in order], [index[key] for key in keys]


def _named(values: Sequence[str]) -> tuple[list[str], list[int]]:
    """Sorted table of the names that are not empty, and the index of each row plus one; 0 for no name."""
    table = sorted(set(values) - {""})
    index = {name: number for number, name in enumerate(table, start=1)}
    return table, [index.get(value, 0) for value in values]


def _column(column: bytes, width: int, count: int, *, optional: bool = False) -> list[int]:
    """Values of a column of ``count`` rows; zeros if the column is optional and missing.

    Raises:
        ValueError: The column has another length.
    """
    if optional and not column:
        return [0] * count
    values = unpack(column, width)
    if len(values) != count:
        raise ValueError(f"column of {len(values)} rows for {count} names")
    return values
