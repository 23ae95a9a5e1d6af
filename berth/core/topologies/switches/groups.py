"""Groups of a plan: nodes in the order in which a policy takes them, and the resulting order of ranks.

A *cell* is a place below a leaf switch (ToR); see :mod:`berth.core.topologies.switches.occupancy.leaf_table`.

Source: docs/reference/switches.md, "Partitions of idle nodes" and "Ranks, scores and annotations".
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from berth.core.topologies.switches.model import Demand, LeafPool, Plan, Policy
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, NOT_NORMAL
from berth.core.topologies.switches.occupancy.leaf_table import Cells, Grid
from berth.schemas.refusal import SwitchLack

Indexes = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
"""Number of available nodes of each leaf."""
NO_LEAVES: Final[Indexes] = np.empty(0, np.int64)


class Groups(NamedTuple):
    """Nodes of a plan, group after group. Both arrays have shape (nodes,).

    Attributes:
        cells: Cell of each node.
        group: Group of each node, ascending. A group is a leaf or a logical row.
    """

    cells: Indexes
    group: Indexes

    def ranked(self, slices: Cells, replicas: int) -> Indexes:
        """Cell of each rank: groups in their order, and by position inside a group.

            >>> groups = Groups(np.array([1, 0, 5, 4, 3, 8]), np.array([0, 0, 0, 1, 1, 1]))
            >>> groups.ranked(np.array([[0, 1, 2], [0, 1, 2], [0, 1, 2]]), 4)
            array([0, 1, 5, 3])

        Source: docs/reference/switches.md, "Ranks, scores and annotations".

        Args:
            slices: ``int32[leaves, width]``, position of each place.
            replicas: Number of ranks; further nodes are not used.

        Returns:
            ``int64[replicas]``, or the number of nodes if there are fewer.
        """
        return self.cells[np.lexsort((slices.reshape(-1)[self.cells], self.group))][:replicas]


def counts_of(grid: Grid) -> Counts:
    """Number of available nodes of each leaf.

        >>> counts_of(np.array([[True, True, False], [True, True, True]]))
        array([2, 3])

    Args:
        grid: ``bool[leaves, width]``, nodes that are available.

    Returns:
        ``int64[leaves]``.
    """
    found: Counts = grid.sum(axis=1)
    return found


def falling(counts: Counts) -> Indexes:
    """Indexes of all leaves, the one with the most available nodes first; ties keep the order of their source.

    Args:
        counts: ``int64[leaves]``.

    Returns:
        ``int64[leaves]``.
    """
    return np.argsort(-counts, kind="stable")


def rising(counts: Counts, leaves: Indexes) -> Indexes:
    """Some leaves, the one with the fewest available nodes first; ties keep the order of ``leaves``.

    Args:
        counts: ``int64[leaves]``, available nodes of all leaves.
        leaves: ``int64[n]``, indexes of the leaves to sort.

    Returns:
        ``int64[n]``.
    """
    return leaves[np.argsort(counts[leaves], kind="stable")]


def leaf_by_leaf(grid: Grid, leaves: Indexes, most: int) -> Groups:
    """The first available nodes of some leaves, in the order of the leaves and of their lists; one group per leaf.

    Args:
        grid: ``bool[leaves, width]``, nodes that are available.
        leaves: Indexes of the leaves to use, in order.
        most: Most nodes to take.
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
    """What is missing, with the numbers that all rules report.

    Args:
        pool: The leaves.
        demand: Request of the gang.
        policy: One of the three policies.
        rule: Rule that cannot be met.
        have: Most nodes that count for the rule; None for those of the best leaf.
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
        barred=int(np.count_nonzero(counts[closed_leaves(pool, demand, counts)])) if policy == "1.0" else 0,
    )


def closed_leaves(pool: LeafPool, demand: Demand, counts: Counts) -> Indexes:
    """1.0: leaves that are closed to a job that does not fit below one of them: a job on several leaves uses them.

    Source: docs/reference/switches.md, "Policy 1.0".
    """
    excluded = (pool.bits & CROSS != 0) & (counts < demand.replicas)
    if demand.kind == "common":
        excluded &= pool.bits & NOT_NORMAL != 0
    return np.flatnonzero(excluded)


def is_below_one(plan: Plan, pool: LeafPool) -> bool:
    """Whether all nodes of a plan are below one leaf."""
    width = pool.usable.shape[1]
    return len({cell // width for cell in plan.cells}) == 1
