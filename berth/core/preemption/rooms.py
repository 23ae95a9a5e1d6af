"""Room of a place while gangs leave it and return, counted row by row."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import RowState
from berth.core.preemption.candidates import Candidate
from berth.core.preemption.footprints import OnRow
from berth.core.preemption.slots import Slots, Tally, WholeGroups


class Nodes:
    """Nodes before anybody leaves, as all places of a preemptor see them.

    Args:
        table: The nodes.
        state: State of a row.
        held: What candidates hold.
        slots: Counts pods of the preemptor.
        room: Room of each row for each task, shape (rows,) each.
        groups: Pods that must be together.
    """

    def __init__(
        self,
        table: NodeTable,
        state: Callable[[int], RowState],
        held: Callable[[Candidate], Sequence[OnRow]],
        slots: Slots,
        room: Sequence[Rows],
        groups: WholeGroups,
    ) -> None:
        self.state, self.held, self.slots, self.room, self.groups = state, held, slots, room, groups
        view = table.view()
        self.usable = table.chips[view] & ~table.unhealthy[view] & ~table.withheld[view]
        """Chips of each row that a pod may get, shape (rows,)."""

    def at(self, row: int) -> tuple[int, ...]:
        """Room of a row for each task."""
        return tuple([room.item(row) for room in self.room])


class CountedRoom:
    """Room of a place.

    Args:
        nodes: The nodes before anybody leaves.
        inside: Rows of the place, shape (rows,); None for all.
    """

    def __init__(self, nodes: Nodes, inside: Fits | None) -> None:
        self._nodes = nodes
        self._inside = inside
        self._states: dict[int, tuple[RowState, tuple[int, ...]]] = {}
        self._have = [int(room.sum() if inside is None else room[inside].sum()) for room in nodes.room]
        self._tally: Tally | None = None
        if nodes.groups:
            room = nodes.room[0] if inside is None else np.where(inside, nodes.room[0], 0)
            rows = np.flatnonzero(room)
            known: Mapping[int, int] = dict(zip(rows.tolist(), room[rows].tolist(), strict=True))
            self._tally = nodes.groups.tally(known)

    def add(self, one: Candidate) -> None:
        """Let a candidate leave."""
        for pod in self._nodes.held(one):
            self._change(pod, leaves=True)

    def remove(self, one: Candidate) -> None:
        """Let it stay."""
        for pod in self._nodes.held(one):
            self._change(pod, leaves=False)

    def _change(self, pod: OnRow, *, leaves: bool) -> None:
        row, mask, cpu, memory, share = pod
        inside, nodes = self._inside, self._nodes
        if inside is not None and not inside.item(row):
            return
        known = self._states.get(row)
        state, room = known if known is not None else (nodes.state(row), nodes.at(row))
        step = state.without_pod if leaves else state.with_pod
        now = step(mask & nodes.usable.item(row), cpu, memory, share)
        found = nodes.slots.of_row(row, now)
        self._states[row] = now, found
        if found == room:
            return
        have = self._have
        for index, (before, after) in enumerate(zip(room, found, strict=True)):
            have[index] += after - before
        if self._tally is not None:
            self._tally.change(row, found[0] - room[0])

    def fits(self) -> bool:
        """Whether each task of the preemptor may have room."""
        for task, have in zip(self._nodes.slots.tasks, self._have, strict=True):
            if have < task.pods:
                return False
        return self._tally is None or self._tally.total >= self._nodes.slots.tasks[0].pods
