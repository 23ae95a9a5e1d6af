"""Topology values: the value of a node label, such as a zone, as a number for each row of the node table."""

from typing import Final

import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_classes import holds_for, is_tolerated, selects_labels
from berth.core.cluster.node_names import rows_by_name
from berth.core.cluster.node_table import NodeTable
from berth.core.copies import copied
from berth.schemas.constraints import NAME_KEYS, Term
from berth.schemas.offers import Shape
from berth.schemas.pod_constraints import LabelSelector

Ints = npt.NDArray[np.int64]
_KEYS_MAX: Final = 256
"""Most keys whose values are kept: jobs name any, and the values of one take 8 bytes a node."""


class Topology:
    """Topology values of one node table.

    Args:
        table: The nodes.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._revision = (-1, -1, -1)
        self._values: dict[str, Ints] = {}

    def fork(self, table: NodeTable) -> "Topology":
        """The same for a copy of the table."""
        return copied(self, _table=table, _values=self._values.copy())

    def values(self, key: str) -> Ints:
        """Number of the value of a label, by row; -1 for a node without the label and for a row without a node.

        Equal values have equal numbers, below the number of rows or of classes. Shape (rows,); not to be changed.
        """
        table = self._table
        revision = (table.layout_revision, len(table), len(table.classes))
        if revision != self._revision:
            self._revision = revision
            self._values.clear()
        found = self._values.get(key)
        if found is None:
            if len(self._values) >= _KEYS_MAX:
                self._values.clear()
            found = self._values[key] = self._numbered(key)
        return found

    def _numbered(self, key: str) -> Ints:
        table = self._table
        rows = table.view()
        if key in NAME_KEYS:
            numbers = np.arange(len(table), dtype=np.int64)
        else:
            known: dict[str, int] = {}
            labels = [dict(node_class.labels).get(key) for node_class in table.classes]
            by_class = [-1 if value is None else known.setdefault(value, len(known)) for value in labels]
            numbers = np.array([*by_class, -1], np.int64)[table.node_class[rows]]  # -1 is the last
        return np.where(table.present[rows], numbers, -1)

    @property
    def rows(self) -> int:
        """Number of rows of the node table."""
        return len(self._table)

    def named(self, name: str) -> Fits:
        """Row of one node, shape (rows,)."""
        found = np.zeros(self.rows, np.bool_)
        row = self._table.row_of.get(name)
        if row is not None:
            found[row] = self._table.present[row]
        return found

    def selected(self, selector: LabelSelector | None) -> Fits:
        """Rows of the nodes whose labels a selector selects, shape (rows,)."""
        if selector is None:
            return np.zeros(self.rows, np.bool_)
        return self.matching((Term(selector.expressions),) if selector.expressions else ())

    def matching(self, terms: tuple[Term, ...]) -> Fits:
        """Rows of the nodes for which one of some terms holds, all of them without terms, shape (rows,)."""
        table = self._table
        present: Fits = table.present[table.view()].copy()
        if not terms:
            return present
        found = np.zeros(self.rows, np.bool_)
        for term in terms:
            names = [expression for expression in term.expressions if expression.key in NAME_KEYS]
            others = tuple(expression for expression in term.expressions if expression.key not in NAME_KEYS)
            if not term.expressions:
                continue
            by_class = [holds_for(others, dict(key.labels)) for key in table.classes]
            chosen: Fits = np.array([*by_class, False], np.bool_)[table.node_class[table.view()]] & present
            for expression in names:
                if expression.operator == "In":
                    chosen &= np.logical_or.reduce([self.named(name) for name in expression.values])
                else:
                    for row in np.flatnonzero(chosen).tolist():
                        chosen[row] = holds_for((expression,), dict.fromkeys(NAME_KEYS, table.names[row]))
            found |= chosen
        return found

    def counted(self, shape: Shape, *, by_affinity: bool, by_taints: bool) -> Fits:
        """Rows of the nodes that a topology spread counts, shape (rows,).

        Args:
            shape: Shape of the pod.
            by_affinity: Only nodes that its selector and its node affinity allow.
            by_taints: Only nodes whose taints it tolerates.
        """
        table = self._table
        rows = table.view()
        kept = [
            (not by_affinity or selects_labels(shape, dict(key.labels))) and (not by_taints or is_tolerated(shape, key))
            for key in table.classes
        ]
        found: Fits = np.array([*kept, False], np.bool_)[table.node_class[rows]] & table.present[rows]
        return found & rows_by_name(table, shape) if by_affinity and shape.names_nodes else found
