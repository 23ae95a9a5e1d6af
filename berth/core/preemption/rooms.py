"""Room of a place while gangs leave it and return.

A row on which one candidate alone holds something has its largest room as soon as that one leaves, so a sum a candidate
says all of such rows. Only rows that several of them hold have a state that is followed.
"""

from collections.abc import Mapping

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.view import RowState
from berth.core.preemption.footprints import OnRow
from berth.core.preemption.model import Candidate
from berth.core.preemption.pool import Counts, Pool
from berth.core.preemption.slots import Tally, WholeGroups


class Gains:
    """What comes on the rows that candidates hold alone, if they leave, for one class of gangs.

    Args:
        pool: The candidates.
        counts: Room for the class.
        groups: Pods that must be together.
    """

    def __init__(self, pool: Pool, counts: Counts, groups: WholeGroups) -> None:
        self.pool, self.counts, self.groups = pool, counts, groups
        self._rows: dict[int, list[tuple[int, int]]] = {}
        self._by_group: dict[int, list[tuple[int, int]]] = {}

    def of_place(self, inside: Fits | None) -> list[list[int]]:
        """Room that comes if a candidate leaves, by task and candidate.

        Args:
            inside: Rows that count, shape (rows,); None for all.
        """
        rows, numbers = self.pool.alone
        if inside is not None:
            here = inside[rows]
            rows, numbers = rows[here], numbers[here]
        size = len(self.pool.candidates)
        parts = zip(self.counts.most, self.counts.now, strict=True)
        return [np.bincount(numbers, most[rows] - now[rows], size).astype(np.int64).tolist() for most, now in parts]

    def rows(self, number: int) -> list[tuple[int, int]]:
        """Rows that a candidate holds alone, each with the room for the first task that comes."""
        found = self._rows.get(number)
        if found is None:
            rows, numbers = self.pool.alone
            first, last = np.searchsorted(numbers, [number, number + 1])
            mine = rows[first:last]
            gains = self.counts.most[0][mine] - self.counts.now[0][mine]
            found = self._rows[number] = list(zip(mine.tolist(), gains.tolist(), strict=True))
        return found

    def by_group(self, number: int) -> list[tuple[int, int]]:
        """As :meth:`rows`, with one row for all of a lowest group of pods that must be together."""
        found = self._by_group.get(number)
        if found is None:
            sums: dict[int, tuple[int, int]] = {}
            for row, gain in self.rows(number):
                group = self.groups.lowest(row)
                sums[group] = row, sums.get(group, (row, 0))[1] + gain
            found = self._by_group[number] = list(sums.values())
        return found


class CountedRoom:
    """Room of a place.

    Args:
        gains: What comes if candidates leave.
        inside: Rows of the place, shape (rows,); None for all.
    """

    def __init__(self, gains: Gains, inside: Fits | None) -> None:
        pool, counts = gains.pool, gains.counts
        self._gains, self._pool, self._counts, self._inside = gains, pool, counts, inside
        self._alone = gains.of_place(inside)
        self._states: dict[int, tuple[RowState, tuple[int, ...]]] = {}
        self._have = [int(room.sum() if inside is None else room[inside].sum()) for room in counts.now]
        self._tally: Tally | None = None
        if gains.groups:
            room = counts.now[0] if inside is None else np.where(inside, counts.now[0], 0)
            rows = np.flatnonzero(room)
            known: Mapping[int, int] = dict(zip(rows.tolist(), room[rows].tolist(), strict=True))
            self._tally = gains.groups.tally(known)

    def add(self, one: Candidate) -> None:
        """Let a candidate leave."""
        self._change(one, 1)

    def remove(self, one: Candidate) -> None:
        """Let it stay."""
        self._change(one, -1)

    def _change(self, one: Candidate, sign: int) -> None:
        number = self._pool.numbers.get(one, -1)
        if number >= 0:
            for task, gains in enumerate(self._alone):
                self._have[task] += sign * gains[number]
            if self._tally is not None:
                self._change_tally(self._tally, number, sign)
        for pod in self._pool.followed(one, number):
            self._follow(pod, leaves=sign > 0)

    def _change_tally(self, tally: Tally, number: int, sign: int) -> None:
        if self._inside is None:
            for row, gain in self._gains.by_group(number):
                tally.change(row, sign * gain)
            return
        for row, gain in self._gains.rows(number):
            if self._inside.item(row):
                tally.change(row, sign * gain)

    def _follow(self, pod: OnRow, *, leaves: bool) -> None:
        row, mask, cpu, memory, share = pod
        if self._inside is not None and not self._inside.item(row):
            return
        pool = self._pool
        known = self._states.get(row)
        if known is None:
            known = pool.state(row), tuple([room.item(row) for room in self._counts.now])
        state, room = known
        step = state.without_pod if leaves else state.with_pod
        now = step(mask & pool.usable.item(row), cpu, memory, share)
        found = self._counts.slots.of_row(row, now)
        self._states[row] = now, found
        if found == room:
            return
        for task, (before, after) in enumerate(zip(room, found, strict=True)):
            self._have[task] += after - before
        if self._tally is not None:
            self._tally.change(row, found[0] - room[0])

    def fits(self) -> bool:
        """Whether each task of the preemptor may have room."""
        tasks = self._counts.slots.tasks
        for task, have in zip(tasks, self._have, strict=True):
            if have < task.pods:
                return False
        return self._tally is None or self._tally.total >= tasks[0].pods
