"""Counting: how many pods of a gang nodes have room for, if some gangs leave.

It is a necessary condition: whenever a plan would take a node for so many pods, it counts as many or more. Pods of one
shape are counted exactly for each node: chips are taken as the rule of the shape picks them. Pods of several shapes are
counted as if each shape were alone. Pods that one plan places are counted by nodes, and as far as some of them must be
together, in whole groups of nodes. A node that takes one soft-share pod counts as if it took all.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.chips.chip_rules import ChipRow, ChipRule
from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_columns import Mask
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.view import RowState
from berth.core.gangs import Gang
from berth.core.placement.scoring import Scorer
from berth.core.topologies.planning import Areas
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_FITS: Final = int(NodeReason.FITS)


class Task(NamedTuple):
    """Pods that are counted together.

    Attributes:
        shapes: Their shapes; several only for pods that one plan places.
        pods: How many they are.
        is_planned: One plan places them, each on a node of its own.
    """

    shapes: tuple[Shape, ...]
    pods: int
    is_planned: bool


def tasks_of(gang: Gang) -> list[Task]:
    """Pods of a gang by shape, those that are planned together as one."""
    alone: dict[Shape, int] = {}
    planned: dict[Shape, int] = {}
    for shape, pods in gang.request_class:
        found = planned if shape.is_planned else alone
        found[shape] = found.get(shape, 0) + pods
    tasks = [Task((shape,), pods, is_planned=False) for shape, pods in alone.items()]
    if planned:
        tasks.insert(0, Task(tuple(planned), sum(planned.values()), is_planned=True))
    return tasks


class Slots:
    """Counts pods of a gang.

    Args:
        gang: The gang.
        gone: Scoring on the nodes as they are if everybody has left who may: a node that does not fit there never does.
        without: Rows that are left out, shape (rows,); None for no row.
    """

    def __init__(self, gang: Gang, gone: Scorer, without: Fits | None) -> None:
        self.tasks = tasks_of(gang)
        self._scorer = gone
        self._without = without
        self._by_mask: dict[tuple[ChipRule, int], int] = {}
        self._by_chips: dict[tuple[ChipRule, ChipRow], int] = {}
        self.most = self.at(gone)
        """Room of each row if everybody has left, by task, shape (rows,) each."""
        self._may = [found.astype(np.bool_) for found in self.most]

    def at(self, scorer: Scorer) -> list[Rows]:
        """Room of each row for each task on some nodes, shape (rows,) each."""
        found: list[Rows] = []
        for task in self.tasks:
            parts = [self._of_shape(scorer, shape, task) for shape in task.shapes]
            found.append(np.minimum.reduce(parts))
        return found

    def _of_shape(self, scorer: Scorer, shape: Shape, task: Task) -> Rows:
        table = scorer.table
        rows = table.view()
        fits = scorer.evaluate(shape, self._without)[0] == _FITS
        if self._without is not None:
            fits &= ~self._without
        if task.is_planned:
            planned: Rows = fits.astype(np.int64)
            return planned
        room = np.where(fits, np.int64(task.pods), 0)
        rule = scorer.rule(shape)
        if rule is not None:
            usable = table.free[rows] & ~table.network[rows] if rule.drops else table.free[rows]
            room = np.minimum(room, self._of_masks(rule, usable))
            room = np.minimum(room, np.maximum(table.idle[rows], 0) // shape.chips)
        for need, left in ((shape.cpu_milli, table.cpu_free), (shape.memory_mib, table.memory_free)):
            if need:
                room = np.minimum(room, np.maximum(left[rows], 0) // need)
        found: Rows = room.astype(np.int64)
        return found

    def _of_masks(self, rule: ChipRule, usable: Mask) -> Rows:
        masks, index = np.unique(usable, return_inverse=True)
        return np.array([self._picked(rule, mask) for mask in masks.tolist()], np.int64)[index]

    def _picked(self, rule: ChipRule, usable: int) -> int:
        """Pods that get their chips, one after the other, of a mask of usable ones."""
        found = self._by_mask.get((rule, usable))
        if found is None:
            found, left = 0, usable
            while _takes(rule, left):
                found += 1
                for chip in rule.pick(left, 0):
                    left &= ~(1 << chip)
            self._by_mask[rule, usable] = found
        return found

    def of_row(self, row: int, state: RowState) -> tuple[int, ...]:
        """Room of one row in some state for each task; as :meth:`at`."""
        return tuple([self._one(index, row, state) for index in range(len(self.tasks))])

    def _one(self, index: int, row: int, state: RowState) -> int:
        if not self._may[index].item(row):
            return 0
        task = self.tasks[index]
        room = task.pods
        for shape in task.shapes:
            room = min(room, self._of_state(shape, row, state, room))
        return min(room, 1) if task.is_planned else room

    def _of_state(self, shape: Shape, row: int, state: RowState, most: int) -> int:
        if shape.cpu_milli:
            most = min(most, max(state.cpu_free, 0) // shape.cpu_milli)
        if shape.memory_mib:
            most = min(most, max(state.memory_free, 0) // shape.memory_mib)
        rule = self._scorer.rule(shape)
        if rule is not None:
            return min(most, self._of_chips(rule, row, state))
        if shape.share is not None and self._scorer.evaluate_one(shape, row, state)[0] != _FITS:
            return 0
        return most

    def _of_chips(self, rule: ChipRule, row: int, state: RowState) -> int:
        chips = self._scorer.chip_row(row, state)
        found = self._by_chips.get((rule, chips))
        if found is None:
            fits = not rule.evaluate_one(chips)[0]
            usable = rule.usable(chips.free, chips.network)
            found = min(self._picked(rule, usable), max(chips.idle, 0) // rule.chips) if fits else 0
            self._by_chips[rule, chips] = found
        return found


def _takes(rule: ChipRule, usable: int) -> bool:
    """Whether a node with nothing but these chips takes a pod."""
    count = usable.bit_count()
    row = ChipRow(usable, 0, network_known=True, unhealthy=0, allocatable=count, idle=count, capacity=count)
    return not rule.evaluate_one(row)[0]


class WholeGroups:
    """Counts pods that must be together, in whole groups of nodes.

    Args:
        areas: Groups in which some pods must be together, the lowest first; each is in one of the next ones.
    """

    def __init__(self, areas: Sequence[Areas]) -> None:
        self._areas = [one for one in areas if one.whole > 1]
        self._above = [_parents(lower, upper) for lower, upper in zip(self._areas, self._areas[1:], strict=False)]

    def __bool__(self) -> bool:
        """Whether any pods must be together."""
        return bool(self._areas)

    def lowest(self, row: int) -> int:
        """Lowest group of a row; -1 for none."""
        return self._areas[0].of_row.item(row)

    def counted(self, room: Rows, by: Areas | None) -> Rows:
        """Pods in whole groups, for each group of some areas or on all nodes.

        Args:
            room: Pods of each row, shape (rows,).
            by: The areas: those of one kind of which these groups are made, or smaller or larger ones; None for all.

        Returns:
            Shape (groups,), or (1,).
        """
        of_row = np.zeros(len(room), np.int64) if by is None else by.of_row
        places = 1 if by is None else len(by.names)
        known = of_row >= 0
        of_group, count = of_row[known], room[known]
        groups = [areas.of_row[known] for areas in self._areas]
        for level, areas in enumerate(self._areas):
            # A group of the place and of the level at once: either may be the smaller one.
            key = np.where(groups[level] < 0, -1, of_group * (len(areas.names) + 1) + groups[level])
            inside = key >= 0
            keys, index, inverse = np.unique(key[inside], return_index=True, return_inverse=True)
            whole = np.bincount(inverse, count[inside], len(keys)).astype(np.int64) // areas.whole * areas.whole
            of_group, count = of_group[inside][index], whole
            groups = [one[inside][index] for one in groups]
        return np.bincount(of_group, count, places).astype(np.int64)

    def tally(self, room: Mapping[int, int]) -> "Tally":
        """A tally of the rows of a place, with the pods of those that have any."""
        return Tally(self._areas, self._above, room)


class Tally:
    """Pods of a place in whole groups, row by row.

    Args:
        areas: Groups in which some pods must be together, the lowest first.
        above: Group of the next areas in which each group is, for all but the last.
        room: Pods of each row that has any.

    Attributes:
        total: Pods in whole groups of the last areas.
    """

    def __init__(self, areas: Sequence[Areas], above: Sequence[Rows], room: Mapping[int, int]) -> None:
        self._areas, self._above = areas, above
        self._counts: list[dict[int, int]] = [{} for _ in areas]
        self.total = 0
        for row, pods in room.items():
            self.change(row, pods)

    def change(self, row: int, pods: int) -> None:
        """Add pods to a row, or take some from it (below zero)."""
        group = self._areas[0].of_row.item(row)
        for level, areas in enumerate(self._areas):
            if group < 0 or not pods:
                return
            counts, size = self._counts[level], areas.whole
            before = counts.get(group, 0)
            counts[group] = before + pods
            pods = ((before + pods) // size - before // size) * size
            group = self._above[level].item(group) if level < len(self._above) else group
        self.total += pods


def _parents(lower: Areas, upper: Areas) -> Rows:
    found = np.full(len(lower.names), -1, np.int64)
    known = lower.of_row >= 0
    found[lower.of_row[known]] = upper.of_row[known]
    return found
