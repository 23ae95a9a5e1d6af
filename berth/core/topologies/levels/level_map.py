"""Trees of several levels over the nodes of a table, by the labels of the nodes.

Source: docs/reference/levels.md, "Configuration of levels".
"""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.core.topologies.levels.model import NodePath, Tree, forest, levels_of, node_path
from berth.core.topologies.planning import Index


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
