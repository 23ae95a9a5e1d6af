"""Places in which a preemptor could be planned, and in which order they are looked at."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.preemption.model import Place
from berth.core.preemption.slots import Task, WholeGroups
from berth.core.topologies.planning import Areas

_SCALE: Final = 1 << 20
"""Largest loss of a gang in a price, so that sums of prices fit a column of integers."""
_LEVEL_BITS: Final = 8
_LEVELS_MAX: Final = 2
"""A loss at a higher level weighs more, for so many levels above the lowest."""


class Spot(NamedTuple):
    """A place that is large enough once all candidates have left.

    Attributes:
        place: Its name.
        size: Its nodes.
        order: Its number among all places, small kinds first.
        inside: Its rows, shape (rows,); None for all.
        candidates: Numbers of the candidates that hold something there.
    """

    place: Place
    size: int
    order: int
    inside: Fits | None
    candidates: Sequence[int]


class Pairs(NamedTuple):
    """Which candidate holds something on which row. Columns of shape (pairs,).

    Attributes:
        rows: The row.
        numbers: The candidate.
        chips: Chips that it holds there; pods without chips count as one.
        prices: What it costs that the candidate leaves.
    """

    rows: Rows
    numbers: Rows
    chips: Rows
    prices: Rows


def prices_of(lost: Sequence[int], levels: Sequence[int]) -> Rows:
    """Prices of candidates, by which places are ordered before any set is chosen.

    Args:
        lost: What is lost by each.
        levels: Rank of the level of each, the lowest level 0.
    """
    most = max(lost, default=0) or 1
    found = [
        (one * _SCALE // most + 1) << _LEVEL_BITS * min(level, _LEVELS_MAX)
        for one, level in zip(lost, levels, strict=True)
    ]
    return np.array(found, np.int64)


class Places:
    """All places of a preemptor.

    Args:
        table: The nodes.
        areas: Groups of nodes, those of smaller groups first.
        tasks: Pods of the preemptor.
        groups: Pods that must be together.
    """

    def __init__(self, table: NodeTable, areas: Sequence[Areas], tasks: Sequence[Task], groups: WholeGroups) -> None:
        self._table = table
        self._tasks = tasks
        self._groups = groups
        rows = np.arange(len(table))
        self._kinds: list[Areas | None] = [*areas, None]
        self._has_nodes = sum(task.pods for task in tasks if task.is_planned) <= 1
        self._rows = rows

    @property
    def smallest(self) -> str:
        """The smallest kind of place."""
        if self._has_nodes and sum(task.pods for task in self._tasks) == 1:
            return "node"
        kinds = [areas.kind for areas in self._kinds if areas is not None]
        return kinds[0] if kinds else "cell"

    def spots(self, now: Sequence[Rows], most: Sequence[Rows], pairs: Pairs, count: int) -> list[Spot]:
        """The first places that are large enough, those first in which the least seems to be lost.

        Args:
            now: Room of each row for each task before anybody leaves, shape (rows,) each.
            most: The same if all candidates have left.
            pairs: Where candidates hold something.
            count: Most places to return.
        """
        found: list[tuple[int, int, int, int, int]] = []
        """Bound, size, order, kind, and number of the place among those of its kind."""
        first = 0
        if self._has_nodes:
            enough = np.flatnonzero(self._are_enough(most))
            if len(enough):
                bounds = self._bounds(now, pairs, self._rows, len(self._rows))
                found += [
                    (bound, 1, row, -1, row)
                    for bound, row in zip(bounds[enough].tolist(), enough.tolist(), strict=True)
                ]
            first = len(self._rows)
        for kind, areas in enumerate(self._kinds):
            number = 1 if areas is None else len(areas.names)
            of_row = np.zeros(len(self._rows), np.int64) if areas is None else areas.of_row
            enough = np.flatnonzero(self._are_enough(self._totals(most, areas, of_row, number)))
            if len(enough):
                bounds = self._bounds(self._totals(now, areas, of_row, number), pairs, of_row, number)
                here = of_row[self._table.present[self._table.view()] & (of_row >= 0)]
                sizes = np.bincount(here, minlength=number)
                found += [(int(bounds[one]), int(sizes[one]), first + one, kind, one) for one in enough.tolist()]
            first += number
        found.sort()
        return [self._spot(size, order, kind, one, pairs) for _, size, order, kind, one in found[:count]]

    def _totals(self, room: Sequence[Rows], areas: Areas | None, of_row: Rows, number: int) -> list[Rows]:
        """Room of each place of a kind for each task, shape (places,) each."""
        known = of_row >= 0
        found: list[Rows] = []
        for task, rows in zip(self._tasks, room, strict=True):
            if task.is_planned and self._groups:
                found.append(self._groups.counted(rows, areas))
            else:
                found.append(np.bincount(of_row[known], rows[known], number).astype(np.int64))
        return found

    def _are_enough(self, room: Sequence[Rows]) -> Fits:
        found: Fits = np.logical_and.reduce([have >= task.pods for task, have in zip(self._tasks, room, strict=True)])
        return found

    def _bounds(self, room: Sequence[Rows], pairs: Pairs, of_row: Rows, number: int) -> Rows:
        """What is lost at least in each place, as far as chips say, shape (places,).

        Candidates with the lowest price for a chip leave first, until the missing pods have as many chips.
        """
        lacking = np.zeros(number, np.int64)
        for task, have in zip(self._tasks, room, strict=True):
            chips = max(1, *(shape.chips for shape in task.shapes))
            lacking += np.maximum(task.pods - have, 0) * chips
        place = of_row[pairs.rows]
        inside = place >= 0
        keys = place[inside] * (int(pairs.numbers.max(initial=0)) + 1) + pairs.numbers[inside]
        _, index, inverse = np.unique(keys, return_index=True, return_inverse=True)
        chips_here = np.bincount(inverse, pairs.chips[inside], len(index)).astype(np.int64)
        place, prices = place[inside][index], pairs.prices[inside][index]
        order = np.lexsort((index, prices // np.maximum(chips_here, 1), place))
        place, prices, chips_here = place[order], prices[order], chips_here[order]
        starts = np.searchsorted(place, np.arange(number))
        before = np.cumsum(chips_here) - chips_here
        before -= np.append(before, 0)[np.minimum(starts[place], len(before))]
        leaves = before < lacking[place]
        return np.bincount(place[leaves], prices[leaves], number).astype(np.int64)

    def _spot(self, size: int, order: int, kind: int, one: int, pairs: Pairs) -> Spot:
        table = self._table
        areas = self._kinds[kind] if kind >= 0 else None
        if kind < 0:
            inside: Fits | None = self._rows == one
            place = Place("node", table.names[one])
        elif areas is None:
            inside, place = None, Place("cell")
        else:
            inside, place = areas.of_row == one, Place(areas.kind, areas.names[one])
        here = pairs.numbers if inside is None else pairs.numbers[inside[pairs.rows]]
        return Spot(place, size, order, inside, np.unique(here).tolist())
