"""Columnar state of nodes: one row a node, kept by events.

A row never moves. Chips are bit masks (bit k is chip k); ``free`` is derived and always equals the node's chips minus
used, releasing, unhealthy, recovering and withheld ones. Rows exist for every name that a fact or a placement has named; a row that no
node fact covers has ``present`` false. Everything here is a function of the folded facts and the folded ledger, in
whatever order they were applied to one another.

Longer than 400 lines because every column and what follows from it change in one place.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from berth.core.cluster.node_classes import ClassKey, key_of
from berth.core.cluster.node_facts import Layout, columns_of, layout_of
from berth.core.errors import InvariantError
from berth.schemas.columns import unpack_names
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen

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
    ("superpod", "<i4"),
    ("leaf", "<i4"),
    ("position", "<i2"),
    ("rack", "<i4"),
    ("rank", "<i4"),
)
BYTES_PER_NODE: Final = sum(np.dtype(code).itemsize for _, code in _COLUMNS)
"""Bytes of columns a node, name tables apart."""
_ROWS_MIN: Final = 64
_LEAST: Final = -(1 << 31)
"""Least number that a column holds: pods of another scheduler may say that they use any amount."""

K = TypeVar("K")
Mask = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int32]
Shorts = npt.NDArray[np.int16]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]


class _Health(NamedTuple):
    """What a health fact says of a node."""

    unhealthy: int
    """Recovering chips included."""
    network: int
    level: int
    network_known: bool
    withheld: int = 0
    """Chips that the node itself does not list as free."""


_WELL: Final = _Health(0, 0, NodeHealth.OK, network_known=True)


class NodeTable:
    """Nodes of a cell, or of a shard.

    ``improved`` collects the rows on which something got better since it was last cleared: more free chips, more cpu
    or memory, a better level, another class. What waits for room looks there. No node that is gone is among them: of those a
    reader of a snapshot knows nothing. ``thinned`` collects the rows on which free
    chips became fewer, and which chips were free before: a node with more of them than a product form has counts as
    another product, and ceases to. The network's failure on a free chip counts as its loss there. ``regained`` collects the rows on
    which chips came back, whoever holds them: healthy again, withheld no longer, or there again; they matter to pods that share
    chips, and so do chips that go: a node may list more of them than can be shared. ``stirred`` says that any row changed.
    ``worsened`` says that by the facts some node is less than it was since it was last cleared: what is kept for those who need it
    may be kept for nothing.
    """

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
    superpod: Ints
    leaf: Ints
    position: Shorts
    rack: Ints
    rank: Ints

    def __init__(self) -> None:
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.row_of: dict[str, int] = {}
        self.domains: list[str] = []
        self.classes: list[ClassKey] = []
        self.superpods: list[str] = []
        self.leaves: list[str] = []
        self.racks: list[str] = []
        self.improved: dict[int, None] = {}
        self.thinned: dict[int, int] = {}
        self.regained: dict[int, None] = {}
        self.worsened = False
        self.stirred = False
        self.corrected = False
        """Whether the corrections of 0.5 are in force: nothing is kept of nodes that go (see :meth:`forget_gone`), and more changes
        are noted that may help somebody."""
        self.revision = 0
        """Rises with every change of a row; equal revisions mean equal columns."""
        self.layout_revision = 0
        """Rises when a node comes, goes, stands somewhere else, or gets other labels, not when it is cordoned or not ready;
        equal revisions mean equal domains, places and labels."""
        self._size = 0
        self._ranked = 0
        self._domain_of: dict[str, int] = {}
        self._class_of: dict[ClassKey, int] = {}
        self._superpod_of: dict[str, int] = {}
        self._leaf_of: dict[str, int] = {}
        self._rack_of: dict[str, int] = {}
        self._seen: dict[str, dict[int, None]] = {}
        self._layouts: dict[str, Layout] = {}
        self._health: dict[str, dict[int, _Health]] = {}
        """What the health fact of each domain says of nodes that are not well."""
        self._spoken: dict[str, Ints] = {}
        """Rows of which the health fact of each domain speaks, ascending."""
        self._cpu_used: dict[int, int] = {}
        self._memory_used: dict[int, int] = {}
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

    def ranks(self) -> Ints:
        """Place of each row in the order of names: what breaks ties between equal scores."""
        if self._ranked != self._size:
            order = sorted(range(self._size), key=self.names.__getitem__)
            self.rank[order] = np.arange(self._size, dtype=np.int32)
            self._ranked = self._size
        return self.rank[: self._size]

    def class_index(self, key: ClassKey) -> int:
        """Number of a class, given when it is new."""
        return _index(key, self._class_of, self.classes)

    def settle(self, row: int) -> None:
        """Bring what follows from a row's columns up to date, after some were written from outside."""
        self._derive(row)

    def rows_of_domain(self, domain: str) -> list[int]:
        """Rows of a domain in the order of names; empty when it is unknown."""
        return list(self._seen.get(domain, ()))

    def apply_nodes(self, fact: NodesSeen) -> None:
        """Take the nodes of a domain for what the fact says; nodes that it leaves out are gone from the domain."""
        rows = [self.row(name) for name in unpack_names(fact.names)]
        now = dict.fromkeys(rows)
        domain = _index(fact.domain, self._domain_of, self.domains)
        layout = layout_of(fact)
        if self._layouts.get(fact.domain) != layout:
            self._layouts[fact.domain] = layout
            self.layout_revision += 1
        self._leave(domain, [row for row in self._seen.get(fact.domain, {}) if row not in now])
        classes = [_index(key_of(node_class), self._class_of, self.classes) for node_class in fact.classes]
        superpods = [-1, *(_index(name, self._superpod_of, self.superpods) for name in fact.superpods)]
        leaves = [-1, *(_index(name, self._leaf_of, self.leaves) for name in fact.leaves)]
        racks = [-1, *(_index(name, self._rack_of, self.racks) for name in fact.racks)]
        addresses = fact.addresses or [""] * len(rows)
        for row, address, columns in zip(rows, addresses, columns_of(fact), strict=True):
            class_index, chips, allocatable, cpu, memory, superpod, leaf, position, rack = columns
            told = (True, classes[class_index], superpods[superpod], racks[rack])
            if (self.present[row], self.node_class[row], self.superpod[row], self.rack[row]) != told:
                self.improved[row] = None
            self.present[row], self.node_class[row], self.superpod[row], self.rack[row] = told
            if self.domain[row] != domain:
                self._enter(row, fact.domain)
            self.worsened = self.worsened or self._is_less(row, chips, allocatable, cpu, memory)
            if chips & ~int(self.chips[row]) or (self.corrected and chips != self.chips[row]):
                self.regained[row] = None
            self.chips[row] = chips
            self.capacity[row] = chips.bit_count()
            self.allocatable_seen[row] = allocatable
            self.cpu[row] = cpu
            self.memory[row] = memory
            self.leaf[row] = leaves[leaf]
            self.position[row] = position
            self.addresses[row] = address
            self._derive(row)
        if now:
            self._seen[fact.domain] = now
        else:
            self._seen.pop(fact.domain, None)

    def _enter(self, row: int, domain: str) -> None:
        """Take note that a node is in another domain now: its health is what the fact of that one says."""
        was_spoken_of = self.spoken[row]
        self.domain[row] = self._domain_of[domain]
        self.spoken[row] = self._is_spoken_of(domain, row)
        if self.corrected and self.spoken[row] and not was_spoken_of:
            self._improve(row)
        self._set_health(row, self._health.get(domain, {}).get(row, _WELL))

    def _is_less(self, row: int, chips: int, allocatable: int, cpu: int, memory: int) -> bool:
        """Whether this is less than a row has."""
        if int(self.chips[row]) & ~chips or allocatable < self.allocatable_seen[row]:
            return True
        return bool(cpu < self.cpu[row] or memory < self.memory[row])

    def _leave(self, domain: int, rows: Iterable[int]) -> None:
        """Take note that nodes are gone, unless another domain has them."""
        for row in rows:
            if self.domain[row] == domain:
                self.worsened = True
                self.present[row] = False
                self.domain[row] = -1
                self.spoken[row] = False
                self._set_health(row, _WELL)
                if self.corrected:
                    self._forget(row)

    def forget_gone(self) -> None:
        """Keep nothing of nodes that are gone: a reader of a snapshot knows nothing of them."""
        for row in np.flatnonzero(~self.present[self.view()]).tolist():
            self._forget(row)

    def _forget(self, row: int) -> None:
        self.node_class[row] = self.superpod[row] = self.leaf[row] = self.rack[row] = -1
        self.chips[row] = self.capacity[row] = self.allocatable_seen[row] = self.position[row] = 0
        self.cpu[row] = self.memory[row] = 0
        self._derive(row)

    def apply_health(self, fact: HealthSeen) -> None:
        """Take the health of a domain's nodes for what the fact says; nodes that it leaves out count as healthy.

        A node's health is what the fact of its own domain says, whichever came first: so a shard, which sees its own
        domains only, and a reader of all of them know the same.
        """
        rows = [self.row(name) for name in unpack_names(fact.names)]
        bad = np.frombuffer(fact.unhealthy, "<u8") | np.frombuffer(fact.recovering, "<u8")
        network = np.frombuffer(fact.network_unhealthy, "<u8").tolist()
        level = np.frombuffer(fact.level, "u1").tolist()
        known = np.frombuffer(fact.network_known, "?").tolist()
        withheld = np.frombuffer(fact.withheld or bytes(8 * len(rows)), "<u8").tolist()
        seen = zip(bad.tolist(), network, level, known, withheld, strict=True)
        now = {row: health for row, health in zip(rows, map(_Health._make, seen), strict=True) if health != _WELL}
        before = self._health.get(fact.domain, {})
        self._health[fact.domain] = now
        spoken = np.sort(np.array(rows, np.int32))
        unspoken = np.setdiff1d(self._spoken.get(fact.domain, spoken[:0]), spoken)
        self._spoken[fact.domain] = spoken
        domain = self._domain_of.get(fact.domain)
        for row in before | now:
            if self.domain[row] == domain:
                self._set_health(row, now.get(row, _WELL))
        if domain is not None:
            self._speak(spoken[self.domain[spoken] == domain], spoken=True)
            self._speak(unspoken[self.domain[unspoken] == domain], spoken=False)

    def hold(self, row: int, mask: int, *, cpu_milli: int, memory_mib: int) -> None:
        """Give chips, cpu and memory of a node to a pod.

        Raises:
            InvariantError: A chip has an owner already.
        """
        if mask & (int(self.used[row]) | int(self.releasing[row])):
            raise InvariantError("a chip would have two owners", subject=f"node {self.names[row]}")
        self.used[row] |= np.uint64(mask)
        self._use(row, cpu_milli, memory_mib)

    def let_go(self, row: int, mask: int, *, cpu_milli: int, memory_mib: int) -> None:
        """Take back what a pod held."""
        keep = np.uint64(~mask & 0xFFFF_FFFF_FFFF_FFFF)
        self.used[row] &= keep
        self.releasing[row] &= keep
        self._use(row, -cpu_milli, -memory_mib)

    def set_shared(self, row: int, mask: int, *, shared: bool) -> None:
        """Mark chips as taken by soft-share pods, or no longer."""
        bits = np.uint64(mask)
        self.used[row] = self.used[row] | bits if shared else self.used[row] & ~bits
        self._derive(row)

    def mark_releasing(self, row: int, mask: int, *, releasing: bool) -> None:
        """Move held chips between used and releasing."""
        bits = np.uint64(mask)
        if releasing:
            self.releasing[row] |= bits
            self.used[row] &= ~bits
        else:
            self.used[row] |= bits
            self.releasing[row] &= ~bits
        self._derive(row)

    def _speak(self, rows: Ints, *, spoken: bool) -> None:
        """Note of which rows somebody has said how healthy they are, or of which nobody says so any more."""
        changed = rows[self.spoken[rows] != spoken]
        self.spoken[changed] = spoken
        if spoken:
            self.improved.update(dict.fromkeys(changed.tolist()))
        else:
            self.worsened = self.worsened or bool(len(changed))
        self.revision += len(changed)
        self.stirred = self.stirred or bool(len(changed))

    def _is_spoken_of(self, domain: str, row: int) -> bool:
        rows = self._spoken.get(domain)
        if rows is None or not len(rows):
            return False
        return bool(rows[min(int(rows.searchsorted(row)), len(rows) - 1)] == row)

    def _set_health(self, row: int, health: _Health) -> None:
        if (
            int(self.network[row]) & ~health.network
            or health.level < self.level[row]
            or (health.network_known and not self.network_known[row])
        ):
            self._improve(row)
        worse = (health.unhealthy, self.unhealthy), (health.network, self.network), (health.withheld, self.withheld)
        if (
            any(now & ~int(column[row]) for now, column in worse)
            or health.level > self.level[row]
            or (self.network_known[row] and not health.network_known)
        ):
            self.worsened = True
        before, barred = int(self.unhealthy[row]) | int(self.withheld[row]), health.unhealthy | health.withheld
        if self.present[row] and (before & ~barred or (self.corrected and before != barred)):
            self.regained[row] = None
        if self.corrected and int(self.free[row]) & health.network & ~int(self.network[row]):
            self.thinned[row] = self.thinned.get(row, 0) | int(self.free[row])
        self.unhealthy[row] = health.unhealthy
        self.network[row] = health.network
        self.level[row] = health.level
        self.network_known[row] = health.network_known
        self.withheld[row] = health.withheld
        self._derive(row)

    def _use(self, row: int, cpu_milli: int, memory_mib: int) -> None:
        if cpu_milli or memory_mib:
            self._cpu_used[row] = self._cpu_used.get(row, 0) + cpu_milli
            self._memory_used[row] = self._memory_used.get(row, 0) + memory_mib
            self._derive(row)
        else:
            self._derive_free(row)

    def _derive(self, row: int) -> None:
        """Bring the derived columns of a row up to date.

        ``idle`` counts healthy chips that nobody holds, by Kubernetes' number of allocatable chips where that is lower.
        """
        chips = int(self.chips[row])
        healthy = chips & ~int(self.unhealthy[row])
        cpu_free = int(self.cpu[row]) - self._cpu_used.get(row, 0)
        memory_free = int(self.memory[row]) - self._memory_used.get(row, 0)
        if cpu_free > self.cpu_free[row] or memory_free > self.memory_free[row]:
            self._improve(row)
        self.unhealthy_count[row] = (chips & ~healthy).bit_count()
        self.allocatable[row] = min(int(self.allocatable_seen[row]), healthy.bit_count())
        self.cpu_free[row] = max(cpu_free, _LEAST)
        self.memory_free[row] = max(memory_free, _LEAST)
        self._derive_free(row)

    def _derive_free(self, row: int) -> None:
        """The part of :meth:`_derive` that depends on who holds chips."""
        healthy = int(self.chips[row]) & ~int(self.unhealthy[row])
        held = (int(self.used[row]) | int(self.releasing[row])) & healthy
        free = healthy & ~held & ~int(self.withheld[row]) if self.present[row] else 0
        idle = int(self.allocatable[row]) - held.bit_count()
        before = int(self.free[row])
        # More chips free than Kubernetes knows of is a contradiction that bars the node; its end is an improvement too.
        contradicted, was_contradicted = free.bit_count() - idle, before.bit_count() - int(self.idle[row])
        if free & ~before or idle > self.idle[row] or contradicted < was_contradicted:
            self._improve(row)
        if before & ~free:
            self.thinned[row] = self.thinned.get(row, 0) | before
        self.free[row] = free
        self.idle[row] = idle
        self.revision += 1
        self.stirred = True

    def _improve(self, row: int) -> None:
        """Take note that something got better on a row."""
        if self.present[row]:
            self.improved[row] = None

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


def _index(key: K, known: dict[K, int], order: list[K]) -> int:
    index = known.get(key)
    if index is None:
        index = known[key] = len(order)
        order.append(key)
    return index
