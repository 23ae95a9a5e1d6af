"""Validation and decoding of the facts of nodes and of their health.

A fact is validated completely before any part of it is applied.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.schemas.columns import unpack_names
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen

_SHORT_MAX: Final = (1 << 15) - 1
_INT_MAX: Final = (1 << 31) - 1
"""Largest number that the columns can store."""


def check_nodes(fact: NodesSeen) -> None:
    """Check that the columns of a fact are consistent.

    Raises:
        DecodeError: The names do not decode, a column has the wrong length, an index is outside its table, or a number
            is too large for its column.
    """
    rows = _names(fact.names, fact.KIND)
    _check_widths(
        fact.KIND,
        rows,
        class_index=(fact.class_index, 2),
        chips=(fact.chips, 8),
        allocatable=(fact.allocatable, 2),
        cpu_milli=(fact.cpu_milli, 4),
        memory_mib=(fact.memory_mib, 4),
        superpod_index=(fact.superpod_index or bytes(4 * rows), 4),
        leaf_index=(fact.leaf_index or bytes(4 * rows), 4),
        position=(fact.position or bytes(2 * rows), 2),
        rack_index=(fact.rack_index or bytes(4 * rows), 4),
        cpu_others=(fact.cpu_others or bytes(4 * rows), 4),
        memory_others=(fact.memory_others or bytes(4 * rows), 4),
        chips_others=(fact.chips_others or bytes(2 * rows), 2),
        unsettled=(fact.unsettled or bytes(rows), 1),
    )
    if fact.addresses and len(fact.addresses) != rows:
        raise DecodeError(f"addresses: {len(fact.addresses)} rows, the name table has {rows}", kind=fact.KIND)
    for field, column, code, bound in (
        ("allocatable", fact.allocatable, "<u2", _SHORT_MAX),
        ("position", fact.position, "<u2", _SHORT_MAX),
        ("cpu_milli", fact.cpu_milli, "<u4", _INT_MAX),
        ("memory_mib", fact.memory_mib, "<u4", _INT_MAX),
        ("cpu_others", fact.cpu_others, "<u4", _INT_MAX),
        ("memory_others", fact.memory_others, "<u4", _INT_MAX),
        ("chips_others", fact.chips_others, "<u2", _SHORT_MAX),
    ):
        worst = max(np.frombuffer(column, code).tolist(), default=0)
        if worst > bound:
            raise DecodeError(f"{field}: {worst} is more than {bound}", kind=fact.KIND)
    for field, column, code, bound in (
        ("class_index", fact.class_index, "<u2", len(fact.classes) - 1),
        ("superpod_index", fact.superpod_index, "<u4", len(fact.superpods)),
        ("leaf_index", fact.leaf_index, "<u4", len(fact.leaves)),
        ("rack_index", fact.rack_index, "<u4", len(fact.racks)),
    ):
        worst = max(np.frombuffer(column, code).tolist(), default=-1)
        if worst > bound:
            raise DecodeError(f"{field}: {worst} is outside its table (at most {bound})", kind=fact.KIND)


def check_health(fact: HealthSeen) -> None:
    """Check that the columns of a fact are consistent. Columns that later versions added may be missing.

    Raises:
        DecodeError: The names do not decode, a column has the wrong length, a level is unknown, or an index is outside
            its table.
    """
    rows = _names(fact.names, fact.KIND)
    _check_widths(
        fact.KIND,
        rows,
        unhealthy=(fact.unhealthy, 8),
        recovering=(fact.recovering, 8),
        network_unhealthy=(fact.network_unhealthy, 8),
        level=(fact.level, 1),
        network_known=(fact.network_known, 1),
        withheld=(fact.withheld or bytes(8 * rows), 8),
        reason_index=(fact.reason_index or bytes(4 * rows), 4),
        updated_ms=(fact.updated_ms or bytes(8 * rows), 8),
        sub_healthy=(fact.sub_healthy or bytes(8 * rows), 8),
        sources=(fact.sources or bytes(rows), 1),
        noded_level=(fact.noded_level or bytes(rows), 1),
        switch_level=(fact.switch_level or bytes(rows), 1),
    )
    level = max(fact.level + fact.noded_level + fact.switch_level, default=0)
    if level > max(NodeHealth):
        raise DecodeError(f"level: {level} is none (at most {max(NodeHealth)})", kind=fact.KIND)
    worst = max(np.frombuffer(fact.reason_index, "<u4").tolist(), default=0)
    if worst > len(fact.reasons):
        raise DecodeError(f"reason_index: {worst} is outside its table (at most {len(fact.reasons)})", kind=fact.KIND)


def _names(table: bytes, kind: str) -> int:
    try:
        names = unpack_names(table)
    except ValueError as error:
        raise DecodeError(f"names: {error}", kind=kind) from error
    if len(set(names)) != len(names):
        raise DecodeError("names: a name occurs twice", kind=kind)
    return len(names)


def _check_widths(kind: str, rows: int, **columns: tuple[bytes, int]) -> None:
    for field, (column, width) in columns.items():
        if len(column) != rows * width:
            raise DecodeError(f"{field}: {len(column)} bytes, {rows} names need {rows * width}", kind=kind)


Layout = tuple[object, ...]
"""Nodes of a domain with their positions and labels."""


def layout_of(fact: NodesSeen) -> Layout:
    """Part of a fact with the nodes of the domain, their positions and their labels."""
    return (
        fact.names,
        fact.superpod_index,
        fact.leaf_index,
        fact.position,
        fact.rack_index,
        tuple(fact.superpods),
        tuple(fact.leaves),
        tuple(fact.racks),
        *_labels_of(fact),
    )


def _labels_of(fact: NodesSeen) -> Layout:
    """Label sets of the nodes, and the set of each node. Other differences between classes are ignored."""
    classes = np.frombuffer(fact.class_index, "<u2")
    used = np.unique(classes)
    labels = {kind: tuple(sorted(fact.classes[kind].labels.items())) for kind in used.tolist()}
    known = sorted(set(labels.values()))
    place = {label_set: index for index, label_set in enumerate(known)}
    codes = np.array([place[labels[kind]] for kind in used.tolist()], np.uint16)
    return tuple(known), codes[np.searchsorted(used, classes)].tobytes()


class NodeArrays(NamedTuple):
    """Columns of a fact; indexes are those of its tables, 0 for none where a table may lack the node."""

    class_index: npt.NDArray[np.uint16]
    chips: npt.NDArray[np.uint64]
    allocatable: npt.NDArray[np.uint16]
    cpu: npt.NDArray[np.uint32]
    memory: npt.NDArray[np.uint32]
    superpod: npt.NDArray[np.uint32]
    leaf: npt.NDArray[np.uint32]
    position: npt.NDArray[np.uint16]
    rack: npt.NDArray[np.uint32]
    cpu_others: npt.NDArray[np.uint32]
    memory_others: npt.NDArray[np.uint32]
    chips_others: npt.NDArray[np.uint16]
    unsettled: npt.NDArray[np.uint8]


def arrays_of(fact: NodesSeen) -> NodeArrays:
    """Columns of a fact."""
    rows = len(fact.class_index) // 2
    none = bytes(4 * rows)
    return NodeArrays(
        np.frombuffer(fact.class_index, "<u2"),
        np.frombuffer(fact.chips, "<u8"),
        np.frombuffer(fact.allocatable, "<u2"),
        np.frombuffer(fact.cpu_milli, "<u4"),
        np.frombuffer(fact.memory_mib, "<u4"),
        np.frombuffer(fact.superpod_index or none, "<u4"),
        np.frombuffer(fact.leaf_index or none, "<u4"),
        np.frombuffer(fact.position or none[: 2 * rows], "<u2"),
        np.frombuffer(fact.rack_index or none, "<u4"),
        np.frombuffer(fact.cpu_others or none, "<u4"),
        np.frombuffer(fact.memory_others or none, "<u4"),
        np.frombuffer(fact.chips_others or none[: 2 * rows], "<u2"),
        np.frombuffer(fact.unsettled or none[:rows], "u1"),
    )


def columns_of(fact: NodesSeen) -> list[tuple[int, ...]]:
    """Columns of a fact as one tuple per node.

    The tuple is (class, chips, allocatable, cpu, memory, superpod, leaf, position, rack, and what pods of others use:
    cpu, memory, chips without a name, whether these may still get one).
    """
    return list(zip(*(column.tolist() for column in arrays_of(fact)), strict=True))
