"""Trees of several levels as a table of nodes has them, by the labels of its nodes.

Source: specification, SuperPoD affinity, section 10.1.
"""

import numpy as np

from berth.core.level_terms import Tree, forest_of, levels_of
from berth.core.nodes import NodeTable
from berth.core.scoring import Fits


class LevelMap:
    """Trees of all nodes, made anew when a node comes, goes or gets other labels.

    Args:
        table: The nodes; always the same table.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._made_for = (-1, "")
        self._trees: tuple[Tree, ...] = ()

    def trees(self, fits: Fits, text: str) -> list[Tree]:
        """Trees with the nodes that fit, in order of their names; those without any are left out.

        Args:
            fits: One mark a row of the table.
            text: Setting ``resource_levels``.
        """
        table = self._table
        if self._made_for != (table.layout_revision, text):
            self._made_for = (table.layout_revision, text)
            labels = [dict(key.labels) for key in table.classes]
            rows = np.flatnonzero(table.present[table.view()]).tolist()
            klass = table.klass.tolist()
            self._trees = forest_of(
                levels_of(text), ((table.names[row], row, labels[klass[row]]) for row in rows)
            ).trees
        kept = [tree.only(fits[tree.rows]) for tree in self._trees]
        return [tree for tree in kept if len(tree.rows)]
