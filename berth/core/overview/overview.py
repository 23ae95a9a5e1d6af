"""The picture of a cell, kept up to date: only what facts, records and statuses touch is looked at again."""

from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from berth.core.changes import JobKey
from berth.core.overview.conditions import Conditions
from berth.core.overview.fault_list import FaultSource
from berth.core.overview.job_list import JobList, ListChanges
from berth.core.overview.node_layout import NodeLayout, Where, where
from berth.core.overview.node_rows import ChangedRows, node_row
from berth.core.overview.numbers import JobId, Numbers
from berth.core.overview.owners import Owners
from berth.core.queues.tree import is_tree
from berth.core.state.cell import State
from berth.core.state.ledger import Folded
from berth.schemas.page.view import Change, Fault, NodeRow, Reservation, View
from berth.schemas.status import JobStatus

_NEW: Final = NodeRow("", 0, 0, [])
"""Stands for the row of a node that came, until it is known."""


class Overview:
    """Picture of a cell.

    Whoever applies facts and records to the state notes them here, and asks for the change now and then. Statuses come
    from the stream of the cell, or from :class:`~berth.core.overview.derived_statuses.DerivedStatuses`.

    Args:
        state: The cell.
        cell: Its name.
    """

    def __init__(self, state: State, *, cell: str = "") -> None:
        self._state = state
        self._cell = cell
        self._numbers = Numbers()
        self._owners = Owners(state)
        self._conditions = Conditions()
        self._jobs = JobList(state, self._owners, self._numbers)
        self._source = FaultSource(state, self._conditions, self._owners, self._numbers)
        self._changed = ChangedRows(state.table)
        self._layout = NodeLayout({})
        self._rows: list[NodeRow] = []
        self._faults_of: dict[int, tuple[Fault, ...]] = {}
        """Faults by row of the node table, of the rows that have any."""
        self._faults: list[Fault] = []
        self._reservations: list[Reservation] = []
        self._has_queues = False
        self._touched: dict[int, None] = {}
        self._version = 0
        self._at_ms = self._facts_seq = self._ledger_seq = 0

    @property
    def version(self) -> int:
        """Version of the last change; 0 before the first."""
        return self._version

    def note_fact(self, data: bytes) -> None:
        """Note a fact that the state has applied; one that it refused is noted, too, and changes nothing."""
        for name in self._conditions.note(data):
            row = self._state.table.row_of.get(name)
            if row is not None:
                self._touched[row] = None

    def note_record(self, folded: Folded) -> None:
        """Note a record that the state has applied."""
        self._owners.note(folded)
        self._jobs.note(folded)

    def note_loaded(self) -> None:
        """Note that the state was loaded from a snapshot."""
        self._owners.touch_all()

    def note_status(self, status: JobStatus) -> None:
        """Note the newest status of a job."""
        self._jobs.note_status(status)

    def note_unnamed(self, key: JobKey) -> None:
        """Note that no job has a name any more: one that was not over by its last status has ended since."""
        self._jobs.note_unnamed(key)

    def change(self, at_ms: int) -> Change | View | None:
        """What changed since the last call: the whole picture when nodes come, go or move, None if nothing did.

        Args:
            at_ms: The time.
        """
        rows, owners = self._owners.refresh()
        self._jobs.touch(owners)
        listed = self._jobs.refresh()
        for row in (*self._changed.find(), *rows):
            self._touched[row] = None
        touched = sorted(self._touched)
        self._touched.clear()
        is_moved = self._update_layout(touched)
        nodes = self._update_rows(touched)
        faults = self._update_faults(touched, at_ms if self._version else 0)
        reservations = self._update_reservations() if owners or is_moved else UNSET
        has_queues = self._update_queues()
        has_lists = faults is not UNSET or reservations is not UNSET or listed.queue is not None
        has_lists |= has_queues is not UNSET
        if self._version and not (is_moved or has_lists or nodes or listed.jobs or listed.gone):
            return None
        self._version += 1
        self._at_ms = at_ms
        self._facts_seq, self._ledger_seq = self._state.facts_seq, self._state.fold.head
        if is_moved or self._version == 1:
            return self.view()
        change = self._change(nodes, listed, faults, reservations)
        return change if has_queues is UNSET else msgspec.structs.replace(change, has_queues=has_queues)

    def view(self, at_ms: int | None = None) -> View:
        """The whole picture as of the last change.

        Args:
            at_ms: The time; None for that of the change.
        """
        return View(
            cell=self._cell,
            version=self._version,
            at_ms=self._at_ms if at_ms is None else at_ms,
            facts_seq=self._facts_seq,
            ledger_seq=self._ledger_seq,
            layout=self._layout.layout,
            nodes=list(self._rows),
            jobs=self._jobs.jobs(),
            queue=self._jobs.queue,
            faults=list(self._faults),
            reservations=list(self._reservations),
            has_queues=self._has_queues,
        )

    def namespace_of(self) -> dict[int, str]:
        """Namespace of each job that is shown, by number."""
        return self._jobs.namespace_of()

    def _change(
        self,
        nodes: list[tuple[int, NodeRow]],
        listed: ListChanges,
        faults: list[Fault] | UnsetType,
        reservations: list[Reservation] | UnsetType,
    ) -> Change:
        return Change(
            version=self._version,
            at_ms=self._at_ms,
            facts_seq=self._facts_seq,
            ledger_seq=self._ledger_seq,
            nodes=nodes,
            jobs=listed.jobs,
            gone=listed.gone,
            queue=listed.queue if listed.queue is not None else UNSET,
            faults=faults,
            reservations=reservations,
        )

    def _update_layout(self, touched: list[int]) -> bool:
        """Make the layout anew if a node came, went or moved; returns whether one did."""
        moved: dict[int, Where | None] = {}
        for row in touched:
            place = where(self._state.table, row)
            if self._layout.is_moved(row, place):
                moved[row] = place
        if not moved:
            return False
        before = self._layout
        places = {**before.places, **moved}
        self._layout = NodeLayout({row: place for row, place in places.items() if place is not None}, before)
        index_of = before.index_of
        self._rows = [self._rows[index_of[row]] if row in index_of else _NEW for row in self._layout.rows]
        for row, found in self._faults_of.items():  # those of rows that are not shown any more are touched
            index = self._layout.index_of.get(row, -1)
            self._faults_of[row] = tuple(msgspec.structs.replace(fault, node=index) for fault in found)
        return True

    def _update_rows(self, touched: list[int]) -> list[tuple[int, NodeRow]]:
        """Rows that differ from before, with their indexes, ascending."""
        found: list[tuple[int, NodeRow]] = []
        for row in touched:
            index = self._layout.index_of.get(row)
            if index is not None:
                now = node_row(self._state, row, self._owners, self._numbers)
                if now != self._rows[index]:
                    self._rows[index] = now
                    found.append((index, now))
        return sorted(found, key=_index)

    def _update_faults(self, touched: list[int], at_ms: int) -> list[Fault] | UnsetType:
        for row in touched:
            index = self._layout.index_of.get(row)
            before = self._faults_of.get(row, ())
            found = self._source.of(row, index, before, at_ms) if index is not None else ()
            if found:
                self._faults_of[row] = found
            else:
                self._faults_of.pop(row, None)
        rows = sorted(self._faults_of, key=self._layout.index_of.__getitem__)
        faults = [fault for row in rows for fault in self._faults_of[row]]
        if faults == self._faults:
            return UNSET
        self._faults = faults
        return list(faults)

    def _update_reservations(self) -> list[Reservation] | UnsetType:
        index_of = self._layout.index_of
        found = [
            Reservation(
                job=self._numbers.of(job),
                until_ms=until_ms,
                nodes=sorted(index_of[row] for row in rows if row in index_of),
            )
            for job, until_ms, rows in self._owners.reserved()
            if self._owns(job)
        ]
        if found == self._reservations:
            return UNSET
        self._reservations = found
        return list(found)

    def _update_queues(self) -> bool | UnsetType:
        before, self._has_queues = (
            self._has_queues,
            is_tree(fact.queue for fact in self._state.queues.declared.values()),
        )
        return UNSET if self._has_queues == before else self._has_queues

    def _owns(self, job: JobId) -> bool:
        return self._jobs.number(job) > 0


def _index(entry: tuple[int, NodeRow]) -> int:
    return entry[0]
