"""Groups of a plan: nodes in the order in which a policy took them, and the order of ranks that follows.

Source: docs/reference/switches.md, "Partitions of idle nodes" and "Ranks, scores and annotations".
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.switches.model import Demand, LeafPool, Plan, Policy
from berth.core.switches.occupancy.leaf_states import CROSS, NOT_NORMAL
from berth.core.switches.occupancy.leaf_table import Cells, Grid
from berth.schemas.refusal import SwitchLack

Indexes = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
"""Nodes that each leaf has to give."""
NO_LEAVES: Final[Indexes] = np.empty(0, np.int64)


class Groups(NamedTuple):
    """Nodes of a plan, group after group.

    Attributes:
        cells: Cell of each node.
        group: Group of each node, ascending: a leaf, or a logical row.
    """

    cells: Indexes
    group: Indexes

    def ranked(self, slices: Cells, replicas: int) -> Indexes:
        """Cell of each rank: inside a group by position, groups in their order.

        Source: docs/reference/switches.md, "Ranks, scores and annotations".

        Args:
            slices: (leaves, width): position of each place.
            replicas: Ranks; nodes beyond them serve nobody.
        """
        return self.cells[np.lexsort((slices.reshape(-1)[self.cells], self.group))][:replicas]


def counts_of(grid: Grid) -> Counts:
    """Nodes that each leaf has to give."""
    found: Counts = grid.sum(axis=1)
    return found


def falling(counts: Counts) -> Indexes:
    """Leaves by what they have to give, the most first; those alike in the order of their source."""
    return np.argsort(-counts, kind="stable")


def rising(counts: Counts, leaves: Indexes) -> Indexes:
    """Some leaves by what they have to give, the least first; those alike in the order given."""
    return leaves[np.argsort(counts[leaves], kind="stable")]


def leaf_by_leaf(grid: Grid, leaves: Indexes, most: int) -> Groups:
    """The first nodes of leaves, in the order of the leaves and of their lists: one group a leaf.

    Args:
        grid: Nodes to be taken.
        leaves: Where from.
        most: Nodes to be taken at most.
    """
    group, place = np.nonzero(grid[leaves])
    group, place = group[:most], place[:most]
    return Groups(leaves[group] * grid.shape[1] + place, group)


def joined(*parts: Groups) -> Groups:
    """Groups of several parts, one part after the other."""
    groups: list[Indexes] = []
    start = 0
    for part in parts:
        groups.append(part.group + start)
        start += int(part.group[-1]) + 1 if len(part.group) else 0
    return Groups(np.concatenate([part.cells for part in parts]), np.concatenate(groups))


def lack_of(pool: LeafPool, demand: Demand, policy: Policy, rule: str, *, have: int | None = None) -> SwitchLack:
    """What is missing, with the numbers that all rules have.

    Args:
        pool: The leaves.
        demand: What was asked.
        policy: Which of the three.
        rule: What could not be met.
        have: Nodes that count towards it at best; without, those of the best leaf.
    """
    counts = counts_of(pool.usable)
    best = int(np.argmax(counts)) if len(counts) else -1
    most = int(counts[best]) if best >= 0 else 0
    return SwitchLack(
        policy=policy,
        rule=rule,
        need=demand.replicas,
        have=most if have is None else have,
        leaf=pool.names[best] if best >= 0 else "",
        leaf_have=most,
        places=pool.places,
        leaves=len(pool.names),
        full=int(np.count_nonzero(counts == pool.places)),
        barred=int(np.count_nonzero(counts[barred(pool, demand, counts)])) if policy == "1.0" else 0,
    )


def barred(pool: LeafPool, demand: Demand, counts: Counts) -> Indexes:
    """1.0: leaves that a job on several leaves keeps from a job that is not wholly below one of them.

    Source: docs/reference/switches.md, "Policy 1.0".
    """
    excluded = (pool.bits & CROSS != 0) & (counts < demand.replicas)
    if demand.kind == "common":
        excluded &= pool.bits & NOT_NORMAL != 0
    return np.flatnonzero(excluded)


def is_below_one(plan: Plan, pool: LeafPool) -> bool:
    """All nodes of a plan are below one leaf."""
    width = pool.usable.shape[1]
    return len({cell // width for cell in plan.cells}) == 1
