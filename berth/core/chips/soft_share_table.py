"""Soft share: how much of each chip is allocated to pods that share it.

The table contains only nodes with the enable label. A shared chip counts as used for every other kind of work, and a
chip of other work counts as used for soft share.

Source: docs/reference/nodes-and-chips.md, "Soft share".
"""

from collections.abc import Iterable, Sequence
from typing import Final

from berth.core.changes import ChangesBuilder
from berth.core.chips.picking import ids_of
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.shared_use import CORE_PERCENT, POLICY_NUMBERS, SharedNode, unused_node
from berth.core.errors import InvariantError
from berth.schemas.placement import Share

ENABLE_LABEL: Final = "huawei.com/scheduler.chip1softsharedev.enable"
MEMORY_LABEL: Final = "mind-cluster/npu-chip-memory"
MIB_PER_GIB: Final = 1024
_GIB_MAX: Final = (1 << 21) - 1
"""Largest memory of a chip, in GiB, that a column of MiB can store."""
_DIGITS_MAX: Final = 18


class SoftShareTable:
    """Soft-share use of all nodes of a table, by row."""

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.nodes: dict[int, SharedNode] = {}

    def learn(self, rows: Iterable[int]) -> None:
        """Read the labels of nodes whose fact changed."""
        for row in rows:
            labels = self._table.labels(row)
            enabled = labels.get(ENABLE_LABEL) == "true"
            node = self.nodes.get(row)
            if node is None and not enabled:
                continue
            if node is None:
                node = self.nodes[row] = unused_node()
            node.enabled = enabled
            node.memory_mib = memory_of(labels.get(MEMORY_LABEL, ""))

    def part(self, table: NodeTable, rows: Sequence[int]) -> "SoftShareTable":
        """A copy for a table that has some of the rows only, in their order."""
        found = SoftShareTable(table)
        found.nodes = {index: self.nodes[row] for index, row in enumerate(rows) if row in self.nodes}
        return found

    def fork(self, table: NodeTable) -> "SoftShareTable":
        """A copy for a copy of the table, which is changed alone."""
        found = SoftShareTable(table)
        found.nodes = {row: node.copy() for row, node in self.nodes.items()}
        return found

    def hold(self, found: ChangesBuilder, row: int, chip: int, share: Share) -> None:
        """Allocate a quota of a chip to a pod; the changes are added to ``found``.

        Raises:
            InvariantError: A pod that does not share holds the chip, or pods with another policy share it.
        """
        node = self.nodes.get(row)
        if node is None:
            node = self.nodes[row] = unused_node()
        name = self._table.names[row]
        taken = int(self._table.used[row]) | int(self._table.releasing[row])
        if not node.pods[chip] and taken >> chip & 1:
            raise InvariantError("a chip would have two owners", subject=f"node {name} chip {chip}")
        if node.pods[chip] and node.policy[chip] != POLICY_NUMBERS[share.policy]:
            raise InvariantError("a chip would be shared by two policies", subject=f"node {name} chip {chip}")
        if node.core[chip] + share.aicore > CORE_PERCENT:
            raise InvariantError("more than 100 percent of a chip would be given", subject=f"node {name} chip {chip}")
        node.add(chip, share)
        self._table.set_shared(found, row, 1 << chip, shared=True)

    def let_go(self, found: ChangesBuilder, row: int, chip: int, share: Share) -> None:
        """Release a quota; the changes are added to ``found``."""
        node = self.nodes[row]
        node.remove(chip, share)
        self._table.note_change(row)
        found.capacity_gained[row] = None
        if not node.pods[chip]:
            self._table.set_shared(found, row, 1 << chip, shared=False)

    def close(self, found: ChangesBuilder, row: int, mask: int) -> None:
        """Let no further pod share chips of a node, for which a reservation waits."""
        self._close(found, row, mask, 1)

    def open(self, found: ChangesBuilder, row: int, mask: int) -> None:
        """Undo :meth:`close`."""
        self._close(found, row, mask, -1)
        found.capacity_gained[row] = None

    def _close(self, found: ChangesBuilder, row: int, mask: int, times: int) -> None:
        node = self.nodes.get(row)
        if node is None:
            node = self.nodes[row] = unused_node()
        for chip in ids_of(mask):
            node.closed[chip] += times
        self._table.note_change(row)
        found.nodes_changed = True

    def offered(self, row: int) -> int:
        """Mask of the chips of a node that exist, are healthy and are not withheld; 0 if no fact covers the node."""
        table = self._table
        if not table.present[row]:
            return 0
        return int(table.chips[row]) & ~(int(table.unhealthy[row]) | int(table.withheld[row]))

    def free_mask(self, row: int) -> int:
        """Mask of the chips of a node that a soft-share pod may get: offered, not held by other work, not full."""
        node = self.nodes.get(row)
        return self.free_for(row, node, self.others(row)) if node is not None else 0

    def free_for(self, row: int, node: SharedNode, held: int) -> int:
        """Mask of the chips of a node that a soft-share pod may get in a given state.

        As many unused chips stay unused as pods hold that nobody has named.

        Args:
            row: The node.
            node: Its shared use.
            held: Mask of the chips that are held by work without soft share.
        """
        usable = self.offered(row) & ~held & ~node.full
        has_unused = (usable & ~node.mask).bit_count() > self._table.chips_others.item(row)
        return usable if has_unused else usable & node.mask

    def others(self, row: int) -> int:
        """Mask of the chips of a node that are held by work without soft share."""
        node = self.nodes.get(row)
        shared = node.mask if node is not None else 0
        return (int(self._table.used[row]) | int(self._table.releasing[row])) & ~shared


def memory_of(label: str) -> int:
    """Memory of one chip in MiB, read from the node's label ``<k>G``; 0 if the label has another form or is too large.

    Source: docs/reference/nodes-and-chips.md, "Soft share".
    """
    digits = label.removesuffix("G")
    if digits == label or not digits.isascii() or not digits.isdigit() or len(digits) > _DIGITS_MAX:
        return 0
    return int(digits) * MIB_PER_GIB if int(digits) <= _GIB_MAX else 0
