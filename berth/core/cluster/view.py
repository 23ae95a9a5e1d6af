"""View: nodes as tentative operations leave them, on top of a table that stays as it is.

Operations are made one by one. Under an open mark each leaves behind what reverses it, so all since the mark can be
taken back. What is taken back is one more change: revisions of rows only grow, and the log of touched rows names them
again. An index that reads the log, or that is told the reverse of its own operations, needs no copy and no roll-back.

The state of a touched row is kept as a value, which is what single rows are scored on. The columns are the view's own,
made when they are first asked for, and follow the log.
"""

import copy
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Self

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.shared_use import SharedNode
from berth.core.errors import InvariantError
from berth.schemas.placement import Share

KeptRows = Mapping[int, tuple[int, int]]
"""Cpu (thousandths) and memory (MiB) by row."""
_LEFT: Final = ("free", "idle", "cpu_free", "memory_free", "no_cpu", "no_memory")
"""Columns of what a row has left, which are fields of :class:`RowState` too."""
_LEAST: Final = -(1 << 31)
"""Room that is kept may be more than a column holds."""


class RowState(msgspec.Struct, gc=False):
    """What a node has left. Values are not changed; operations give new ones."""

    free: int
    idle: int
    cpu_free: int
    memory_free: int
    share: SharedNode | None
    no_cpu: int
    """Pods that request no cpu."""
    no_memory: int

    def with_pod(self, mask: int, cpu_milli: int, memory_mib: int, share: Share | None = None) -> "RowState":
        """State with one more pod.

        Args:
            mask: Its chips.
            cpu_milli: Its cpu in thousandths.
            memory_mib: Its memory.
            share: Its quota of each of the chips; None for a pod that shares none.
        """
        use, taken = self.share, self.free & mask
        if share is not None and use is not None and mask:
            use = use.copy()
            for chip in _chips(mask):
                use.add(chip, share)
        return RowState(
            self.free ^ taken,
            self.idle - taken.bit_count(),
            self.cpu_free - cpu_milli,
            self.memory_free - memory_mib,
            use,
            self.no_cpu + (not cpu_milli),
            self.no_memory + (not memory_mib),
        )

    def without_pod(self, mask: int, cpu_milli: int, memory_mib: int, share: Share | None) -> "RowState":
        """State with one pod less; the arguments are those of :meth:`with_pod`, and the chips are usable ones."""
        use, given = self.share, mask
        if share is not None:
            given = 0
        if share is not None and use is not None:
            use = use.copy()
            for chip in _chips(mask):
                use.remove(chip, share)
                given |= 0 if use.pods[chip] else 1 << chip
        given &= ~self.free
        return RowState(
            self.free | given,
            self.idle + given.bit_count(),
            self.cpu_free + cpu_milli,
            self.memory_free + memory_mib,
            use,
            self.no_cpu - (not cpu_milli),
            self.no_memory - (not memory_mib),
        )


def row_state(table: NodeTable, shared: Mapping[int, SharedNode], row: int) -> RowState:
    """State of a row by columns and shared use."""
    return RowState(
        table.free.item(row),
        table.idle.item(row),
        table.cpu_free.item(row),
        table.memory_free.item(row),
        shared.get(row),
        table.no_cpu.item(row),
        table.no_memory.item(row),
    )


class Mark:
    """A moment of a view to which it can return; as a context, what was not kept at its end is taken back.

    Attributes:
        before: Rows that were touched since, as they were then.
        reverses: What reverses the operations of indexes since then, in the order of the operations.
    """

    __slots__ = ("_view", "before", "reverses")

    def __init__(self, view: "View") -> None:
        self._view: View = weakref.proxy(view)  # a view has its marks: in a cycle it would stay until a collection
        self.before: dict[int, RowState] = {}
        self.reverses: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self in self._view.marks:
            self.roll_back()
            self.keep()

    def roll_back(self) -> None:
        """Take back all operations since; the mark stays open.

        Raises:
            InvariantError: It is not the innermost open mark, or a fact or a record was folded since the view was made.
        """
        self._view.roll_back(self)

    def keep(self) -> None:
        """Close the mark: the operations since then are those of the mark around it.

        Raises:
            InvariantError: It is not the innermost open mark, or a fact or a record was folded since the view was made.
        """
        self._view.close(self)


class View:
    """Nodes as tentative operations leave them.

    Args:
        table: The nodes; neither facts nor records may change them while the view is used.
        shared: Shared use of their chips, by row.

    Attributes:
        states: State of each row that was ever touched.
        revisions: How often each of these rows has changed.
        log: Touched rows in the order of their changes.
        kept: Cpu and memory of rows that pods must leave free, in thousandths and in MiB.
        marks: Open marks, the first one first.
        touched: Rows that the columns have from the log, shape (rows,).
    """

    def __init__(self, table: NodeTable, shared: Mapping[int, SharedNode]) -> None:
        self.states: dict[int, RowState] = {}
        self.revisions: dict[int, int] = {}
        self.log: list[int] = []
        self.kept: KeptRows = {}
        self.marks: list[Mark] = []
        self._base, self._made_at = table, table.revision
        self._table = table
        """Columns, of the view's own once they are asked for."""
        self._shared = shared
        self._seen = 0
        """Entries of the log that its own columns include."""
        self.touched: Marks = np.zeros(len(table), np.bool_)

    def state(self, row: int) -> RowState:
        """Current state of a row."""
        found = self.states.get(row)
        return row_state(self._table, self._shared, row) if found is None else found

    def columns(self) -> NodeTable:
        """The nodes with what they have left now; what is held is not followed."""
        table = self._table
        if table is self._base:
            self._check()
            table.ranks()
            table = self._table = copy.copy(table)
            for column in _LEFT:
                setattr(table, column, getattr(table, column).copy())
        for row in dict.fromkeys(self.log[self._seen :]):
            state = self.states[row]
            self.touched[row] = True
            for column in _LEFT:
                getattr(table, column)[row] = max(getattr(state, column), _LEAST)
        self._seen = len(self.log)
        return table

    def tentative(self) -> Mark:
        """A mark of this moment.

        Raises:
            InvariantError: A fact or a record was folded since the view was made.
        """
        self._check()
        mark = Mark(self)
        self.marks.append(mark)
        return mark

    def roll_back(self, mark: Mark) -> None:
        """As :meth:`Mark.roll_back`."""
        self._check_innermost(mark)
        for reverse in reversed(mark.reverses):
            reverse()
        for row, state in mark.before.items():
            self._put(row, state)
        mark.before, mark.reverses = {}, []

    def advance(self, mark: Mark) -> None:
        """Keep the operations since a mark, which then is one of this moment."""
        self._check_innermost(mark)
        if len(self.marks) > 1:
            outer = self.marks[-2]
            for row, state in mark.before.items():
                outer.before.setdefault(row, state)
            outer.reverses += mark.reverses
        if mark.before or mark.reverses:
            mark.before, mark.reverses = {}, []

    def close(self, mark: Mark) -> None:
        """As :meth:`Mark.keep`."""
        self.advance(mark)
        self.marks.pop()

    def note(self, reverse: Callable[[], object]) -> None:
        """Note what reverses an operation of an index; it is called if the operation is taken back."""
        if self.marks:
            self.marks[-1].reverses.append(reverse)

    def take(self, row: int, mask: int, cpu_milli: int, memory_mib: int, share: Share | None = None) -> None:
        """Give a pod chips, cpu and memory of a node; the arguments are those of :meth:`RowState.with_pod`."""
        old = self.state(row)
        self.change(row, old, old.with_pod(mask, cpu_milli, memory_mib, share))

    def give(self, row: int, mask: int, cpu_milli: int, memory_mib: int, share: Share | None = None) -> None:
        """Free what a pod has on a node; the arguments are those of :meth:`RowState.without_pod`."""
        old = self.state(row)
        self.change(row, old, old.without_pod(mask, cpu_milli, memory_mib, share))

    def keep(self, rows: KeptRows) -> None:
        """Let pods leave cpu and memory of some rows free until the next call, whatever is taken back meanwhile.

        Raises:
            InvariantError: Something can be taken back.
        """
        if rows == self.kept:
            return
        if any(mark.before for mark in self.marks):
            raise InvariantError("what is kept free changes only between gangs", subject="view")
        for row in dict.fromkeys((*self.kept, *rows)):
            (cpu_before, memory_before), (cpu, memory) = self.kept.get(row, (0, 0)), rows.get(row, (0, 0))
            old = self.state(row)
            cpu_free, memory_free = old.cpu_free + cpu_before - cpu, old.memory_free + memory_before - memory
            self._put(row, msgspec.structs.replace(old, cpu_free=cpu_free, memory_free=memory_free))
        self.kept = rows

    def touch(self, row: int) -> None:
        """Let everything that depends on a row be computed anew, though its state stays."""
        self._put(row, self.state(row))

    def change(self, row: int, old: RowState, new: RowState) -> None:
        """Replace the state of a row; ``old`` is what :meth:`state` gives."""
        if self.marks:
            self.marks[-1].before.setdefault(row, old)
        self.states[row] = new
        self.revisions[row] = self.revisions.get(row, 0) + 1
        self.log.append(row)

    def _put(self, row: int, state: RowState) -> None:
        self.states[row] = state
        self.revisions[row] = self.revisions.get(row, 0) + 1
        self.log.append(row)

    def _check(self) -> None:
        """Check that the nodes are those from which the view was made.

        Raises:
            InvariantError: The nodes have changed since.
        """
        if self._base.revision != self._made_at:
            raise InvariantError("nodes changed below a view of them", subject="view")

    def _check_innermost(self, mark: Mark) -> None:
        self._check()
        if not self.marks or self.marks[-1] is not mark:
            raise InvariantError("only the innermost open mark is taken back or kept", subject="view")


def _chips(mask: int) -> list[int]:
    return [chip for chip in range(mask.bit_length()) if mask >> chip & 1]
