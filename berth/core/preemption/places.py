"""Places in which a preemptor could be planned, and in which order they are looked at."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Ints
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
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
        bound: What seems to be lost at least; places are looked at in this order.
        size: Its nodes.
        order: Its number among all places, small kinds first.
        kind: Its kind, by number; -1 for nodes.
        number: Its number among those of its kind.
        least: Rank of the cheapest candidate that holds something there; beyond all ranks without one.
    """

    bound: int
    size: int
    order: int
    kind: int
    number: int
    least: int


class Pairs(NamedTuple):
    """Which candidate holds something on which row. Columns of shape (pairs,).

    Attributes:
        rows: The row.
        numbers: The candidate.
        chips: Chips that it holds there; pods without chips count as one.
        prices: What it costs that the candidate leaves.
        ranks: Rank of the candidate by what it costs, the cheapest 0.
    """

    rows: Rows
    numbers: Rows
    chips: Rows
    prices: Rows
    ranks: Rows


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


def smallest_kind(areas: Sequence[Areas], gang: Gang) -> str:
    """The smallest kind of place in which a gang could be planned."""
    if gang.pods == 1:
        return "node"
    return areas[0].kind if areas else "cell"


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
        self._has_nodes = sum(task.pods for task in tasks if task.is_planned) <= 1
        # A single pod is on one node, whichever place that is in.
        is_single = self._has_nodes and sum(task.pods for task in tasks) == 1
        self._kinds: list[Areas | None] = [] if is_single else [*areas, None]
        self._rows = rows

    def spots(self, now: Sequence[Rows], most: Sequence[Rows], pairs: Pairs, count: int) -> list[Spot]:
        """The first places that are large enough, those first in which the least seems to be lost.

        Args:
            now: Room of each row for each task before anybody leaves, shape (rows,) each.
            most: The same if all candidates have left.
            pairs: Where candidates hold something.
            count: Most places to return.
        """
        found: list[Spot] = []
        first = 0
        if self._has_nodes:
            enough = np.flatnonzero(self._are_enough(most))
            if len(enough):
                ones = np.ones(len(self._rows), np.int64)
                found += self._first(now, pairs, self._rows, enough, ones, self._table.ranks(), (0, -1), count)
            first = len(self._rows)
        for kind, areas in enumerate(self._kinds):
            number = 1 if areas is None else len(areas.names)
            of_row = np.zeros(len(self._rows), np.int64) if areas is None else areas.of_row
            enough = np.flatnonzero(self._are_enough(self._totals(most, areas, of_row, number)))
            if len(enough):
                here = of_row[self._table.present[self._table.view()] & (of_row >= 0)]
                room = self._totals(now, areas, of_row, number)
                sizes = np.bincount(here, minlength=number)
                by_name = np.zeros(number, np.int64)
                if areas is not None:
                    by_name[sorted(range(number), key=areas.names.__getitem__)] = np.arange(number)
                found += self._first(room, pairs, of_row, enough, sizes, by_name, (first, kind), count)
            first += number
        return sorted(found)[:count]

    def _first(
        self,
        room: Sequence[Rows],
        pairs: Pairs,
        of_row: Rows,
        enough: Rows,
        sizes: Rows,
        by_name: Rows | Ints,
        numbers: tuple[int, int],
        count: int,
    ) -> list[Spot]:
        """The first places of a kind, ties in the order of their names: rows are in the order in which nodes came."""
        first, kind = numbers
        bounds, least = self._bounds(room, pairs, of_row, len(sizes))
        order = np.lexsort((by_name[enough], sizes[enough], bounds[enough]))[:count]
        some = enough[order]
        columns = bounds[some], sizes[some], by_name[some], some, least[some]
        return [
            Spot(bound, size, first + name, kind, one, low)
            for bound, size, name, one, low in zip(*(column.tolist() for column in columns), strict=True)
        ]

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

    def _bounds(self, room: Sequence[Rows], pairs: Pairs, of_row: Rows, number: int) -> tuple[Rows, Rows]:
        """What is lost at least in each place, as far as chips say, and its cheapest candidate, shape (places,) each.

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
        place, prices, ranks = (column[inside][index] for column in (place, pairs.prices, pairs.ranks))
        least = np.full(number, np.iinfo(np.int64).max)
        np.minimum.at(least, place, ranks)
        order = np.lexsort((index, prices // np.maximum(chips_here, 1), place))
        place, prices, chips_here = place[order], prices[order], chips_here[order]
        starts = np.searchsorted(place, np.arange(number))
        before = np.cumsum(chips_here) - chips_here
        before -= np.append(before, 0)[np.minimum(starts[place], len(before))]
        leaves = before < lacking[place]
        return np.bincount(place[leaves], prices[leaves], number).astype(np.int64), least

    def place(self, spot: Spot) -> Place:
        """Name of a place."""
        if spot.kind < 0:
            return Place("node", self._table.names[spot.number])
        areas = self._kinds[spot.kind]
        return Place("cell") if areas is None else Place(areas.kind, areas.names[spot.number])

    def inside(self, spot: Spot) -> Fits | None:
        """Rows of a place, shape (rows,); None for all."""
        areas = self._kinds[spot.kind] if spot.kind >= 0 else None
        if spot.kind >= 0 and areas is None:
            return None
        of_row = self._rows if areas is None else areas.of_row
        found: Fits = of_row == spot.number
        return found
