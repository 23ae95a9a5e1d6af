"""Columns of nodes: one row a node, in numpy arrays, and the tables of the names that columns refer to.

A row never moves. Chips are bit masks (bit k is chip k). Rows exist for every name that a fact or a placement has
named; a row that no node fact covers has ``present`` false.
"""

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_classes import ClassKey

_COLUMNS: Final[tuple[tuple[str, str], ...]] = (
    ("present", "?"),
    ("domain", "<i4"),
    ("node_class", "<i4"),
    ("chips", "<u8"),
    ("used", "<u8"),
    ("releasing", "<u8"),
    ("unhealthy", "<u8"),
    ("network", "<u8"),
    ("withheld", "<u8"),
    ("free", "<u8"),
    ("network_known", "?"),
    ("spoken", "?"),
    ("level", "u1"),
    ("unhealthy_count", "<i2"),
    ("allocatable_seen", "<i2"),
    ("allocatable", "<i2"),
    ("idle", "<i2"),
    ("capacity", "<i2"),
    ("cpu", "<i4"),
    ("cpu_free", "<i4"),
    ("memory", "<i4"),
    ("memory_free", "<i4"),
    ("cpu_others", "<i4"),
    ("memory_others", "<i4"),
    ("chips_others", "<i2"),
    ("unsettled", "?"),
    ("no_cpu", "<i4"),
    ("no_memory", "<i4"),
    ("superpod", "<i4"),
    ("leaf", "<i4"),
    ("position", "<i2"),
    ("rack", "<i4"),
    ("rank", "<i4"),
    ("changed", "<i8"),
)
COLUMNS: Final = tuple(name for name, _ in _COLUMNS)
BYTES_PER_NODE: Final = sum(np.dtype(code).itemsize for _, code in _COLUMNS)
"""Bytes of columns a node, name tables apart."""
_ROWS_MIN: Final = 64

K = TypeVar("K")
Mask = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
_NO_ROWS: Final = np.empty(0, np.int64)


class NodeColumns:
    """Columns of the nodes of a cell, or of a shard."""

    present: Bools
    domain: Ints
    node_class: Ints
    chips: Mask
    used: Mask
    releasing: Mask
    unhealthy: Mask
    network: Mask
    withheld: Mask
    free: Mask
    network_known: Bools
    spoken: Bools
    level: Bytes
    unhealthy_count: Shorts
    allocatable_seen: Shorts
    allocatable: Shorts
    idle: Shorts
    capacity: Shorts
    cpu: Ints
    cpu_free: Ints
    memory: Ints
    memory_free: Ints
    cpu_others: Ints
    """Used by pods of others, and not part of ``cpu``."""
    memory_others: Ints
    chips_others: Shorts
    """Chips of pods of others that nobody has named; not part of ``idle``, and any of ``free`` may be among them."""
    unsettled: Bools
    """Some of them may be named soon."""
    no_cpu: Ints
    """Pods that hold no cpu, because they request none."""
    no_memory: Ints
    superpod: Ints
    leaf: Ints
    position: Shorts
    rack: Ints
    rank: Ints
    changed: Longs
    """Revision at the last change of the row."""

    def __init__(self) -> None:
        self.revision = 0
        """Rises with every change of a row; equal revisions mean equal columns."""
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.row_of: dict[str, int] = {}
        self.domains: list[str] = []
        self.classes: list[ClassKey] = []
        self.superpods: list[str] = []
        self.leaves: list[str] = []
        self.racks: list[str] = []
        self._size = 0
        self._ranked = 0
        self._domain_of: dict[str, int] = {}
        self._class_of: dict[ClassKey, int] = {}
        self._superpod_of: dict[str, int] = {}
        self._leaf_of: dict[str, int] = {}
        self._rack_of: dict[str, int] = {}
        self._seen: dict[str, dict[int, None]] = {}
        """Rows of each domain."""
        for name, code in _COLUMNS:
            setattr(self, name, np.zeros(_ROWS_MIN, code))

    def __len__(self) -> int:
        return self._size

    def view(self) -> slice:
        """The rows in use, for slicing any column."""
        return slice(0, self._size)

    def row(self, name: str) -> int:
        """Row of a node, made when the name is new."""
        row = self.row_of.get(name)
        if row is None:
            row = self._size
            if row == len(self.present):
                for column, _ in _COLUMNS:
                    old = getattr(self, column)
                    setattr(self, column, np.concatenate([old, np.zeros_like(old)]))
            self.row_of[name] = row
            self.names.append(name)
            self.addresses.append("")
            self.domain[row] = self.node_class[row] = self.superpod[row] = self.leaf[row] = self.rack[row] = -1
            self.network_known[row] = True
            self._size += 1
        return row

    def note_change(self, row: int) -> None:
        """Count one more change of a row."""
        self.revision += 1
        self.changed[row] = self.revision

    def changed_since(self, revision: int) -> Longs:
        """Rows that have changed since an earlier revision, ascending."""
        return np.flatnonzero(self.changed[self.view()] > revision) if self.revision > revision else _NO_ROWS

    def keep_rows(self, rows: Longs) -> None:
        """Narrow a copy to some rows, in their order; ties between their scores break as among all rows."""
        self.ranks()
        for column, _ in _COLUMNS:
            setattr(self, column, getattr(self, column)[rows])
        self.names = [self.names[row] for row in rows.tolist()]
        self.row_of = {name: row for row, name in enumerate(self.names)}
        self._size = self._ranked = len(rows)

    def superpod_at(self, row: int) -> str:
        """SuperPoD of a row; empty without one, and for a row below 0."""
        index = self.superpod.item(row) if row >= 0 else -1
        return self.superpods[index] if index >= 0 else ""

    def ranks(self) -> Ints:
        """Place of each row in the order of names: what breaks ties between equal scores."""
        if self._ranked != self._size:
            order = sorted(range(self._size), key=self.names.__getitem__)
            self.rank[order] = np.arange(self._size, dtype=np.int32)
            self._ranked = self._size
        return self.rank[: self._size]

    def class_index(self, key: ClassKey) -> int:
        """Number of a class, given when it is new."""
        return index_of(key, self._class_of, self.classes)

    def rows_of_domain(self, domain: str) -> list[int]:
        """Rows of a domain in the order of names; empty when it is unknown."""
        return list(self._seen.get(domain, ()))

    def labels(self, row: int) -> dict[str, str]:
        """Labels of a node's class; empty when the node is unknown."""
        node_class = int(self.node_class[row])
        return dict(self.classes[node_class].labels) if node_class >= 0 else {}

    def resource(self, row: int) -> str:
        """Resource name of the node's chips."""
        node_class = int(self.node_class[row])
        return self.classes[node_class].resource if node_class >= 0 else ""

    def product(self, row: int) -> str:
        """Product of the node, for people."""
        node_class = int(self.node_class[row])
        return self.classes[node_class].product if node_class >= 0 else ""

    def domain_name(self, row: int) -> str:
        """Domain of a node; empty when no fact covers it."""
        domain = int(self.domain[row])
        return self.domains[domain] if domain >= 0 else ""


def index_of(key: K, known: dict[K, int], order: list[K]) -> int:
    """Index of a key in its table, given when the key is new."""
    index = known.get(key)
    if index is None:
        index = known[key] = len(order)
        order.append(key)
    return index
