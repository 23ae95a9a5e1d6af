"""Switch affinity 2.0 (NSLB 2.0): a leaf is free, shared or exclusive, and a job may use only a few shared leaves.

A job that is smaller than a leaf goes below one leaf: an exclusive leaf first, then an unhealthy shared, a healthy
shared and a free one. Any other job uses free leaves completely, one after the other, which makes them exclusive. Its
remaining pods go to shared leaves, or to a free leaf that becomes shared. A common job that does not fit in this way
goes below any leaf that no foundation-model job on several leaves uses; leaves that exceed the shared-leaf limit become
unhealthy.

Source: docs/reference/switches.md, "Shared leaf states" and "Policy 2.0".
"""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.topologies.switches.groups import (
    NO_LEAVES,
    Counts,
    Groups,
    Indexes,
    counts_of,
    falling,
    is_below_one,
    joined,
    lack_of,
    leaf_by_leaf,
    rising,
)
from berth.core.topologies.switches.model import Demand, LeafPool, NoPlan, Plan, Policy, Rule, SwitchRules
from berth.core.topologies.switches.occupancy.leaf_bits import EXCLUSIVE, LARGE_CROSS, SHARED, STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_states import Bits
from berth.schemas.refusal import SwitchLack

POLICY: Final[Policy] = "2.0"
_PAIR: Final = 2


class Classes(NamedTuple):
    """Leaves by state, each in the order of their source, and the available nodes of each leaf."""

    counts: Counts
    exclusive: Indexes
    unhealthy: Indexes
    shared: Indexes
    free: Indexes


class Drained(NamedTuple):
    """Free leaves whose nodes a job takes completely.

    Attributes:
        leaves: Leaves in the order in which they are taken.
        rest: Number of nodes that the job still needs.
        stop: The next free leaf, which has more nodes than that; -1 for none.
    """

    leaves: Indexes
    rest: int
    stop: int


def classes_of(bits: Bits, counts: Counts) -> Classes:
    """Leaves by state.

    Args:
        bits: ``uint8[leaves]``, state of each leaf.
        counts: ``int64[leaves]``, available nodes of each leaf.
    """
    state = bits & (STATE | UNHEALTHY)
    return Classes(
        counts,
        np.flatnonzero(state == EXCLUSIVE),
        np.flatnonzero(state == SHARED | UNHEALTHY),
        np.flatnonzero(state == SHARED),
        np.flatnonzero(state == 0),
    )


def best_shared(counts: Counts, shared: Indexes, most: int) -> int:
    """Most nodes of shared leaves that a job can use.

        >>> best_shared(np.array([3, 1, 2]), np.array([0, 1, 2]), 2)
        5

    Args:
        counts: ``int64[leaves]``, available nodes of each leaf.
        shared: Indexes of the shared leaves.
        most: Number of shared leaves that the job may use.

    Source: docs/reference/switches.md, "Policy 2.0".
    """
    return int(np.sort(counts[shared])[::-1][: max(most, 0)].sum())


def drained(counts: Counts, order: Indexes, need: int) -> Drained:
    """Free leaves that a job takes completely, in the order given, up to the first with more nodes than it still needs.

        >>> drained(np.array([3, 1, 2]), np.array([1, 2, 0]), 4)
        Drained(leaves=array([1, 2]), rest=1, stop=0)

    Leaves 1 and 2 give 1 + 2 nodes. One more node is needed, and leaf 0 has more than that.

    Args:
        counts: ``int64[leaves]``, available nodes of each leaf.
        order: Indexes of the free leaves, in the order in which they are taken.
        need: Number of nodes that the job needs.
    """
    order = order[counts[order] > 0]
    taken = np.cumsum(counts[order])
    over = np.flatnonzero(taken > need)
    stop = int(over[0]) if len(over) else len(order)
    rest = need - (int(taken[stop - 1]) if stop else 0)
    return Drained(order[:stop], rest, int(order[stop]) if stop < len(order) else -1)


def on_shared(pool: LeafPool, counts: Counts, order: Indexes, need: int, most: int) -> Groups:
    """Nodes of one or two shared leaves for the remaining pods; only the first group may have more nodes than needed.

    Args:
        pool: The leaves.
        counts: ``int64[leaves]``, available nodes of each leaf.
        order: Indexes of shared leaves, the one with the fewest nodes first; the best ones together have enough.
        need: Number of nodes that are still needed.
        most: Number of shared leaves that may be used.
    """
    if most < _PAIR or len(order) < _PAIR:
        leaf = int(np.argmax(counts[order] >= need))
        return leaf_by_leaf(pool.usable, order[leaf : leaf + 1], need)
    first = int(np.argmax(counts[order[:-1]] + counts[order[1:]] >= need))
    return leaf_by_leaf(pool.usable, order[first : first + _PAIR], max(need, int(counts[order[first]])))


def plan_v2(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan | NoPlan:
    """Plan of a gang under policy 2.0.

    A padding job with more pods than a leaf has places is never placed; without the decision
    fill-crosses-leaf it is placed below several leaves.
    """
    classes = classes_of(pool.bits, counts_of(pool.usable))
    if demand.replicas < pool.places:
        found = _below_one(pool, demand, classes)
        if found is not None:
            return found
        if demand.kind == "padding":
            return NoPlan(lack_of(pool, demand, POLICY, "one-leaf"), "one-leaf")
    wide = _below_many(pool, demand, rules, classes)
    if demand.kind != "padding" or not rules.differs.padding_below_one_leaf:
        return wide
    if isinstance(wide, Plan) and is_below_one(wide, pool):
        return wide
    return _below_one(pool, demand, classes) or NoPlan(lack_of(pool, demand, POLICY, "one-leaf"), "one-leaf")


def _below_many(pool: LeafPool, demand: Demand, rules: SwitchRules, classes: Classes) -> Plan | NoPlan:
    """Plan on free and shared leaves, as far as they have room.

    Source: docs/reference/switches.md, "Policy 2.0".
    """
    idle = int(classes.counts[classes.free].sum())
    shared = best_shared(classes.counts, classes.shared, rules.shared_max)
    if demand.replicas <= idle + shared:
        return _on_free(pool, demand, classes, rules.shared_max, shared)
    lack = lack_of(pool, demand, POLICY, "idle-and-shared", have=idle + shared)
    missed = msgspec.structs.replace(lack, idle=idle, shared=shared)
    if demand.kind == "common":
        return _fallback(pool, demand, classes, missed)
    return NoPlan(missed, missed.rule)


def _below_one(pool: LeafPool, demand: Demand, classes: Classes) -> Plan | None:
    """Plan below one leaf: the first class with a leaf that fits, and in it the leaf with the fewest nodes."""
    counts = classes.counts
    for leaves in (classes.exclusive, classes.unhealthy, classes.shared, classes.free):
        fitting = leaves[counts[leaves] >= demand.replicas]
        if len(fitting):
            leaf = fitting[np.argmin(counts[fitting])]
            groups = leaf_by_leaf(pool.usable, np.array([leaf]), demand.replicas)
            return _plan(pool, demand, groups, "best-fit", {})
    return None


def _on_free(pool: LeafPool, demand: Demand, classes: Classes, shared_max: int, shared: int) -> Plan:
    """Plan on free leaves, with the remaining pods on shared leaves or on one more free leaf."""
    counts = classes.counts
    free = drained(counts, classes.free[falling(counts[classes.free])], demand.replicas)
    groups = leaf_by_leaf(pool.usable, free.leaves, demand.replicas)
    after = dict.fromkeys(free.leaves.tolist(), EXCLUSIVE)
    if not free.rest:
        return _plan(pool, demand, groups, "drained", after)
    if free.stop < 0 or free.rest <= shared:
        rest = on_shared(pool, counts, rising(counts, classes.shared), free.rest, shared_max)
        return _plan(pool, demand, joined(groups, rest), "drained-and-shared", after)
    rest = leaf_by_leaf(pool.usable, np.array([free.stop]), free.rest)
    return _plan(pool, demand, joined(groups, rest), "drained-and-opened", after | {free.stop: SHARED})


def _fallback(pool: LeafPool, demand: Demand, classes: Classes, missed: SwitchLack) -> Plan | NoPlan:
    """Plan of a common job that exceeds the shared-leaf limit: free leaves, then shared and exclusive ones.

    The shared and exclusive leaves become unhealthy.
    """
    counts, crossed = classes.counts, pool.bits & LARGE_CROSS != 0
    free = drained(counts, classes.free[falling(counts[classes.free])], demand.replicas)
    others = [classes.unhealthy, *(leaves[~crossed[leaves]] for leaves in (classes.shared, classes.exclusive))]
    order = np.concatenate([NO_LEAVES, *(rising(counts, leaves) for leaves in others)])
    order = order[counts[order] > 0]
    have = int(counts[free.leaves].sum() + counts[order].sum())
    if have < demand.replicas:
        return NoPlan(msgspec.structs.replace(missed, rule="any-leaf", have=have), missed.rule)
    used = order[: int(np.searchsorted(np.cumsum(counts[order]), free.rest)) + 1]
    after = dict.fromkeys(free.leaves.tolist(), EXCLUSIVE) | dict.fromkeys(used.tolist(), SHARED | UNHEALTHY)
    groups = leaf_by_leaf(pool.usable, np.concatenate([free.leaves, used]), demand.replicas)
    found = _plan(pool, demand, groups, "fallback", after)
    return msgspec.structs.replace(found, missed=missed)


def _plan(pool: LeafPool, demand: Demand, groups: Groups, rule: Rule, after: dict[int, int]) -> Plan:
    cells = groups.ranked(pool.slices, demand.replicas)
    states = bytes(len(cells))
    if len(groups.group) and groups.group[-1] > 0:
        state = pool.bits & (STATE | UNHEALTHY)
        if after:
            state = state.copy()
            state[list(after)] = list(after.values())
        states = state[cells // pool.usable.shape[1]].tobytes()
    return Plan(cells=cells.tolist(), rule=rule, states=states, after=dict(sorted(after.items())))
