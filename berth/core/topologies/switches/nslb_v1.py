"""Switch affinity 1.0 (NSLB 1.0): one leaf, whole leaves, or nodes at different positions that share no uplink.

A job that is smaller than a leaf goes below the leaf with the best fit. A larger job takes whole leaves. If there are
too few, it takes rows of logical switches: a column is the list of all nodes at one position of their leaves, and the
longest columns give one node each to every row. Nodes of one row are in different columns, so that their traffic does
not collide below the spine.

Source: docs/reference/switches.md, "Partitions of idle nodes" and "Policy 1.0".
"""

from typing import Final

import msgspec
import numpy as np

from berth.core.topologies.switches.groups import (
    Counts,
    Groups,
    Indexes,
    closed_leaves,
    counts_of,
    falling,
    lack_of,
    leaf_by_leaf,
)
from berth.core.topologies.switches.limits import COLUMNS_MAX
from berth.core.topologies.switches.model import Demand, LeafPool, NoPlan, Plan, Policy, Rule, SwitchRules
from berth.core.topologies.switches.occupancy.leaf_table import Grid
from berth.schemas.refusal import SwitchLack

POLICY: Final[Policy] = "1.0"


def plan_v1(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan | NoPlan:
    """Plan of a gang under policy 1.0.

    A padding job with more pods than a leaf has places is never placed; without the decision
    fill-crosses-leaf it is placed below several leaves.
    """
    marked = pool.usable
    excluded = closed_leaves(pool, demand, counts_of(marked))
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
    elif pool.places:  # all lists may be empty, and a leaf without places is not a whole leaf
        last = (replicas - 1) // pool.places
        is_wide = last > 0 and is_padding and rules.differs.padding_below_one_leaf
        if last < np.count_nonzero(counts == pool.places) and not is_wide:
            return _plan(pool, demand, leaf_by_leaf(marked, order[: last + 1], replicas), "complete-leaves")
    if is_padding and (replicas < pool.places or rules.differs.padding_below_one_leaf):
        return NoPlan(lack_of(pool, demand, POLICY, "one-leaf"), "one-leaf")
    found = logical_rows(marked[order], order, replicas, pool.places)
    if found is not None:
        return _plan(pool, demand, found, "logical-switches")
    missed = _lack_of_rows(pool, demand, marked)
    if demand.kind != "common":
        return NoPlan(missed, missed.rule)
    return _fallback(pool, demand, marked, order, missed)


def best_fit(counts: Counts, order: Indexes, replicas: int) -> int:
    """Index into ``order`` of the leaf with the fewest nodes that can take all pods, the last one on ties; -1 for none.

    Args:
        counts: ``int64[leaves]``, available nodes of each leaf.
        order: ``int64[leaves]``, leaves by falling count.
        replicas: Number of pods.
    """
    return int(np.count_nonzero(counts[order] >= replicas)) - 1


def logical_rows(marked: Grid, order: Indexes, replicas: int, places: int) -> Groups | None:
    """Rows of logical switches that hold all pods, one group per row; None if there are too few nodes.

        >>> grid = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], np.bool_)
        >>> found = logical_rows(grid, np.array([0, 1, 2]), 6, 3)
        >>> found.cells, found.group
        (array([1, 0, 5, 4, 3, 8]), array([0, 0, 0, 1, 1, 1]))

    Three leaves have three positions each, and 6 pods form two rows of 3. Position 1 has the longest column (3 nodes),
    then positions 0 and 2 (2 nodes each). The first row takes the first node of each column: cells 1, 0 and 5. The
    second row takes the second nodes: cells 4, 3 and 8.

    Args:
        marked: ``bool[leaves, width]``, available nodes; the leaves are in the order of ``order``.
        order: ``int64[leaves]``, index of each of these leaves.
        replicas: Number of nodes to take.
        places: Number of nodes below a whole leaf; also the length of a complete row.
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
    """Plan of a common job on any available nodes, from the leaves with the most on."""
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
