"""Nodes that conditions on names leave to the pods of a shape, for all rows of a node table at once."""

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_classes import name_fits
from berth.core.cluster.node_table import NodeTable
from berth.schemas.constraints import NAME_KEYS, Expression
from berth.schemas.offers import Shape


def rows_by_name(table: NodeTable, shape: Shape) -> Fits:
    """Rows for which selector and affinity of a shape hold when their names are added to their labels.

    Nodes that the shape does not name differ in their classes alone, so only the others are looked at one by one.

    Args:
        table: The nodes.
        shape: A shape that names nodes.

    Returns:
        Marks of shape (rows,); those of rows without a node are undefined.
    """
    named = _named(table, shape)
    found = np.zeros(len(table), np.bool_)
    if not _is_pinned(shape):
        other = "".join(named) + "-"  # is none of them
        by_class = [name_fits(shape, other, dict(key.labels)) for key in table.classes]
        found = np.array([*by_class, False], np.bool_).take(table.node_class[table.view()], mode="wrap")
    for name in named:
        row = table.row_of.get(name)
        if row is not None:
            found[row] = name_fits(shape, name, table.labels(row))
    return found


def _about_names(shape: Shape) -> list[Expression]:
    pairs = [Expression(key, "In", (value,)) for key, value in shape.selector if key in NAME_KEYS]
    return [*pairs, *(one for term in shape.affinity for one in term.expressions if one.key in NAME_KEYS)]


def _named(table: NodeTable, shape: Shape) -> dict[str, None]:
    """Names for which a condition may hold otherwise than for any other name."""
    about = _about_names(shape)
    if any(one.operator in {"Gt", "Lt"} for one in about):
        return dict.fromkeys(table.names)
    return dict.fromkeys(name for one in about for name in one.values)


def _is_pinned(shape: Shape) -> bool:
    """Whether a shape excludes all nodes that it does not name."""
    return any(key in NAME_KEYS for key, _ in shape.selector) or (
        bool(shape.affinity)
        and all(any(_is_pin(expression) for expression in term.expressions) for term in shape.affinity)
    )


def _is_pin(expression: Expression) -> bool:
    return expression.key in NAME_KEYS and expression.operator == "In"
