"""Words of SuperPoD affinity: yard, want and rules; plan of blocks and why there is none.

A block is a logical SuperPoD: so many nodes of one physical SuperPoD.

Source: docs/reference/superpods.md, "Terms of SuperPoDs", "Before the selection" and "Selection of blocks".
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Nodes, by their row in the table of whoever asks."""
Counts = npt.NDArray[np.int64]
"""Nodes of each SuperPoD."""
Marks = npt.NDArray[np.bool_]
"""One mark a node."""

SIZE_DEFAULT: Final = 48
"""Nodes of a physical SuperPoD where nothing is configured."""
RESERVE_DEFAULT: Final = 2
"""Nodes that a SuperPoD keeps while another can keep them, where nothing is configured."""
CLOSEST_MAX: Final = 3
"""SuperPoDs that a refusal names."""
RACK_MAX: Final = (1 << 31) - 1
"""Highest number of a rack."""
_NO_RACK: Final = -1
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
"""A name that is a number; one with more digits is a text like any other."""

Variant = Literal["a3", "850", "rack"]
"""Handler: Atlas A3 of 16 or 8 chips a node, Atlas 850, Atlas 950 with racks."""
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
"""What gave a block its nodes: a SuperPoD that the request fits and that keeps its reserve (fits); one with room for more
than is asked (larger); one that gives up its reserve (reserve); what is left, in pieces (pieces). After a fault: the same
nodes again (kept), the same SuperPoD (rebuilt), or other nodes for the faulty positions alone (replaced). Inference: beside
the siblings of the service (service), by preferred affinity (affinity). Racks: one rack (rack), a domain of racks
(ub-memory), one SuperPoD (superpod), several (multi-superpod), and what is left of them (multi-superpod-pieces). Levels:
a group of the tree (level)."""
Lack = Literal["nodes", "blocks", "incomplete", "size", "service", "affinity", "rack", "wait", "home", "level"]
"""What is missing: candidates for all pods (nodes); room for whole blocks (blocks); nodes for the rest of a plan that had
begun well (incomplete); a SuperPoD has more free nodes than ``super-pod-size`` (size); blocks for an inference service
(service) or beside preferred siblings (affinity); a rack (rack); nodes that the gang has not yet given back (wait); nodes
in the SuperPoD where a damaged block has to stay (home); a group of some level (level)."""


class CandidatePool(NamedTuple):
    """SuperPoDs as one gang finds them.

    Attributes:
        ids: Physical SuperPoDs in their order (:func:`superpod_key`); every tie goes to the first of them.
        starts: One more than there are SuperPoDs: nodes ``starts[p]`` to ``starts[p + 1]`` are those of SuperPoD ``p``.
        rows: Candidates, SuperPoD after SuperPoD, in the order in which they are taken: healthy before sub-healthy, then by
            rack, leaf, position and name.
        racks: Rack of each node, -1 where it is unknown.
        sub_healthy: Nodes that are sub-healthy.
        idle: Idle chips of each node; None where all are wholly idle, as those of a gang of several pods are.
    """

    ids: Sequence[str]
    starts: Rows
    rows: Rows
    racks: Rows
    sub_healthy: Marks
    idle: Rows | None = None

    @property
    def counts(self) -> Counts:
        """Candidates of each SuperPoD."""
        return np.diff(self.starts)

    def without(self, gone: Marks) -> "CandidatePool":
        """The same SuperPoDs without some of the nodes.

        Args:
            gone: One mark for each of :attr:`rows`.
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


class BlockDemand(NamedTuple):
    """What a gang asks.

    Attributes:
        variant: Which handler.
        block: B, nodes of a block.
        replicas: N, pods of the whole gang, each on a node of its own.
        soft: Blocks may be split where whole ones find no room.
        pending: Pods that are to be placed; None for all.
        rack_block: T, nodes of a block inside a rack; 0 without racks.
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
        """V, blocks of the gang: their ids are 0 to V - 1, those of pieces follow."""
        return self.replicas // self.block

    @property
    def is_partial(self) -> bool:
        """Some pods run, and more than one is to be placed.

        Source: docs/reference/superpods.md, "Phases".
        """
        return self.pending is not None and 1 < self.pending < self.replicas


class BlockRules(NamedTuple):
    """What a plan must heed.

    Attributes:
        reserve: R, nodes that a SuperPoD keeps while another can keep them; 0 or more.
        size: S, nodes of a physical SuperPoD.
        parity: Documented decisions go the reference's way.
    """

    reserve: int = RESERVE_DEFAULT
    size: int = SIZE_DEFAULT
    parity: bool = False


class BlockAllocation(NamedTuple):
    """Nodes that a SuperPoD gives to a block.

    Attributes:
        block_id: Id of the block.
        pod: SuperPoD, as its index in :attr:`Yard.ids`.
        nodes: How many.
        phase: What gave them.
    """

    block_id: int
    pod: int
    nodes: int
    phase: Phase


class Near(msgspec.Struct, frozen=True):
    """A SuperPoD that comes closest to what is asked.

    Attributes:
        superpod: Its id.
        free: Nodes of it that can take a pod of the gang.
        blocks: Whole blocks that they make.
    """

    superpod: str
    free: int
    blocks: int


class NoBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no plan.

    Attributes:
        lack: What is missing.
        block: B, nodes of a block.
        blocks_need: Blocks that are to be placed.
        blocks_have: Blocks that are possible at best.
        nodes_need: Nodes that are to be found.
        nodes_have: Nodes that count towards it: candidates, or those that the plan had found when it came to its end.
        closest: Up to three SuperPoDs with the most to give, the best first.
        limit: The bound that was overstepped, for ``size``.
    """

    lack: Lack
    block: int
    blocks_need: int
    blocks_have: int
    nodes_need: int
    nodes_have: int
    closest: tuple[Near, ...] = ()
    limit: int = 0


class BlockPlan(NamedTuple):
    """Where each rank goes.

    Attributes:
        rows: Row of each rank; -1 where the plan has none for it, which only parity allows.
        block_ids: Block of each rank; -1 likewise.
        pods: SuperPoD of each rank, as its index in :attr:`Yard.ids`; -1 likewise.
        allocations: What each block got, in the order of the decision.
    """

    rows: Rows
    block_ids: Rows
    pods: Rows
    allocations: tuple[BlockAllocation, ...]

    @property
    def is_whole(self) -> bool:
        """Every rank has a node."""
        return bool((self.rows >= 0).all())


def running(counts: npt.NDArray[Any]) -> Rows:
    """What is before each: sums of all that come earlier, and the sum of all at the end."""
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def superpod_key(name: str) -> tuple[int, int, str]:
    """Order of SuperPoDs: those whose id is a number by it, then the others by their text."""
    return (0, int(name), name) if _NUMBER.fullmatch(name) else (1, 0, name)


def rack_number(name: str) -> int:
    """Number of a rack, up to :data:`RACK_MAX`; -1 for a name that is none.

    Source: docs/reference/superpods.md, "Terms of SuperPoDs".
    """
    number = int(name) if _NUMBER.fullmatch(name) else _NO_RACK
    return number if number <= RACK_MAX else _NO_RACK


def closest(ids: Sequence[str], counts: Counts, block: int) -> tuple[Near, ...]:
    """SuperPoDs with the most candidates, at most :data:`CLOSEST_MAX` of them; those with none are left out.

    Args:
        ids: SuperPoDs in their order.
        counts: Candidates of each.
        block: B, nodes of a block.
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
    """Candidates sorted into their SuperPoDs.

    Args:
        ids: SuperPoDs in their order (:func:`superpod_key`).
        pods: SuperPoD of each candidate, as its index in ``ids``.
        rows: Candidates in the order of rack, leaf, position and name, in which they stay.
        racks: Rack of each; without, all unknown.
        sub_healthy: Candidates that are sub-healthy, which go behind the healthy ones of their SuperPoD; without, none.
        idle: Idle chips of each; see :attr:`Yard.idle`.
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
