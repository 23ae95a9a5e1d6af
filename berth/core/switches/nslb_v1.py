"""Switch affinity 1.0: one leaf, whole leaves, or nodes at different positions, so that no two meet on a link.

A job smaller than a leaf goes below the leaf that it fills best. A larger one takes whole leaves; where there are not
enough, it takes rows of logical switches: the columns of all nodes at one place of their leaves, the longest first, give
one node each to every row. Nodes of one row never share a column, so their traffic does not collide below the spine.

Source: docs/reference/switches.md, "Partitions of idle nodes" and "Policy 1.0".
"""

from typing import Final

import msgspec
import numpy as np

from berth.core.switches.groups import (
    Counts,
    Groups,
    Indexes,
    barred,
    counts_of,
    falling,
    lack_of,
    leaf_by_leaf,
)
from berth.core.switches.model import Demand, LeafPool, NoPlan, Plan, Policy, Rule, SwitchRules
from berth.core.switches.occupancy.leaf_table import Grid
from berth.schemas.refusal import SwitchLack

POLICY: Final[Policy] = "1.0"
COLUMNS_MAX: Final = 128
"""Places of a leaf beyond which the reference makes no logical switches."""


def plan_v1(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan | NoPlan:
    """Plan of a gang under policy 1.0.

    A padding job of more pods than a leaf has places waits for ever; under ``reference_parity`` it goes below several.
    """
    marked = pool.usable
    excluded = barred(pool, demand, counts_of(marked))
    if len(excluded):
        marked = marked.copy()
        marked[excluded] = False
    counts = counts_of(marked)
    order = falling(counts)
    replicas = demand.replicas
    is_padding = demand.kind == "padding"
    if replicas < pool.places:
        at = best_fit(counts, order, replicas)
        if at >= 0:
            return _plan(pool, demand, leaf_by_leaf(marked, order[at : at + 1], replicas), "best-fit")
    elif pool.places:  # lists may all be empty, and a leaf without places is not a whole one
        last = (replicas - 1) // pool.places
        is_wide = last > 0 and is_padding and not rules.parity
        if last < np.count_nonzero(counts == pool.places) and not is_wide:
            return _plan(pool, demand, leaf_by_leaf(marked, order[: last + 1], replicas), "complete-leaves")
    if is_padding and (replicas < pool.places or not rules.parity):
        return NoPlan(lack_of(pool, demand, POLICY, "one-leaf"), "one-leaf")
    found = logical_rows(marked[order], order, replicas, pool.places)
    if found is not None:
        return _plan(pool, demand, found, "logical-switches")
    missed = _lack_of_rows(pool, demand, marked)
    if demand.kind != "common":
        return NoPlan(missed, missed.rule)
    return _fallback(pool, demand, marked, order, missed)


def best_fit(counts: Counts, order: Indexes, replicas: int) -> int:
    """Index into ``order`` of the leaf with the fewest nodes that can hold all, of those alike the last; -1 for none."""
    return int(np.count_nonzero(counts[order] >= replicas)) - 1


def logical_rows(marked: Grid, order: Indexes, replicas: int, places: int) -> Groups | None:
    """Rows of logical switches that hold all, one group a row.

    Args:
        marked: Nodes to be taken, leaf by leaf in the order of ``order``.
        order: Index of each of these leaves.
        replicas: Nodes to be taken.
        places: Nodes below a whole leaf, which is also the length of a complete row.
    """
    leaves, width = marked.shape
    if not 0 < places <= COLUMNS_MAX or not leaves:
        return None
    lengths = np.zeros(places, np.int64)
    lengths[:width] = np.count_nonzero(marked, axis=0)
    columns = falling(lengths)
    whole, last = divmod(replicas - 1, places)
    if lengths[columns[last]] <= whole or lengths[columns[-1]] < whole:
        return None
    if whole == 0:
        whole = int(lengths[columns[last]]) - 1 if last != places - 1 else 0
        taken = np.array([whole])
    else:
        taken = np.arange(whole + 1)
    place, leaf = np.nonzero(marked.T)
    cells = order[leaf] * width + place
    starts = np.cumsum(lengths) - lengths
    at = (starts[columns] + taken[:, None]).reshape(-1)[:replicas]
    return Groups(cells[at], np.arange(len(at)) // places)


def _plan(pool: LeafPool, demand: Demand, groups: Groups, rule: Rule) -> Plan:
    cells = groups.ranked(pool.slices, demand.replicas)
    return Plan(cells=cells.tolist(), rule=rule, states=bytes(len(cells)))


def _fallback(pool: LeafPool, demand: Demand, marked: Grid, order: Indexes, missed: SwitchLack) -> Plan | NoPlan:
    """A common job takes what there is, from the leaves with the most."""
    have = int(np.count_nonzero(marked))
    if have < demand.replicas:
        return NoPlan(msgspec.structs.replace(missed, rule="any-leaf", have=have), missed.rule)
    found = _plan(pool, demand, leaf_by_leaf(marked, order, demand.replicas), "fallback")
    return msgspec.structs.replace(found, missed=missed)


def _lack_of_rows(pool: LeafPool, demand: Demand, marked: Grid) -> SwitchLack:
    rows, rest = divmod(demand.replicas, max(pool.places, 1))
    is_complete = marked.size > 0 and marked.shape[1] == pool.places
    complete = int(np.count_nonzero(marked, axis=0).min()) if is_complete else 0
    return msgspec.structs.replace(
        lack_of(pool, demand, POLICY, "logical-switches", have=int(np.count_nonzero(marked))),
        rows=rows,
        rest=rest,
        rows_have=complete,
    )
