"""Types of levels: the trees, and a plan or the reason why there is none.

A tree has groups on a number of levels above its nodes; level 1 is the nearest to the node. Labels of a node name its
tree and its group on every level. A group is identified by its chain of parents: the same id below two parents is two
groups.

Source: docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_groups import Rows

Gap = Literal["nodes", "levels", "groups"]
"""What is missing: candidates for all pods; a tree with as many levels as the job; groups with enough candidates."""


class Tree(NamedTuple):
    """A tree with the candidate nodes of one gang.

    Attributes:
        name: Name of the tree.
        reserved: Nodes of each group of level 1 that jobs use only if there is no other room.
        groups: Ids of the groups of each level, the highest level first; groups of one parent are adjacent.
        paths: ``int64[levels, nodes]``: group of each node, as its index in ``groups``; rising along every level.
        rows: ``int64[nodes]``, row of each node in the caller's table; sorted by name inside a group of level 1.
    """

    name: str
    reserved: int
    groups: tuple[Sequence[str], ...]
    paths: Rows
    rows: Rows

    def only(self, kept: Marks) -> "Tree":
        """The same tree with some of its nodes.

        Args:
            kept: ``bool[nodes]``, one entry for each of :attr:`rows`.
        """
        return self._replace(paths=self.paths[:, kept], rows=self.rows[kept])


class LevelPlan(NamedTuple):
    """Place of each rank. The arrays ``rows`` and ``blocks`` have shape (replicas,).

    Attributes:
        tree: Index of the tree.
        sizes: Number of pods that share a group, level by level, as the plan uses them.
        rows: Row of each rank.
        blocks: Block of each rank: the pods that share a group of level 1.
        groups: Group of level 1 of each block, as its index in the last of :attr:`Tree.groups`.
    """

    tree: int
    sizes: tuple[int, ...]
    rows: Rows
    blocks: Rows
    groups: Rows


class NoLevels(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no plan.

    Attributes:
        gap: What is missing.
        need: Number of nodes, levels or parts of the gang that are needed. A part is the pods that share a group of
            ``level``.
        have: Most of them that are available.
        tree: Tree that comes closest; empty if there is none.
        level: Level of the groups, for ``groups``; 0 means single nodes.
        ranks: First and last rank of the pods without a place, for a gang that recovers; otherwise None.
    """

    gap: Gap
    need: int
    have: int
    tree: str = ""
    level: int = 0
    ranks: tuple[int, int] | None = None


def tree_of(name: str, reserved: int, ids: Sequence[Sequence[str]], codes: Rows, rows: Rows) -> Tree:
    """Nodes sorted into the groups of their tree.

    Args:
        name: Name of the tree.
        reserved: See :attr:`Tree.reserved`.
        ids: Ids of each level, the highest first, in their order (:func:`group_key`).
        codes: ``int64[levels, nodes]``: id of each node, as its index in ``ids``.
        rows: ``int64[nodes]``, rows of the nodes, sorted by name.
    """
    order = np.lexsort(codes[::-1])
    codes = codes[:, order]
    changes = np.logical_or.accumulate(codes[:, 1:] != codes[:, :-1], axis=0)
    paths = np.zeros(codes.shape, np.int64)
    np.cumsum(changes, axis=1, out=paths[:, 1:])
    firsts = [np.flatnonzero(np.concatenate(([True], change))) for change in changes] if len(rows) else []
    groups = tuple(
        [names[code] for code in level[first].tolist()] for names, level, first in zip(ids, codes, firsts, strict=False)
    )
    return Tree(name, reserved, groups, paths, rows[order])
