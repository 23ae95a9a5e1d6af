"""Replacement of lost pods of a gang below leaf switches (ToR), while its other pods stay where they are.

Policy 1.0 uses nodes at a position of the leaf that the gang lacks. Policy 2.0 stays below the gang's own leaves while
they have room, then continues as for a new gang. On a single layer the gang stays below its leaf. The name of the node
decides ties.

Source: docs/reference/switches.md, "Ranks, scores and annotations", "Replacement in 1.0", "Replacement in 2.0"
and "Replacement on a single layer". See decisions slice-of-lost-pod, deterministic-scores and survivors-leaf.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np

from berth.core.topologies.switches.groups import (
    NO_LEAVES,
    Counts,
    Groups,
    Indexes,
    counts_of,
    joined,
    lack_of,
    leaf_by_leaf,
    rising,
)
from berth.core.topologies.switches.model import Demand, LeafPool, NoPlan, Plan, Policy, SwitchRules
from berth.core.topologies.switches.nslb_v2 import best_shared, drained, on_shared
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, SHARED, STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_states import Bits
from berth.core.topologies.switches.occupancy.leaf_table import Grid
from berth.core.topologies.switches.single_layer import plan_single


class PartialGang(NamedTuple):
    """A placed gang that lost pods.

    Attributes:
        cells: Cell of each running pod; -1 if its node is not below a known leaf.
        ranks: Ranks to place, ascending.
        is_single: Some running pod reports that its leaf is free: the gang is below one leaf.
    """

    cells: Sequence[int]
    ranks: Sequence[int]
    is_single: bool = False


class OpenPlaces(NamedTuple):
    """Places that a partial gang may use.

    Attributes:
        places: ``bool[leaves, width]``.
        rule: Rule that closes the other usable places: whole-gang, lacking-position, leaf-state or own-leaf.
    """

    places: Grid
    rule: str


class _Leaves(NamedTuple):
    """Leaves of a partial gang under policy 2.0.

    Attributes:
        used: ``int64[n]``, leaves above running pods, ascending.
        pods: ``int64[leaves]``, number of running pods below each leaf.
        state: ``uint8[leaves]``, state byte of each leaf.
        left: Number of shared leaves that the gang may still add; negative if it has too many.
    """

    used: Indexes
    pods: Counts
    state: Bits
    left: int


class _Choice(NamedTuple):
    """Nodes for a partial gang under policy 2.0.

    Attributes:
        numbered: Cells in the numbering of the reference: group after group, and by position inside a group.
        tier: Of each cell that may be used: 0 for own exclusive leaves, 1 for own shared leaves, 2 and 3 for new
            leaves.
    """

    numbered: list[int]
    tier: dict[int, int]


def open_places(pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang) -> OpenPlaces:
    """Usable places that a partial gang may use.

    Args:
        pool: Leaves with the candidates of the gang; ``bits`` exclude the gang itself.
        demand: ``replicas`` is the number of pods to place, ``pods`` that of the whole gang.
        rules: Rules that the plan must meet.
        partial_gang: Running pods and lost ranks of the gang.
    """
    opened = _FILTERS[rules.policy](pool, demand, rules, partial_gang)
    return opened._replace(places=pool.usable & opened.places)


def plan_partial(
    pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang, node_names: Sequence[str]
) -> Plan | NoPlan:
    """Places of the lost pods of a gang, in the order of ``partial_gang.ranks``, or what is missing.

    Args:
        pool: Leaves with the candidates of the gang; ``bits`` exclude the gang itself.
        demand: ``replicas`` is the number of pods to place, ``pods`` that of the whole gang.
        rules: Rules that the plan must meet.
        partial_gang: Running pods and lost ranks of the gang.
        node_names: Node at each cell; empty if there is none.

    Raises:
        ValueError: There is nothing to place, or ``replicas`` is not the number of ranks.
    """
    if not partial_gang.ranks or len(partial_gang.ranks) != demand.replicas:
        raise ValueError(
            f"replicas is {demand.replicas}: expected {len(partial_gang.ranks)}, the ranks to be placed, 1 or more"
        )
    pool = pool._replace(usable=open_places(pool, demand, rules, partial_gang).places)
    if not pool.usable.any():
        return _no_plan(pool, demand, rules.policy, "open-places")
    return _PLANS[rules.policy](pool, demand, rules, partial_gang, node_names)


def _no_plan(pool: LeafPool, demand: Demand, policy: Policy, rule: str) -> NoPlan:
    return NoPlan(lack_of(pool, demand, policy, rule, have=int(np.count_nonzero(pool.usable))), rule)


def _slices_used(pool: LeafPool, partial_gang: PartialGang) -> Counts:
    """Number of running pods at each position.

    Positions may exceed the longest list if the topology has no ``places``.
    """
    positions = max(pool.places, int(pool.slices.max(initial=-1)) + 1)
    slices = pool.slices.reshape(-1)[[cell for cell in partial_gang.cells if cell >= 0]]
    return np.bincount(slices, minlength=positions)


def _most_at_one(pool: LeafPool, demand: Demand) -> int:
    """Most pods of the whole gang at one position. All lists may be empty; then a leaf has no places."""
    return -(-demand.pods // max(pool.places, 1))


def _open_v1(pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang) -> OpenPlaces:
    """1.0: leaves that no other job on several leaves uses, at positions that the gang lacks.

    A padding job is placed only as a whole. A position is lacking if fewer pods run there than the whole gang would
    have at most at one position. The reference takes the highest position in use (decision slice-of-lost-pod).

    Source: docs/reference/switches.md, "Replacement in 1.0".
    """
    if demand.kind == "padding":
        return OpenPlaces(np.zeros_like(pool.usable), "whole-gang")
    used = _slices_used(pool, partial_gang)
    if not rules.differs.lacking_position:
        is_open = np.arange(len(used)) == (np.flatnonzero(used)[-1] if used.any() else 0)
    else:
        is_open = used < _most_at_one(pool, demand)
    return OpenPlaces(is_open[pool.slices] & (pool.bits & CROSS == 0)[:, None], "lacking-position")


def _open_v2(pool: LeafPool, _demand: Demand, rules: SwitchRules, partial_gang: PartialGang) -> OpenPlaces:
    """2.0: the gang's own leaves, and other leaves if the gang is on more than one leaf.

    Source: docs/reference/switches.md, "Replacement in 2.0".
    """
    leaves = _leaves_of(pool, rules, partial_gang)
    state = leaves.state & STATE
    excluded = (state == EXCLUSIVE) | partial_gang.is_single
    if leaves.left <= 0:
        excluded |= state == SHARED
    excluded[leaves.used] = False
    return OpenPlaces(np.broadcast_to(~excluded[:, None], pool.usable.shape), "leaf-state")


def _open_single(pool: LeafPool, _demand: Demand, rules: SwitchRules, partial_gang: PartialGang) -> OpenPlaces:
    """Single layer: the leaf of the running pods; the reference opens all leaves (decision survivors-leaf).

    Source: docs/reference/switches.md, "Replacement on a single layer".
    """
    used = np.bincount(_leaves_above(pool, partial_gang), minlength=len(pool.names)) > 0
    is_open = used[:, None] | (not rules.differs.own_leaf or not used.any())
    return OpenPlaces(np.broadcast_to(is_open, pool.usable.shape), "own-leaf")


def _leaves_above(pool: LeafPool, partial_gang: PartialGang) -> Indexes:
    found: Indexes = np.array([cell for cell in partial_gang.cells if cell >= 0], np.int64) // pool.usable.shape[1]
    return found


def _leaves_of(pool: LeafPool, rules: SwitchRules, partial_gang: PartialGang) -> _Leaves:
    pods = np.bincount(_leaves_above(pool, partial_gang), minlength=len(pool.names))
    used = np.flatnonzero(pods)
    state: Bits = pool.bits & np.uint8(STATE | UNHEALTHY)
    return _Leaves(used, pods, state, rules.shared_max - int(np.count_nonzero(state[used] & STATE == SHARED)))


def _plan_v1(
    pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang, node_names: Sequence[str]
) -> Plan | NoPlan:
    """1.0: one pod after the other, at the position with the fewest pods, below the gang's own leaves if possible."""
    cells = np.flatnonzero(pool.usable).tolist()
    if len(cells) < demand.replicas:
        return _no_plan(pool, demand, rules.policy, "open-places")
    if not rules.differs.lacking_position:
        chosen = sorted(cells, key=node_names.__getitem__)[: demand.replicas]
        return Plan(cells=chosen, rule="replacement", states=bytes(len(chosen)))
    found = _by_position(pool, demand, partial_gang, sorted(cells, key=node_names.__getitem__))
    if found is None:
        return _no_plan(pool, demand, rules.policy, "open-places")
    return Plan(cells=found, rule="replacement", states=bytes(len(found)))


def _by_position(pool: LeafPool, demand: Demand, partial_gang: PartialGang, cells: list[int]) -> list[int] | None:
    own = set(_leaves_above(pool, partial_gang).tolist())
    width = pool.usable.shape[1]
    slices = pool.slices.reshape(-1)
    used = _slices_used(pool, partial_gang).tolist()
    most = _most_at_one(pool, demand)
    queues: dict[int, list[int]] = {}
    for cell in sorted(cells, key=lambda cell: cell // width not in own):
        queues.setdefault(int(slices[cell]), []).append(cell)
    for queue in queues.values():
        queue.reverse()
    chosen: list[int] = []
    for _ in partial_gang.ranks:
        lacking = [at for at, queue in queues.items() if queue and used[at] < most]
        if not lacking:
            return None
        at = min(lacking, key=lambda at: (used[at], queues[at][-1] // width not in own, at))
        chosen.append(queues[at].pop())
        used[at] += 1
    return chosen


def _plan_v2(
    pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang, node_names: Sequence[str]
) -> Plan | NoPlan:
    leaves = _leaves_of(pool, rules, partial_gang)
    if leaves.left < 0:
        return _no_plan(pool, demand, rules.policy, "shared-limit")
    counts = counts_of(pool.usable)
    need = demand.replicas - int(counts[leaves.used].sum())
    if need <= 0:
        after, new = _kept_states(leaves, counts), Groups(NO_LEAVES, NO_LEAVES)
    elif demand.kind == "padding":
        return _no_plan(pool, demand, rules.policy, "own-leaves")
    else:
        found = _added(pool, leaves, counts, need)
        if isinstance(found, int):
            refused = _no_plan(pool, demand, rules.policy, "idle-and-shared")
            return msgspec.structs.replace(refused, lack=msgspec.structs.replace(refused.lack, have=found))
        after, new = found
    choice = _choice(pool, leaves, after, new, node_names)
    numbered: list[int] = []
    tier = choice.tier
    if not rules.differs.own_leaves_first:
        # The reference gives new and own exclusive leaves the same score, and shared leaves a lower one.
        numbered, tier = choice.numbered, {cell: tier & 1 for cell, tier in choice.tier.items()}
    cells = _assign_ranks(partial_gang.ranks, numbered, tier, node_names)
    return Plan(
        cells=cells, rule="replacement", states=_state_bytes(pool, leaves, partial_gang, after, cells), after=after
    )


def _kept_states(leaves: _Leaves, counts: Counts) -> dict[int, int]:
    """States of the gang's own leaves if they have room for all pods.

    A free leaf becomes shared if more pods than those of the gang fit below it and the gang may have one more shared
    leaf; otherwise it becomes exclusive.
    """
    left = leaves.left
    after: dict[int, int] = {}
    for leaf in leaves.used.tolist():
        if leaves.state[leaf] & STATE:
            continue
        is_shared = counts[leaf] > leaves.pods[leaf] + 1 and left != 0
        after[leaf] = _own_state(leaves, leaf, SHARED if is_shared else EXCLUSIVE)
        left -= is_shared
    return after


def _own_state(leaves: _Leaves, leaf: int, state: int) -> int:
    """State byte of an own leaf that a plan makes shared or exclusive; an unhealthy leaf stays unhealthy.

    A free leaf can be unhealthy only without the decision order-free-merge.
    """
    return state | int(leaves.state[leaf]) & UNHEALTHY


def _added(pool: LeafPool, leaves: _Leaves, counts: Counts, need: int) -> tuple[dict[int, int], Groups] | int:
    """New leaves for ``need`` more pods, as states to set and nodes; or the available room if it is too small."""
    is_new = leaves.pods == 0
    free = np.flatnonzero(is_new & (leaves.state == 0))
    shared = np.flatnonzero(is_new & (leaves.state == SHARED))
    most = best_shared(counts, shared, leaves.left)
    have = int(counts[free].sum()) + most
    if have < need:
        return int(counts[leaves.used].sum()) + have
    after = {
        leaf: _own_state(leaves, leaf, EXCLUSIVE) for leaf in leaves.used.tolist() if not leaves.state[leaf] & STATE
    }
    taken = drained(counts, rising(counts, free), need)
    after |= dict.fromkeys(taken.leaves.tolist(), EXCLUSIVE)
    new = leaf_by_leaf(pool.usable, taken.leaves, need)
    if not taken.rest:
        return after, new
    if taken.stop < 0 or taken.rest <= most:
        rest = on_shared(pool, counts, rising(counts, shared), taken.rest, leaves.left)
    else:
        rest = leaf_by_leaf(pool.usable, np.array([taken.stop]), taken.rest)
        after[taken.stop] = SHARED if leaves.left > 0 else EXCLUSIVE
    return after, joined(new, rest)


def _choice(
    pool: LeafPool, leaves: _Leaves, after: Mapping[int, int], new: Groups, node_names: Sequence[str]
) -> _Choice:
    """Nodes of the gang's own leaves, exclusive ones first, then of new leaves."""
    width = pool.usable.shape[1]
    own = [
        cell for leaf in leaves.used.tolist() for cell in range(leaf * width, (leaf + 1) * width) if node_names[cell]
    ]
    groups = joined(Groups(np.array(own, np.int64), np.array(own, np.int64) // width), new)
    numbered = groups.ranked(pool.slices, len(groups.cells)).tolist()
    usable = pool.usable.reshape(-1)
    tier: dict[int, int] = {}
    for cell in numbered:
        if usable[cell]:
            leaf = cell // width
            is_shared = after.get(leaf, int(leaves.state[leaf])) & STATE == SHARED
            tier[cell] = 2 * (not leaves.pods[leaf]) + is_shared
    return _Choice(numbered, tier)


def _assign_ranks(
    ranks: Iterable[int], numbered: Sequence[int], tier: Mapping[int, int], node_names: Sequence[str]
) -> list[int]:
    """Cell of each rank: the one with its number, otherwise the first remaining one by tier and name."""
    order = sorted(tier, key=lambda cell: (tier[cell], node_names[cell]), reverse=True)
    left = set(order)
    chosen: list[int] = []
    for rank in ranks:
        cell = numbered[rank] if rank < len(numbered) else -1
        while cell not in left:
            cell = order.pop()
        left.discard(cell)
        chosen.append(cell)
    return chosen


def _state_bytes(
    pool: LeafPool, leaves: _Leaves, partial_gang: PartialGang, after: Mapping[int, int], cells: Sequence[int]
) -> bytes:
    """State byte that each new pod reports."""
    if partial_gang.is_single:
        return bytes(len(cells))
    width = pool.usable.shape[1]
    return bytes(after.get(cell // width, int(leaves.state[cell // width])) for cell in cells)


def _plan_single(
    pool: LeafPool, demand: Demand, rules: SwitchRules, partial_gang: PartialGang, node_names: Sequence[str]
) -> Plan | NoPlan:
    """Single layer: a plan as for a new gang of the lost pods, below the open leaves."""
    found = plan_single(pool, demand, rules)
    if isinstance(found, NoPlan):
        return found
    cells = _assign_ranks(partial_gang.ranks, found.cells, dict.fromkeys(found.cells, 0), node_names)
    return Plan(cells=cells, rule="replacement", states=bytes(len(cells)))


_FILTERS: Final[Mapping[Policy, Callable[[LeafPool, Demand, SwitchRules, PartialGang], OpenPlaces]]] = {
    "1.0": _open_v1,
    "2.0": _open_v2,
    "single-layer": _open_single,
}
_PLANS: Final[Mapping[Policy, Callable[[LeafPool, Demand, SwitchRules, PartialGang, Sequence[str]], Plan | NoPlan]]] = {
    "1.0": _plan_v1,
    "2.0": _plan_v2,
    "single-layer": _plan_single,
}
