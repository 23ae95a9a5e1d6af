"""Node table: columns of nodes, and what facts, placements and releases change in them.

``free`` is derived: it is the node's chips without used, releasing, unhealthy, recovering and withheld ones. All
columns are a function of the folded facts and the folded ledger, independent of the order in which these were applied
to one another. Each method that changes rows returns the changes that a later decision depends on, or adds them to the
builder that it gets. Rows of nodes that are gone are not among those that gained capacity, because the table
of a reader of a snapshot lacks these nodes.

Longer than 400 lines because every fact that changes a row is applied here.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.changes import NO_CHANGES, TOPOLOGY_CHANGED, Changes, ChangesBuilder
from berth.core.cluster.drains import Drains
from berth.core.cluster.node_classes import key_of
from berth.core.cluster.node_columns import Ints, NodeColumns, index_of
from berth.core.cluster.node_facts import Layout, arrays_of, columns_of, layout_of
from berth.core.errors import InvariantError
from berth.schemas.columns import unpack_names
from berth.schemas.facts import HealthSeen, NodeHealth, NodesSeen
from berth.schemas.fault_facts import DrainSeen

_LEAST: Final = -(1 << 31)
"""Smallest number that a column stores: pods of another scheduler may request any amount."""


class _Tables(NamedTuple):
    """Numbers in the tables of the node table, by the indexes of a fact."""

    classes: Sequence[int]
    superpods: Sequence[int]
    leaves: Sequence[int]
    racks: Sequence[int]


class _Health(NamedTuple):
    """Health of a node in a health fact."""

    unhealthy: int
    """Mask of unhealthy chips; recovering chips are included."""
    network: int
    level: int
    network_known: bool
    withheld: int = 0
    """Mask of chips that the node itself does not list as free."""


_HEALTHY: Final = _Health(0, 0, NodeHealth.OK, network_known=True)


class NodeTable(NodeColumns):
    """Nodes of a cell, or of a shard."""

    def __init__(self) -> None:
        super().__init__()
        self.layout_revision = 0
        """Rises when a node comes, goes, moves, or gets other labels, not when it is cordoned or not ready; equal
        revisions mean equal domains, places and labels."""
        self._layouts: dict[str, Layout] = {}
        self._health: dict[str, dict[int, _Health]] = {}
        """Nodes that are not healthy, from the health fact of each domain."""
        self._spoken: dict[str, Ints] = {}
        """Rows that the health fact of each domain covers, ascending."""
        self.drains = Drains()
        self.drained_ms: dict[int, int] = {}
        """From when on nodes that are present are drained, by row; only of those that are."""
        self._cpu_used: dict[int, int] = {}
        self._memory_used: dict[int, int] = {}

    def apply_nodes(self, fact: NodesSeen) -> Changes:
        """Set the nodes of a domain to those of the fact; other nodes of the domain are gone."""
        start = len(self)
        rows = [self.row(name) for name in unpack_names(fact.names)]
        now = dict.fromkeys(rows)
        domain = index_of(fact.domain, self._domain_of, self.domains)
        found = ChangesBuilder()
        has_moved = self._is_new_layout(fact)
        self._leave(domain, [row for row in self._seen.get(fact.domain, {}) if row not in now], found)
        classes = [index_of(key_of(node_class), self._class_of, self.classes) for node_class in fact.classes]
        superpods = [-1, *(index_of(name, self._superpod_of, self.superpods) for name in fact.superpods)]
        leaves = [-1, *(index_of(name, self._leaf_of, self.leaves) for name in fact.leaves)]
        racks = [-1, *(index_of(name, self._rack_of, self.racks) for name in fact.racks)]
        tables = _Tables(classes, superpods, leaves, racks)
        if rows and len(self) == start + len(rows):
            found.add(self._fill(slice(start, len(self)), domain, fact, tables))
            has_moved = True
        else:
            has_moved |= self._set(rows, domain, fact, tables, found)
        if now:
            self._seen[fact.domain] = now
        else:
            self._seen.pop(fact.domain, None)
        if has_moved:
            found.constraints = TOPOLOGY_CHANGED
        return found.build()

    def _set(self, rows: Sequence[int], domain: int, fact: NodesSeen, tables: "_Tables", found: ChangesBuilder) -> bool:
        """Set rows one by one; the changes are added to ``found``. Returns whether a node has another place."""
        has_moved = False
        addresses = fact.addresses or [""] * len(rows)
        for row, address, columns in zip(rows, addresses, columns_of(fact), strict=True):
            class_index, chips, allocatable, cpu, memory, superpod, leaf, position, rack, *others = columns
            place = (True, tables.classes[class_index], tables.superpods[superpod], tables.racks[rack])
            if (self.present[row], self.node_class[row], self.superpod[row], self.rack[row]) != place:
                found.capacity_gained[row] = None
                has_moved = True
            self.present[row], self.node_class[row], self.superpod[row], self.rack[row] = place
            if self.domain[row] != domain:
                self._enter(row, fact.domain, found)
            found.capacity_lost = found.capacity_lost or self._is_less(row, chips, allocatable, cpu, memory, others[2])
            if chips != self.chips[row]:
                found.chips_returned[row] = None
            self.chips[row] = chips
            self.capacity[row] = chips.bit_count()
            self.allocatable_seen[row] = allocatable
            self.cpu[row] = cpu
            self.memory[row] = memory
            if self.unsettled[row] > others[3]:
                found.capacity_gained[row] = None
            self.cpu_others[row], self.memory_others[row], self.chips_others[row], self.unsettled[row] = others
            self.leaf[row] = tables.leaves[leaf]
            self.position[row] = position
            self.addresses[row] = address
            self._derive(row, found)
            self._drain(row, found)
        return has_moved

    def _fill(self, rows: slice, domain: int, fact: NodesSeen, tables: "_Tables") -> Changes:
        """Set rows that are all new: the same as one by one, column by column. No health fact names them yet."""
        seen = arrays_of(fact)
        classes, superpods, leaves, racks = (np.array(table, np.int32) for table in tables)
        self.addresses[rows] = fact.addresses or [""] * len(seen.chips)
        self.present[rows] = True
        self.domain[rows] = domain
        self.node_class[rows] = classes[seen.class_index]
        self.superpod[rows] = superpods[seen.superpod]
        self.rack[rows] = racks[seen.rack]
        self.leaf[rows] = leaves[seen.leaf]
        self.position[rows] = seen.position
        self.chips[rows] = self.free[rows] = seen.chips
        self.capacity[rows] = np.bitwise_count(seen.chips)
        self.allocatable_seen[rows] = seen.allocatable
        self.allocatable[rows] = np.minimum(self.allocatable_seen[rows], self.capacity[rows])
        self.chips_others[rows], self.unsettled[rows] = seen.chips_others, seen.unsettled
        self.idle[rows] = self.allocatable[rows] - seen.chips_others
        self.cpu[rows] = self.cpu_free[rows] = seen.cpu
        self.memory[rows] = self.memory_free[rows] = seen.memory
        self.cpu_others[rows], self.memory_others[rows] = seen.cpu_others, seen.memory_others
        numbers = range(rows.start, rows.stop)
        if self.drains:
            for row in numbers:
                self._drain(row, ChangesBuilder())
        self.changed[rows] = self.revision + 2 * np.arange(1, len(numbers) + 1)  # as often as one by one
        self.revision += 2 * len(numbers)
        returned = [row for row, chips in zip(numbers, seen.chips.tolist(), strict=True) if chips]
        chips, is_less = dict.fromkeys(returned), bool(seen.chips_others.any())
        return Changes(dict.fromkeys(numbers), chips_returned=chips, capacity_lost=is_less, nodes_changed=True)

    def _is_new_layout(self, fact: NodesSeen) -> bool:
        """Note the layout of a domain; returns whether it differs from the one before.

        A domain without nodes is like one that was never heard of, as it is to a reader of a snapshot.
        """
        layout = layout_of(fact) if fact.names else None
        if self._layouts.get(fact.domain) == layout:
            return False
        if layout is None:
            del self._layouts[fact.domain]
        else:
            self._layouts[fact.domain] = layout
        self.layout_revision += 1
        return True

    def _enter(self, row: int, domain: str, found: ChangesBuilder) -> None:
        """Move a node to another domain; its health is then that of the new domain's fact."""
        was_spoken_of = self.spoken[row]
        self.domain[row] = self._domain_of[domain]
        self.spoken[row] = self._is_spoken_of(domain, row)
        if self.spoken[row] and not was_spoken_of:
            found.capacity_gained[row] = None
        self._set_health(row, self._health.get(domain, {}).get(row, _HEALTHY), found)

    def _is_less(self, row: int, chips: int, allocatable: int, cpu: int, memory: int, unnamed: int) -> bool:
        """Whether a fact has fewer resources than the row, or more chips of others."""
        if (
            int(self.chips[row]) & ~chips
            or allocatable < self.allocatable_seen[row]
            or unnamed > self.chips_others[row]
        ):
            return True
        return bool(cpu < self.cpu[row] or memory < self.memory[row])

    def _leave(self, domain: int, rows: Iterable[int], found: ChangesBuilder) -> None:
        """Mark nodes as gone, unless another domain has them; the changes are added to ``found``."""
        for row in rows:
            if self.domain[row] == domain:
                found.capacity_lost = True
                self.present[row] = False
                self.domain[row] = -1
                self.spoken[row] = False
                self._set_health(row, _HEALTHY, found)
                self._drain(row, found)
                self._forget(row, found)

    def _forget(self, row: int, found: ChangesBuilder) -> None:
        """Delete the columns of a node that is gone: the table of a reader of a snapshot lacks them."""
        self.node_class[row] = self.superpod[row] = self.leaf[row] = self.rack[row] = -1
        self.chips[row] = self.capacity[row] = self.allocatable_seen[row] = self.position[row] = self.unsettled[row] = 0
        self.cpu[row] = self.memory[row] = self.cpu_others[row] = self.memory_others[row] = self.chips_others[row] = 0
        self._derive(row, found)

    def apply_drain(self, fact: DrainSeen) -> Changes:
        """Set from when on the nodes that a drain concerns are drained; the fact was checked."""
        self.drains.apply(fact)
        if fact.kind == "node":
            row = self.row_of.get(fact.name)
            rows = [] if row is None else [row]
        else:
            column, numbers = (self.leaf, self._leaf_of) if fact.kind == "leaf" else (self.superpod, self._superpod_of)
            number = numbers.get(fact.name)
            rows = [] if number is None else np.flatnonzero(column[self.view()] == number).tolist()
        found = ChangesBuilder()
        for row in rows:
            self._drain(row, found)
        return found.build()

    def drained_rows(self, last_ms: int) -> Ints:
        """Rows of the nodes that are drained from ``last_ms`` or an earlier moment on."""
        return np.array([row for row, since_ms in self.drained_ms.items() if since_ms <= last_ms], np.int32)

    def planned_rows(self, at_ms: int) -> list[int]:
        """Rows of the nodes that are drained later than ``at_ms``."""
        return [row for row, since_ms in self.drained_ms.items() if since_ms > at_ms]

    def are_usable(self, row: int, mask: int) -> bool:
        """Whether chips of a node may be used: the node has them, and they are neither unhealthy nor withheld."""
        return not mask & ~(self.chips.item(row) & ~self.unhealthy.item(row) & ~self.withheld.item(row))

    def _drain(self, row: int, found: ChangesBuilder) -> None:
        """Update from when on a node is drained; the changes are added to ``found``."""
        before = self.drained_ms.pop(row, 0)
        now = 0
        if self.drains and self.present[row]:
            leaf = self.leaf.item(row)
            now = self.drains.since_ms(self.names[row], self.leaves[leaf] if leaf >= 0 else "", self.superpod_at(row))
        if now:
            self.drained_ms[row] = now
        if now == before:
            return
        self.note_change(row)
        found.nodes_changed = True
        if before and (not now or now > before):
            if self.present[row]:
                found.capacity_gained[row] = None
        else:
            found.capacity_lost = True

    def apply_health(self, fact: HealthSeen) -> Changes:
        """Set the health of a domain's nodes to that of the fact; nodes that it omits are healthy.

        The health of a node is that of its own domain's fact, whichever fact came first. A shard, which has its own
        domains only, and a reader of all domains therefore have equal columns.
        """
        rows = [self.row(name) for name in unpack_names(fact.names)]
        bad = np.frombuffer(fact.unhealthy, "<u8") | np.frombuffer(fact.recovering, "<u8")
        network = np.frombuffer(fact.network_unhealthy, "<u8").tolist()
        level = np.frombuffer(fact.level, "u1").tolist()
        known = np.frombuffer(fact.network_known, "?").tolist()
        withheld = np.frombuffer(fact.withheld or bytes(8 * len(rows)), "<u8").tolist()
        seen = zip(bad.tolist(), network, level, known, withheld, strict=True)
        now = {row: health for row, health in zip(rows, map(_Health._make, seen), strict=True) if health != _HEALTHY}
        before = self._health.get(fact.domain, {})
        self._health[fact.domain] = now
        spoken = np.sort(np.array(rows, np.int32))
        unspoken = np.setdiff1d(self._spoken.get(fact.domain, spoken[:0]), spoken)
        self._spoken[fact.domain] = spoken
        domain = self._domain_of.get(fact.domain)
        found = ChangesBuilder()
        for row in before | now:
            if self.domain[row] == domain:
                self._set_health(row, now.get(row, _HEALTHY), found)
        if domain is not None:
            found.add(self._speak(spoken[self.domain[spoken] == domain], spoken=True))
            found.add(self._speak(unspoken[self.domain[unspoken] == domain], spoken=False))
        return found.build()

    def hold(
        self, found: ChangesBuilder, row: int, mask: int, *, cpu_milli: int, memory_mib: int, pods: int = 1
    ) -> None:
        """Allocate chips, CPU and memory of a node to a pod.

        Args:
            found: The changes are added to it.
            row: The node.
            mask: The chips.
            cpu_milli: CPU in thousandths.
            memory_mib: Memory.
            pods: 0 for a pod that has given back what it held.

        Raises:
            InvariantError: A chip already has an owner.
        """
        if mask & (self.used.item(row) | self.releasing.item(row)):
            raise InvariantError("a chip would have two owners", subject=f"node {self.names[row]}")
        self.used[row] = self.used.item(row) | mask
        self._use(row, cpu_milli, memory_mib, pods, found)

    def let_go(
        self, found: ChangesBuilder, row: int, mask: int, *, cpu_milli: int, memory_mib: int, pods: int = 1
    ) -> None:
        """Release what a pod held; the arguments are those of :meth:`hold`."""
        self.used[row] = self.used.item(row) & ~mask
        self.releasing[row] = self.releasing.item(row) & ~mask
        self._use(row, -cpu_milli, -memory_mib, -pods, found)

    def set_shared(self, found: ChangesBuilder, row: int, mask: int, *, shared: bool) -> None:
        """Mark chips as used by soft-share pods, or as not used; the changes are added to ``found``."""
        bits = np.uint64(mask)
        self.used[row] = self.used[row] | bits if shared else self.used[row] & ~bits
        self._derive(row, found)

    def mark_releasing(self, found: ChangesBuilder, row: int, mask: int, *, releasing: bool) -> None:
        """Move held chips between used and releasing; the changes are added to ``found``."""
        bits = np.uint64(mask)
        if releasing:
            self.releasing[row] |= bits
            self.used[row] &= ~bits
        else:
            self.used[row] |= bits
            self.releasing[row] &= ~bits
        self._derive(row, found)

    def _speak(self, rows: Ints, *, spoken: bool) -> Changes:
        """Record which rows a health fact covers."""
        changed = rows[self.spoken[rows] != spoken]
        if not len(changed):
            return NO_CHANGES
        self.spoken[changed] = spoken
        self.revision += len(changed)
        self.changed[changed] = self.revision
        gained = dict.fromkeys(changed.tolist()) if spoken else {}
        return Changes(gained, capacity_lost=not spoken, nodes_changed=True)

    def _is_spoken_of(self, domain: str, row: int) -> bool:
        rows = self._spoken.get(domain)
        if rows is None or not len(rows):
            return False
        return bool(rows[min(int(rows.searchsorted(row)), len(rows) - 1)] == row)

    def _set_health(self, row: int, health: _Health, found: ChangesBuilder) -> None:
        if self.present[row] and (
            int(self.network[row]) & ~health.network
            or health.level < self.level[row]
            or (health.network_known and not self.network_known[row])
        ):
            found.capacity_gained[row] = None
        worse = (health.unhealthy, self.unhealthy), (health.network, self.network), (health.withheld, self.withheld)
        found.capacity_lost = (
            found.capacity_lost
            or any(now & ~int(column[row]) for now, column in worse)
            or bool(health.level > self.level[row])
            or bool(self.network_known[row] and not health.network_known)
        )
        before, barred = int(self.unhealthy[row]) | int(self.withheld[row]), health.unhealthy | health.withheld
        if self.present[row] and before != barred:
            found.chips_returned[row] = None
        if int(self.free[row]) & health.network & ~int(self.network[row]):
            found.take_chips(row, int(self.free[row]))
        self.unhealthy[row] = health.unhealthy
        self.network[row] = health.network
        self.level[row] = health.level
        self.network_known[row] = health.network_known
        self.withheld[row] = health.withheld
        self._derive(row, found)

    def _use(self, row: int, cpu_milli: int, memory_mib: int, pods: int, found: ChangesBuilder) -> None:
        if not cpu_milli:
            self.no_cpu[row] = self.no_cpu.item(row) + pods
        if not memory_mib:
            self.no_memory[row] = self.no_memory.item(row) + pods
        if not (cpu_milli or memory_mib):
            self._derive_free(row, found)
            return
        self._cpu_used[row] = self._cpu_used.get(row, 0) + cpu_milli
        self._memory_used[row] = self._memory_used.get(row, 0) + memory_mib
        self._derive(row, found)

    def _derive(self, row: int, found: ChangesBuilder) -> None:
        """Update the derived columns of a row.

        ``idle`` is the number of healthy chips that no pod holds, limited by the number of chips that Kubernetes can
        allocate, less those that pods hold and nobody has named.
        """
        chips = self.chips.item(row)
        healthy = chips & ~self.unhealthy.item(row)
        cpu_free = self.cpu.item(row) - self._cpu_used.get(row, 0)
        memory_free = self.memory.item(row) - self._memory_used.get(row, 0)
        is_more = bool(cpu_free > self.cpu_free.item(row) or memory_free > self.memory_free.item(row))
        self.unhealthy_count[row] = (chips & ~healthy).bit_count()
        self.allocatable[row] = min(self.allocatable_seen.item(row), healthy.bit_count())
        self.cpu_free[row] = max(cpu_free, _LEAST)
        self.memory_free[row] = max(memory_free, _LEAST)
        self._derive_free(row, found, is_more=is_more)

    def _derive_free(self, row: int, found: ChangesBuilder, *, is_more: bool = False) -> None:
        """The part of :meth:`_derive` that depends on which chips are held.

        Args:
            row: The row.
            found: The changes are added to it.
            is_more: The node has more cpu or memory free than before.
        """
        healthy = self.chips.item(row) & ~self.unhealthy.item(row)
        held = (self.used.item(row) | self.releasing.item(row)) & healthy
        is_present = self.present.item(row)
        free = healthy & ~held & ~self.withheld.item(row) if is_present else 0
        idle = self.allocatable.item(row) - held.bit_count() - self.chips_others.item(row)
        before, idle_before = self.free.item(row), self.idle.item(row)
        # More chips free than Kubernetes counts is a contradiction that bars the node; its end is an improvement too.
        contradicted, was_contradicted = free.bit_count() - idle, before.bit_count() - idle_before
        is_more = is_more or bool(free & ~before) or idle > idle_before or contradicted < was_contradicted
        self.free[row] = free
        self.idle[row] = idle
        self.note_change(row)
        taken = before & ~free
        found.nodes_changed = True
        if is_more and is_present:
            found.capacity_gained[row] = None
        if taken:
            found.take_chips(row, before)
