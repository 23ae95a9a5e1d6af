"""Trees of several levels over the nodes of a table, by the labels of the nodes and the configuration.

Source: docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows, group_key
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.topologies.levels.model import Tree, tree_of
from berth.core.topologies.levels.request import TOPOTREE, TREE_DEFAULT, Config, Level, levels_of
from berth.core.topologies.planning import Index

_UNKNOWN_TREE: Final = -2
"""Index of nodes whose tree is not configured."""
_UNLABELLED: Final = -1
"""Index of nodes without the label of some level."""


class NodePath(NamedTuple):
    """Position of a node in its tree.

    Attributes:
        tree: Its tree; empty if that is not configured.
        path: Id of its group on every level of the tree, the highest first; empty if a label is missing.
    """

    tree: str
    path: tuple[str, ...]


class Forest(NamedTuple):
    """Trees with the candidate nodes of one gang.

    Attributes:
        trees: Trees with at least one node, sorted by name.
        unknown_tree: Number of nodes whose tree is not configured.
        unlabelled: Number of nodes without the label of a level of their tree.
    """

    trees: tuple[Tree, ...]
    unknown_tree: int
    unlabelled: int


class LevelMap(Index):
    """Trees of all nodes, rebuilt when a node is added, removed or relabelled.

    Args:
        table: The nodes; always the same table.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._made_for = (-1, "")
        self._trees: tuple[Tree, ...] = ()
        self._text = ""
        self._spots: list[NodePath] = []
        """Position of the nodes of each class."""

    def fork(self, table: NodeTable) -> "LevelMap":
        """The same for a copy of the table."""
        return copied(self, _table=table, _spots=self._spots[:])

    def trees(self, fits: Fits, text: str) -> list[Tree]:
        """Trees with the nodes that fit, sorted by name; trees without such nodes are omitted.

        Args:
            fits: ``bool[rows]``, one entry per row of the table.
            text: Setting ``resource_levels``.
        """
        table = self._table
        if self._made_for != (table.layout_revision, text):
            self._made_for = (table.layout_revision, text)
            self._trees = self._grown(text)
        kept = [tree.only(fits[tree.rows]) for tree in self._trees]
        return [tree for tree in kept if len(tree.rows)]

    def _grown(self, text: str) -> tuple[Tree, ...]:
        """Trees of all nodes."""
        table, config = self._table, levels_of(text)
        if text != self._text:
            self._text = text
            self._spots.clear()
        news = table.classes[len(self._spots) :]  # a class stays what it is
        self._spots.extend(node_path(config, dict(key.labels)) for key in news)
        rows = np.flatnonzero(table.present[table.view()])
        rows = rows[np.argsort(table.ranks()[rows])]
        return forest(config, self._spots, table.node_class[rows].astype(np.int64), rows).trees


def node_path(config: Config, labels: Mapping[str, str]) -> NodePath:
    """Position of a node with these labels."""
    tree = labels.get(TOPOTREE) or TREE_DEFAULT
    levels = config.get(tree)
    if levels is None:
        return NodePath("", ())
    path = tuple([labels.get(level.label, "") for level in reversed(levels)])
    return NodePath(tree, () if "" in path else path)


def forest(config: Config, node_paths: Sequence[NodePath], kinds: Rows, rows: Rows) -> Forest:
    """Trees of nodes with known positions.

    Args:
        config: Levels of each tree.
        node_paths: Positions of nodes; nodes with equal labels share an entry.
        kinds: ``int64[nodes]``, index of each node in ``node_paths``.
        rows: ``int64[nodes]``, rows of the nodes, sorted by name.
    """
    trees = sorted(config)
    number = {name: index for index, name in enumerate(trees)}
    lost = [_UNKNOWN_TREE if not spot.tree else number[spot.tree] if spot.path else _UNLABELLED for spot in node_paths]
    of_node = np.array(lost, np.int64)[kinds]
    members = [(name, of_node == index) for index, name in enumerate(trees)]
    return Forest(
        tuple(
            _tree_of_nodes(name, config[name], node_paths, kinds[own], rows[own]) for name, own in members if own.any()
        ),
        int((of_node == _UNKNOWN_TREE).sum()),
        int((of_node == _UNLABELLED).sum()),
    )


def _tree_of_nodes(
    name: str, levels: tuple[Level, ...], node_paths: Sequence[NodePath], kinds: Rows, rows: Rows
) -> Tree:
    used, of_node = np.unique(kinds, return_inverse=True)
    ids, codes = [], []
    for column in zip(*(node_paths[kind].path for kind in used.tolist()), strict=True):
        known = sorted(set(column), key=group_key)
        place = {text: number for number, text in enumerate(known)}
        ids.append(known)
        codes.append([place[text] for text in column])
    return tree_of(name, levels[0].reserved, ids, np.array(codes, np.int64)[:, of_node], rows)
