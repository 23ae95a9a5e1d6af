"""Totals of the nodes that are ready."""

from typing import NamedTuple

import numpy as np

from berth.core.cluster.node_columns import NodeColumns


class Totals(NamedTuple):
    """What nodes that are ready have in all."""

    cpu_milli: int
    memory_mib: int
    chips: dict[str, int]
    """Healthy chips by the name of their resource."""


def totals_of(table: NodeColumns) -> Totals:
    """Totals of a table."""
    rows = table.view()
    ready = np.array([key.ready for key in table.classes], np.bool_)
    classes = table.node_class[rows]
    counted = np.flatnonzero(table.present[rows] & (classes >= 0))
    counted = counted[ready[classes[counted]]]
    healthy = np.bitwise_count(table.chips[counted] & ~table.unhealthy[counted])
    by_class = np.bincount(classes[counted], weights=healthy, minlength=len(table.classes))
    chips: dict[str, int] = {}
    for key, count in zip(table.classes, by_class.tolist(), strict=True):
        if key.resource and count:
            chips[key.resource] = chips.get(key.resource, 0) + int(count)
    cpu_milli, memory_mib = (int(column[counted].sum(dtype=np.int64)) for column in (table.cpu, table.memory))
    return Totals(cpu_milli, memory_mib, chips)
