"""A copy of a node table for what-if: it is changed alone, by what changes a table too, and thrown away."""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from berth.core.changes import ChangesBuilder
from berth.core.cluster.node_columns import COLUMNS, Mask
from berth.core.cluster.node_table import NodeTable
from berth.schemas.facts import NodeHealth, NodesSeen

Rows = npt.NDArray[np.int64]
_HELD: Final = (
    "used",
    "releasing",
    "free",
    "idle",
    "cpu_free",
    "memory_free",
    "no_cpu",
    "no_memory",
    "unhealthy_count",
    "allocatable",
    "changed",
)
"""Columns that change with what pods hold."""
_NAMED: Final = (
    "names",
    "addresses",
    "row_of",
    "domains",
    "classes",
    "superpods",
    "leaves",
    "racks",
    "drained_ms",
    "_domain_of",
    "_class_of",
    "_superpod_of",
    "_leaf_of",
    "_rack_of",
    "_seen",
    "_layouts",
    "_health",
    "_spoken",
)
"""Tables that change with facts."""
_LEAST: Final = int(np.iinfo(np.int32).min)


class NodeFork(NodeTable):
    """A copy of a table.

    Args:
        table: The table; what does not change is shared with it.
        facts: Nodes can be healed and added, which copies all that facts say of them.
    """

    def __init__(self, table: NodeTable, *, facts: bool = False) -> None:
        table.ranks()
        self.__dict__.update(vars(table))
        for column in COLUMNS if facts else _HELD:
            setattr(self, column, getattr(table, column).copy())
        for name in _NAMED if facts else ():
            setattr(self, name, getattr(table, name).copy())
        self._cpu_used, self._memory_used = self._cpu_used.copy(), self._memory_used.copy()

    def shift(self, rows: Rows, masks: Mask, cpu: Rows, memory: Rows, *, gives_back: bool) -> None:
        """Release or take what many pods hold; a chip that is taken twice stays taken.

        Args:
            rows: Row of each pod, shape (pods,); the other columns are parallel.
            masks: Chips of each.
            cpu: In thousandths.
            memory: In MiB.
            gives_back: Whether to release it.
        """
        if gives_back:
            for column in (self.used, self.releasing):
                np.bitwise_and.at(column, rows, ~masks)
        else:
            np.bitwise_or.at(self.used, rows, masks)
        sign = -1 if gives_back else 1
        asking = np.flatnonzero(cpu | memory)
        if len(asking):
            self._shift_requests(rows[asking], sign * cpu[asking], sign * memory[asking])
        healthy = self.chips[rows] & ~self.unhealthy[rows]
        held = (self.used[rows] | self.releasing[rows]) & healthy
        free = healthy & ~held & ~self.withheld[rows]
        self.free[rows] = np.where(self.present[rows], free, np.uint64(0))
        self.idle[rows] = self.allocatable[rows] - np.bitwise_count(held).astype(np.int16) - self.chips_others[rows]
        self.revision += 1
        self.changed[rows] = self.revision

    def _shift_requests(self, rows: Rows, cpu: Rows, memory: Rows) -> None:
        """Add what pods request to what is used; the columns are parallel."""
        cpu_used, memory_used = self._cpu_used, self._memory_used
        for row, own_cpu, own_memory in zip(rows.tolist(), cpu.tolist(), memory.tolist(), strict=True):
            cpu_used[row] = cpu_used.get(row, 0) + own_cpu
            memory_used[row] = memory_used.get(row, 0) + own_memory
        touched = np.unique(rows)
        names = touched.tolist()
        for free, has, used in (
            (self.cpu_free, self.cpu, cpu_used),
            (self.memory_free, self.memory, memory_used),
        ):
            left = has[touched].astype(np.int64) - np.array([used[row] for row in names], np.int64)
            free[touched] = np.maximum(left, _LEAST)

    def heal(self, rows: Iterable[int]) -> None:
        """Let nodes be healthy, ready and schedulable; only for a copy with facts."""
        for row in rows:
            key = msgspec.structs.replace(self.classes[self.node_class.item(row)], cordoned=False, ready=True)
            self.node_class[row] = self.class_index(key)
            self.unhealthy[row] = self.network[row] = self.withheld[row] = 0
            self.level[row] = NodeHealth.OK
            self.network_known[row] = self.spoken[row] = True
            self.allocatable_seen[row] = self.capacity[row]
            self._derive(row, ChangesBuilder())

    def add(self, fact: NodesSeen) -> list[int]:
        """Add the nodes of a domain that the table lacks, healthy ones; only for a copy with facts.

        Returns:
            Their rows.
        """
        self.apply_nodes(fact)
        rows = self.rows_of_domain(fact.domain)
        self.spoken[rows] = True
        return rows
