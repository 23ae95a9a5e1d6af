"""Levels: pods that belong together share a group on every level of a tree that labels of nodes describe.

Bottom-up, every group counts the whole parts of a gang that it can take without its reserved nodes. Top-down, the
groups that leave the fewest fragments are used completely, then others in part. If that is not enough, reserved nodes
are used, one of each group in turn.

Source: docs/reference/levels.md, "Selection of groups".
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.node_groups import Counts, Rows
from berth.core.topologies.levels.model import LevelPlan, NoLevels, Tree
from berth.core.topologies.levels.request import Sizes

_FRAGMENT_WEIGHT: Final = 10
"""Weight of the fragments of child groups against those of their parent."""

Block = tuple[int, int]
"""Group of level 1, and the number of the block inside it, in the order in which its nodes are used."""


class Found(NamedTuple):
    """Nodes for a gang or for a part of it.

    Attributes:
        nodes: ``int64[pods]``, index of each node among the nodes that were given, block after block, sorted by name in
            a block.
        firsts: ``int64[blocks]``, index of the first node of each block's group.
        fragments: Weighted fragments that remain in the tree; fewer is better.
    """

    nodes: Rows
    firsts: Rows
    fragments: int


class GroupShape:
    """Groups of some levels, and what each can take.

    Args:
        paths: ``int64[levels, nodes]``: group of each node, the highest level first; each row is rising.
        nodes: Number of nodes.
        sizes: Number of pods of the whole, of a part on each level from the highest on, and 1 for a pod.
        reserved: Nodes of each lowest group that are kept back.
    """

    def __init__(self, paths: Rows, nodes: int, sizes: Sequence[int], reserved: int) -> None:
        self.ratios = [upper // lower for upper, lower in pairwise(sizes)]
        self.sizes = sizes
        whole = np.zeros(1, np.int64)
        self.firsts = [whole, *(np.flatnonzero(np.diff(path, prepend=-1)) for path in paths)]
        """Index of the first node of each group, depth by depth; depth 0 is the whole."""
        ends = np.array([nodes])
        self.counts: Counts = np.diff(self.firsts[-1], append=ends)
        """Number of nodes of each lowest group. Shape (groups,)."""
        self.kept: Counts = np.minimum(self.counts, reserved)
        """Number of reserved nodes of each lowest group; all of them if there are fewer than ``reserved``. Shape
        (groups,)."""
        self.children = [np.searchsorted(lower, np.append(upper, nodes)) for upper, lower in pairwise(self.firsts)]
        """The children of group ``g`` of a depth are the groups ``children[g]`` to ``children[g + 1]`` of the next
        depth."""

    @property
    def depth(self) -> int:
        """Depth of the lowest groups."""
        return len(self.firsts) - 1

    def parts(self, nodes: Counts) -> tuple[list[Counts], list[Counts]]:
        """Whole parts that each group can take, and its weighted fragments, depth by depth.

        Args:
            nodes: ``int64[groups]``, number of nodes of each lowest group that count.

        Returns:
            Two lists with one array per depth, each with one entry per group of that depth.
        """
        tasks, fragments = np.divmod(nodes, self.ratios[-1])
        all_tasks, all_fragments = [tasks], [fragments]
        for depth in range(self.depth - 1, -1, -1):
            starts = self.children[depth][:-1]
            tasks, rest = np.divmod(np.add.reduceat(tasks, starts), self.ratios[depth])
            fragments = rest * self.sizes[depth + 1] + _FRAGMENT_WEIGHT * np.add.reduceat(fragments, starts)
            all_tasks.insert(0, tasks)
            all_fragments.insert(0, fragments)
        return all_tasks, all_fragments

    def nodes_of(self, blocks: Sequence[Block]) -> tuple[Rows, Rows]:
        """Nodes of blocks, block after block, and the first node of each block's group.

        A group gives its nodes without a reserve by name, then its reserved nodes from the last name to the first.
        """
        groups, numbers = np.array(blocks, np.int64).reshape(-1, 2).T[:, :, None]
        size = self.ratios[-1]
        first, count, kept = self.firsts[-1][groups], self.counts[groups], self.kept[groups]
        at = numbers * size + np.arange(size)
        nodes = np.where(at < count - kept, first + kept + at, first + count - 1 - at)
        nodes.sort(axis=1)
        return nodes.reshape(-1), first[:, 0]


class _GroupAllocation:
    """First strategy: groups without their reserved nodes, those with the fewest remaining fragments first."""

    def __init__(self, shape: GroupShape, tasks: Sequence[Counts], fragments: Sequence[Counts]) -> None:
        self._shape = shape
        self._tasks = tasks
        self._fragments = fragments

    def blocks(self, depth: int = 0, group: int = 0, demand: int = 1) -> Iterator[Block]:
        """Blocks of ``demand`` parts in a group, or of as many as it has."""
        need = demand * self._shape.ratios[depth]
        if depth == self._shape.depth:
            yield from ((group, number) for number in range(demand))
            return
        start, stop = self._shape.children[depth][group : group + 2].tolist()
        for child, parts in self._shares(depth + 1, start, stop, need):
            yield from self.blocks(depth + 1, child, parts)

    def _shares(self, depth: int, start: int, stop: int, need: int) -> Iterator[tuple[int, int]]:
        """Groups of one parent and the parts that each takes: whole groups first, then groups in part."""
        tasks, fragments = self._tasks[depth][start:stop], self._fragments[depth][start:stop]
        some = np.flatnonzero(tasks)
        order = some[np.lexsort((tasks[some], fragments[some]))]
        whole = []
        for at, parts in zip(order.tolist(), tasks[order].tolist(), strict=True):
            if need <= 0:
                return
            if parts <= need:
                whole.append(at)
                need -= parts
                yield start + at, parts
        if need <= 0:
            return
        rest = np.setdiff1d(some, whole)
        for at in rest[np.lexsort((fragments[rest], tasks[rest]))].tolist():
            parts = min(int(tasks[at]), need)
            need -= parts
            yield start + at, parts
            if need <= 0:
                return


class _NodeAllocation:
    """Second strategy: single nodes, including reserved ones, that are combined into parts."""

    def __init__(self, shape: GroupShape) -> None:
        self._shape = shape
        above = [np.repeat(np.arange(len(limits) - 1), np.diff(limits)) for limits in shape.children]
        self._parents = [parents.tolist() for parents in above]
        self._open: dict[tuple[int, int], list[list[Block]]] = {}
        self.given = [0] * len(shape.counts)
        """Number of nodes that each lowest group has given."""
        self.whole: list[Block] = []
        """Blocks of the whole, when it is complete."""

    def give(self, group: int, nodes: int) -> bool:
        """Take nodes of a lowest group. Returns True when the whole is complete."""
        size = self._shape.ratios[-1]
        before = self.given[group]
        self.given[group] += nodes
        return any(
            self._push(self._shape.depth, group, [(group, number)])
            for number in range(before // size, self.given[group] // size)
        )

    def _push(self, depth: int, group: int, part: list[Block]) -> bool:
        """Pass a whole part of a group to the parent of the group."""
        while depth:
            depth, group = depth - 1, self._parents[depth - 1][group]
            parts = self._open.setdefault((depth, group), [])
            parts.append(part)
            if len(parts) < self._shape.ratios[depth]:
                return False
            part = [block for each in parts for block in each]
            parts.clear()
        self.whole = part
        return True

    def run(self, first: Sequence[Block]) -> list[Block]:
        """Blocks of the whole, after those of the first strategy. The caller has checked that the whole fits.

        Reserved nodes are taken in rounds: one of each group with the most left, then one of each of these and of the
        groups with one less, and so on. The other nodes of a group are taken with its first reserved node: where nodes
        are reserved, every group has one.
        """
        for group, _ in first:
            if self.give(group, self._shape.ratios[-1]):
                return self.whole
        kept = self._shape.kept
        counts = self._shape.counts.tolist()
        for left in range(int(kept.max(initial=0)), 0, -1):
            for group in np.flatnonzero(kept >= left).tolist():
                if self.give(group, counts[group] - left + 1 - self.given[group]):
                    return self.whole
        return self.whole


def find(paths: Rows, nodes: int, sizes: Sequence[int], reserved: int) -> Found | tuple[int, int]:
    """Nodes for a gang or a part of it.

        >>> paths = np.array([[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2]])
        >>> found = find(paths, 6, [4, 4, 2, 1], reserved=0)
        >>> found.nodes, found.firsts
        (array([0, 1, 2, 3]), array([0, 2]))

    Six nodes form three groups of level 1 (second row) in two groups of level 2 (first row). A gang of 4 pods, of which
    4 share a group of level 2 and 2 share a group of level 1, gets the first group of level 2.

    Args:
        paths: ``int64[levels, nodes]``: group of each node, the highest level first; each row is rising.
        nodes: Number of nodes, at least 1.
        sizes: Number of pods of the whole, of a part on each level from the highest on, and 1 for a pod.
        reserved: Nodes of each lowest group that are used last.

    Returns:
        The nodes; or the number of parts of the highest level that are needed, and the number that is available.
    """
    shape = GroupShape(paths, nodes, sizes, reserved)
    tasks, fragments = shape.parts(shape.counts - shape.kept)
    if not tasks[0][0]:
        all_tasks, _ = shape.parts(shape.counts)
        if not all_tasks[0][0]:
            highest = int(all_tasks[1].sum()) if shape.depth else nodes
            return shape.ratios[0], highest
    blocks = list(_GroupAllocation(shape, tasks, fragments).blocks())
    if not tasks[0][0]:
        blocks = _NodeAllocation(shape).run(blocks)
    return Found(*shape.nodes_of(blocks), int(fragments[0][0]))


def plan_levels(trees: Sequence[Tree], sizes: Sizes, replicas: int) -> LevelPlan | NoLevels:
    """Plan of a gang.

    A gang whose job names level 1 only goes into one group of level 2 if such a group has room. Of several trees with
    room the one with the fewest remaining fragments is used, the first one on ties.

    Args:
        trees: Trees with the candidates; a node is in one of them.
        sizes: Number of pods that share a group, level 1 first; each divides the next, the last divides ``replicas``.
        replicas: Number of pods of the gang, each on a different node.
    """
    nodes = sum(len(tree.rows) for tree in trees)
    if nodes < replicas:
        return NoLevels(gap="nodes", need=replicas, have=nodes)
    if len(sizes) == 1:
        found = _best(trees, (*sizes, replicas), replicas)
        if isinstance(found, LevelPlan):
            return found
    return _best(trees, sizes, replicas)


def _best(trees: Sequence[Tree], sizes: Sizes, replicas: int) -> LevelPlan | NoLevels:
    steps = (replicas, *reversed(sizes), 1)
    levels = len(sizes)
    best: tuple[int, Found] | None = None
    lack = NoLevels(gap="levels", need=levels, have=max((len(tree.paths) for tree in trees), default=0))
    for index, tree in enumerate(trees):
        if len(tree.paths) < levels or not len(tree.rows):
            continue
        found = find(tree.paths[-levels:], len(tree.rows), steps, tree.reserved)
        if isinstance(found, Found):
            if best is None or found.fragments < best[1].fragments:
                best = index, found
        elif lack.gap == "levels" or found[1] > lack.have:
            lack = NoLevels(gap="groups", need=found[0], have=found[1], tree=tree.name, level=levels)
    if best is None:
        return lack
    index, found = best
    tree = trees[index]
    blocks = np.arange(replicas) // sizes[0]
    return LevelPlan(index, sizes, tree.rows[found.nodes], blocks, tree.paths[-1][found.firsts])
