"""Types of SuperPoD affinity: candidates, demand and rules; plan of blocks, or the reason why there is none.

A block is a logical SuperPoD: a number of nodes of one physical SuperPoD.

Source: docs/reference/superpods.md, "Terms of SuperPoDs", "Before the selection" and "Selection of blocks".
"""

from collections.abc import Collection, Sequence
from typing import Final, Literal, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_groups import NUMBER, Counts, Rows, running
from berth.core.parity import OWN, Differences
from berth.core.topologies.blocks.demand import SIZE_DEFAULT, Variant

RESERVE_DEFAULT: Final = 2
"""Nodes that a SuperPoD keeps while another can give nodes, if no reserve is configured."""
CLOSEST_MAX: Final = 3
"""Most SuperPoDs that a refusal names."""
RACK_MAX: Final = (1 << 31) - 1
"""Highest number of a rack."""
_NO_RACK: Final = -1

Phase = Literal[
    "fits",
    "larger",
    "reserve",
    "pieces",
    "kept",
    "rebuilt",
    "replaced",
    "service",
    "affinity",
    "rack",
    "ub-memory",
    "superpod",
    "multi-superpod",
    "multi-superpod-pieces",
    "level",
]
"""Step that gave a block its nodes.

Selection: a SuperPoD that the request uses up while it keeps its reserve (fits); one with room for more than the
request (larger); one that gives its reserve (reserve); remaining nodes, in pieces (pieces). After a fault: the same
nodes again (kept), the same SuperPoD (rebuilt), or other nodes for the faulty positions only (replaced). Inference:
SuperPoDs that host the service (service), preferred affinity (affinity). Racks: one rack (rack), a domain of racks
(ub-memory), one SuperPoD (superpod), several (multi-superpod), and their remaining nodes (multi-superpod-pieces).
Levels: a group of the tree (level)."""
Lack = Literal["nodes", "blocks", "incomplete", "size", "service", "affinity", "rack", "wait", "home", "level"]
"""What is missing: candidates for all pods (nodes); room for whole blocks (blocks); nodes for the last pods of a plan
(incomplete); the size, since a SuperPoD has more free nodes than ``super-pod-size`` (size); blocks for an inference
service (service) or near preferred pods (affinity); a rack (rack); nodes that the gang has not released yet (wait);
nodes in the SuperPoD in which a damaged block must stay (home); a group of some level (level)."""


class CandidatePool(NamedTuple):
    """SuperPoDs with the candidate nodes of one gang.

    The nodes of SuperPoD ``p`` are the slice ``starts[p]:starts[p + 1]`` of every array with shape (nodes,).

    Attributes:
        ids: Physical SuperPoDs in their order (:func:`group_key`); the first one wins a tie.
        starts: ``int64[SuperPoDs + 1]``, index of the first node of each SuperPoD, and the number of nodes at the end.
        rows: ``int64[nodes]``, row of each candidate, SuperPoD after SuperPoD, in the order of use: healthy before
            sub-healthy, then by rack, leaf, position and name.
        racks: ``int64[nodes]``, rack of each node, -1 if it is unknown.
        sub_healthy: ``bool[nodes]``, nodes that are sub-healthy.
        idle: ``int64[nodes]``, idle chips of each node; None if all chips of all nodes are idle, as for a gang with
            several pods.
    """

    ids: Sequence[str]
    starts: Rows
    rows: Rows
    racks: Rows
    sub_healthy: Marks
    idle: Rows | None

    @property
    def counts(self) -> Counts:
        """Number of candidates of each SuperPoD: ``int64[SuperPoDs]``."""
        return np.diff(self.starts)

    def without(self, gone: Marks) -> "CandidatePool":
        """The same SuperPoDs without some of their nodes.

        Args:
            gone: ``bool[nodes]``, nodes to remove.
        """
        kept = ~gone
        return CandidatePool(
            self.ids,
            running(kept)[self.starts],
            self.rows[kept],
            self.racks[kept],
            self.sub_healthy[kept],
            None if self.idle is None else self.idle[kept],
        )

    def with_last(self, rows: Collection[int]) -> "CandidatePool":
        """The same candidates, with some of them after the others of their SuperPoD.

        Args:
            rows: Their rows.
        """
        if not rows:
            return self
        pods = np.repeat(np.arange(len(self.ids)), self.counts)
        order = np.argsort(pods * 2 + np.isin(self.rows, sorted(rows)), kind="stable")
        idle = None if self.idle is None else self.idle[order]
        return CandidatePool(self.ids, self.starts, self.rows[order], self.racks[order], self.sub_healthy[order], idle)


class BlockDemand(NamedTuple):
    """Request of a gang.

    Attributes:
        variant: Handler of the product.
        block: B, number of nodes of a block.
        replicas: N, number of pods of the whole gang, each on a different node.
        soft: Blocks may be split if there is no room for whole ones.
        pending: Number of pods to place; None for all.
        rack_block: T, number of nodes of a block inside one rack; 0 without racks.
        ub_memory: The gang shares memory over the unified bus (racks only).
    """

    variant: Variant
    block: int
    replicas: int
    soft: bool = False
    pending: int | None = None
    rack_block: int = 0
    ub_memory: bool = False

    @property
    def blocks(self) -> int:
        """V, number of blocks of the gang. Their ids are 0 to V - 1; ids of pieces follow."""
        return self.replicas // self.block

    @property
    def is_partial(self) -> bool:
        """Whether some pods run and more than one is to be placed (``partial_reschedule`` of the reference).

        Source: docs/reference/superpods.md, "Phases".
        """
        return self.pending is not None and 1 < self.pending < self.replicas


class BlockRules(NamedTuple):
    """Rules that a plan must meet.

    Attributes:
        reserve: R, number of nodes that a SuperPoD keeps while another can give nodes; 0 or more.
        size: S, number of nodes of a physical SuperPoD.
        differs: Which documented decisions go Berth's way.
    """

    reserve: int = RESERVE_DEFAULT
    size: int = SIZE_DEFAULT
    differs: Differences = OWN


class BlockAllocation(NamedTuple):
    """Nodes of a SuperPoD for a block.

    Attributes:
        block_id: Id of the block.
        pod: Index of the SuperPoD in :attr:`CandidatePool.ids`.
        nodes: Number of nodes.
        phase: Step that allocated them.
    """

    block_id: int
    pod: int
    nodes: int
    phase: Phase


class Near(msgspec.Struct, frozen=True):
    """A SuperPoD that comes closest to the request.

    Attributes:
        superpod: Its id.
        free: Number of its nodes that can take a pod of the gang.
        blocks: Number of whole blocks on them.
    """

    superpod: str
    free: int
    blocks: int


class NoBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no plan.

    Attributes:
        lack: What is missing.
        block: B, number of nodes of a block.
        blocks_need: Number of blocks to place.
        blocks_have: Most blocks that are possible.
        nodes_need: Number of nodes to find.
        nodes_have: Number of nodes that count for it: candidates, or those that the plan had found.
        closest: Up to three SuperPoDs with the most candidates, the best first.
        limit: The bound that is exceeded, for ``size``.
    """

    lack: Lack
    block: int
    blocks_need: int
    blocks_have: int
    nodes_need: int
    nodes_have: int
    closest: tuple[Near, ...]
    limit: int = 0


class BlockPlan(NamedTuple):
    """Place of each rank. The arrays have shape (replicas,).

    Attributes:
        rows: Row of each rank; -1 if the plan has no node for it, which only the reference allows.
        block_ids: Block of each rank, or -1.
        pods: Index of the SuperPoD of each rank in :attr:`CandidatePool.ids`, or -1.
        allocations: Nodes of each block, in the order of the decision.
    """

    rows: Rows
    block_ids: Rows
    pods: Rows
    allocations: tuple[BlockAllocation, ...]

    @property
    def is_whole(self) -> bool:
        """Whether every rank has a node."""
        return bool((self.rows >= 0).all())


def rack_number(name: str) -> int:
    """Number of a rack, at most :data:`RACK_MAX`; -1 if the name is not a number.

    Source: docs/reference/superpods.md, "Terms of SuperPoDs".
    """
    number = int(name) if NUMBER.fullmatch(name) else _NO_RACK
    return number if number <= RACK_MAX else _NO_RACK


def closest(ids: Sequence[str], counts: Counts, block: int) -> tuple[Near, ...]:
    """SuperPoDs with the most candidates, at most :data:`CLOSEST_MAX`; SuperPoDs without candidates are omitted.

    Args:
        ids: SuperPoDs in their order.
        counts: ``int64[SuperPoDs]``, candidates of each.
        block: B, number of nodes of a block.
    """
    first = np.argsort(-counts, kind="stable")[:CLOSEST_MAX].tolist()
    free = {pod: int(counts[pod]) for pod in first}
    return tuple(Near(ids[pod], free[pod], free[pod] // block) for pod in first if free[pod])


def pool_of(
    ids: Sequence[str],
    pods: Rows,
    rows: Rows,
    *,
    racks: Rows | None = None,
    sub_healthy: Marks | None = None,
    idle: Rows | None = None,
) -> CandidatePool:
    """Candidates sorted by SuperPoD.

        >>> pool = pool_of(["s0", "s1"], np.array([0, 1, 0, 1]), np.array([10, 11, 12, 13]),
        ...                sub_healthy=np.array([True, False, False, False]))
        >>> pool.starts, pool.rows
        (array([0, 2, 4]), array([12, 10, 11, 13]))

    SuperPoD ``s0`` has the nodes 12 and 10, the healthy one first; ``s1`` has the nodes 11 and 13.

    Args:
        ids: SuperPoDs in their order (:func:`group_key`).
        pods: ``int64[nodes]``, index of the SuperPoD of each candidate in ``ids``.
        rows: ``int64[nodes]``, rows of the candidates in the order of rack, leaf, position and name, which is kept.
        racks: ``int64[nodes]``, rack of each candidate; None if all are unknown.
        sub_healthy: ``bool[nodes]``, candidates that come after the healthy ones of their SuperPoD; None for none.
        idle: ``int64[nodes]``, idle chips of each; see :attr:`CandidatePool.idle`.
    """
    racks = np.full(len(rows), -1, np.int64) if racks is None else racks
    sub_healthy = np.zeros(len(rows), np.bool_) if sub_healthy is None else sub_healthy
    order = np.argsort(pods * 2 + sub_healthy, kind="stable")
    return CandidatePool(
        ids,
        running(np.bincount(pods, minlength=len(ids))),
        rows[order],
        racks[order],
        sub_healthy[order],
        None if idle is None else idle[order],
    )
