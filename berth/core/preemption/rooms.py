"""Room of a place while gangs leave it and return, counted row by row.

A row on which one candidate alone holds something has its largest room as soon as that one leaves, so a sum a candidate
says all of such rows. Only rows that several of them hold have a state that is followed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import RowState
from berth.core.preemption.candidates import Candidate
from berth.core.preemption.footprints import OnRow
from berth.core.preemption.places import Pairs
from berth.core.preemption.slots import Slots, Tally, WholeGroups

_NO_ROWS: Sequence[OnRow] = ()


class Nodes:
    """Nodes before anybody leaves, as all places of a preemptor see them.

    Args:
        table: The nodes.
        state: State of a row.
        held: What candidates hold.
        slots: Counts pods of the preemptor.
        room: Room of each row for each task, shape (rows,) each.
        groups: Pods that must be together.
        candidates: All candidates.
        pairs: Where they hold something.
    """

    def __init__(
        self,
        table: NodeTable,
        state: Callable[[int], RowState],
        held: Callable[[Candidate], Sequence[OnRow]],
        slots: Slots,
        room: Sequence[Rows],
        groups: WholeGroups,
        candidates: Sequence[Candidate],
        pairs: Pairs,
    ) -> None:
        self.state, self.slots, self.room, self.groups = state, slots, room, groups
        self._held = held
        view = table.view()
        self.usable = table.chips[view] & ~table.unhealthy[view] & ~table.withheld[view]
        """Chips of each row that a pod may get, shape (rows,)."""
        self._numbers = {one: number for number, one in enumerate(candidates)}
        keys = np.unique(pairs.numbers * len(table) + pairs.rows)
        numbers, rows = keys // max(len(table), 1), keys % max(len(table), 1)
        self.is_shared: Fits = np.bincount(rows, minlength=len(table)) > 1
        """Rows on which several candidates hold something, shape (rows,)."""
        alone = ~self.is_shared[rows]
        self._alone = rows[alone], numbers[alone]
        self._gains = [most - now for most, now in zip(slots.most, room, strict=True)]
        self._shared: dict[Candidate, Sequence[OnRow]] = {}
        self._has_shared = np.bincount(numbers[~alone], minlength=len(candidates)) > 0
        self._rows_alone: dict[int, list[tuple[int, int]]] = {}
        self._groups_alone: dict[int, list[tuple[int, int]]] = {}

    def at(self, row: int) -> tuple[int, ...]:
        """Room of a row for each task."""
        return tuple([room.item(row) for room in self.room])

    def gains(self, inside: Fits | None) -> list[list[int]]:
        """Room for each task that comes if a candidate leaves the rows that it holds alone, by task and candidate.

        Args:
            inside: Rows that count, shape (rows,); None for all.
        """
        rows, numbers = self._alone
        if inside is not None:
            here = inside[rows]
            rows, numbers = rows[here], numbers[here]
        count = len(self._numbers)
        return [np.bincount(numbers, gain[rows], count).astype(np.int64).tolist() for gain in self._gains]

    def number(self, one: Candidate) -> int:
        """Number of a candidate; -1 for a part of one."""
        return self._numbers.get(one, -1)

    def rows_alone(self, number: int) -> list[tuple[int, int]]:
        """Rows that a candidate holds alone, each with the room for the first task that comes."""
        found = self._rows_alone.get(number)
        if found is None:
            rows, numbers = self._alone
            first, last = np.searchsorted(numbers, [number, number + 1])
            mine = rows[first:last]
            found = list(zip(mine.tolist(), self._gains[0][mine].tolist(), strict=True))
            self._rows_alone[number] = found
        return found

    def groups_alone(self, number: int) -> list[tuple[int, int]]:
        """As :meth:`rows_alone`, with one row for all of a lowest group of pods that must be together."""
        found = self._groups_alone.get(number)
        if found is None:
            sums: dict[int, tuple[int, int]] = {}
            for row, gain in self.rows_alone(number):
                group = self.groups.lowest(row)
                sums[group] = row, sums.get(group, (row, 0))[1] + gain
            found = self._groups_alone[number] = list(sums.values())
        return found

    def followed(self, one: Candidate) -> Sequence[OnRow]:
        """What a candidate holds on rows whose state is followed: all of it for a part of one."""
        number = self.number(one)
        if number < 0:
            return self._held(one)
        if not self._has_shared.item(number):
            return _NO_ROWS
        found = self._shared.get(one)
        if found is None:
            found = self._shared[one] = [pod for pod in self._held(one) if self.is_shared.item(pod.row)]
        return found


class CountedRoom:
    """Room of a place.

    Args:
        nodes: The nodes before anybody leaves.
        inside: Rows of the place, shape (rows,); None for all.
    """

    def __init__(self, nodes: Nodes, inside: Fits | None) -> None:
        self._nodes = nodes
        self._inside = inside
        self._gains = nodes.gains(inside)
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
        self._change(one, 1)

    def remove(self, one: Candidate) -> None:
        """Let it stay."""
        self._change(one, -1)

    def _change(self, one: Candidate, sign: int) -> None:
        nodes = self._nodes
        number = nodes.number(one)
        if number >= 0:
            for task, gains in enumerate(self._gains):
                self._have[task] += sign * gains[number]
            if self._tally is not None:
                inside = self._inside
                for row, gain in nodes.groups_alone(number) if inside is None else nodes.rows_alone(number):
                    if inside is None or inside.item(row):
                        self._tally.change(row, sign * gain)
        for pod in nodes.followed(one):
            self._follow(pod, leaves=sign > 0)

    def _follow(self, pod: OnRow, *, leaves: bool) -> None:
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
