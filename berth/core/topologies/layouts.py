"""What an explanation says of a topology, as data: groups of a placed gang, or the nearest ones of a waiting one."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.pod_shares import PodShare
from berth.core.text import pluralize, ranges
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import NodeReason, Refusal

Reasons = npt.NDArray[np.uint8]
_FITS: Final = int(NodeReason.FITS)
UnfitWords = Callable[[Mapping[str, int]], str]
"""Nodes that cannot take a pod, by reason, in words; empty without such nodes."""

_JOBS_SHOWN: Final = 4


class JobPods(NamedTuple):
    """Pods of a placed job.

    Attributes:
        job: ``namespace/name``.
        placement: Its placement.
        owned: What each rank owns.
        held: The same, and then the places that are reserved for ranks.
    """

    job: str
    placement: Placement
    owned: Sequence[PodShare]
    held: Sequence[PodShare]


class WaitingGang(NamedTuple):
    """A waiting gang, as a topology explains it.

    Attributes:
        gang: The gang.
        refusal: What is missing; None if it is larger than the cluster.
        shape: Shape of the pods that found no room.
        usable: Rows that can take any planned pod of the gang, shape (rows,).
        reasons: Reason of each row for the shape, shape (rows,).
        jobs: All placed jobs, by name.
    """

    gang: Gang
    refusal: Refusal | None
    shape: Shape
    usable: Fits
    reasons: Reasons
    jobs: Callable[[], Sequence[JobPods]]


class LeafUser(msgspec.Struct, frozen=True):
    """A job with pods below a leaf switch. Pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods below this leaf."""
    of: int
    """All its pods with chips; a job with more than ``pods`` is a cross job."""

    def words(self) -> str:
        """Name and pods."""
        return f"{self.job} ({pluralize(self.of, 'pod') if self.pods == self.of else f'{self.pods:,} of {self.of:,} pods'})"


class LeafPart(msgspec.Struct, frozen=True):
    """Ranks below one leaf of a plan."""

    leaf: str
    pods: int
    ranks: list[int]
    state: str
    """State of the leaf under the plan; only for policy 2.0 and plans with several leaves."""


class NearLeaf(msgspec.Struct, frozen=True):
    """A leaf switch with many usable nodes for a waiting gang."""

    leaf: str
    usable: int
    """Nodes that can take a pod."""
    places: int
    lacks: int
    """Nodes missing for the whole gang below this leaf; 0 when the gang waits for something else."""
    state: str
    unfit: dict[str, int]
    """Nodes that cannot take a pod, by reason."""
    jobs: list[LeafUser]


class LeafLayout(msgspec.Struct):
    """Leaf switches of a placed gang, or the demand of a waiting gang and the nearest leaves."""

    tor_affinity: str
    kind: str
    """``common``, ``foundation-model`` or ``padding``."""
    pods: int
    policy: str
    """``1.0``, ``2.0`` or ``single-layer``."""
    rule: str
    """Rule that chose the leaves; for a waiting gang, the rule that failed."""
    words: str = ""
    """The rule in words."""
    missed: str = ""
    """What was missing for the other rules when a common job is placed by the fallback."""
    leaves: list[LeafPart] = []
    nearest: list[NearLeaf] = []
    annotated: bool = False
    """The pods are annotated with the states."""
    warning: str = ""


class SuperpodUser(msgspec.Struct, frozen=True):
    """A job with pods in a SuperPoD; pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods in this SuperPoD."""
    of: int
    """All its pods with chips."""
    blocks: list[int]
    """Its blocks with nodes in this SuperPoD."""

    def words(self) -> str:
        """Name, pods and blocks."""
        pods = pluralize(self.of, "pod") if self.pods == self.of else f"{self.pods:,} of {self.of:,} pods"
        blocks = blocks_words(self.blocks)
        return f"{self.job} ({pods}, {blocks})" if blocks else f"{self.job} ({pods})"


class BlockSeat(msgspec.Struct, frozen=True):
    """Position of a block."""

    block: int
    superpod: str
    """Physical SuperPoD, or group of level 1."""
    pods: int
    ranks: list[int]
    phase: str
    """Phase of the selection that chose its nodes."""


class NearSuperpod(msgspec.Struct, frozen=True):
    """A SuperPoD, or a group of level 1, with many usable nodes for a waiting gang."""

    superpod: str
    usable: int
    """Nodes that can take a pod."""
    nodes: int
    """Known nodes."""
    blocks: int
    """Whole blocks that fit on the usable nodes."""
    lacks: int
    """Nodes missing for one more block; 0 when the gang waits for something else."""
    unfit: dict[str, int]
    """Nodes that cannot take a pod, by reason."""
    jobs: list[SuperpodUser]


class BlockLayout(msgspec.Struct):
    """Blocks of a placed gang, or the demand of a waiting gang and the nearest SuperPoDs."""

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``."""
    pods: int
    """Pods with chips."""
    size: int
    """Nodes of a block."""
    count: int
    """Requested blocks."""
    soft: bool
    """Blocks may be split."""
    reserve: int
    """Nodes that stay reserved in a SuperPoD while another one has room; 0 when reserves do not apply."""
    rack_size: int
    """Nodes that stay in one rack; 0 without racks."""
    levels: list[int]
    """Pods in one group of each level, level 1 first."""
    service: str
    """Inference service; empty without."""
    mindie: bool
    rule: str = ""
    """What is missing, while it waits."""
    missing: int = 0
    """Missing blocks, or groups for levels; 0 when something else is missing."""
    missing_size: int = 0
    """Nodes of each missing block."""
    seats: list[BlockSeat] = []
    words: dict[str, str] = {}
    """Description of each phase of ``seats``."""
    nearest: list[NearSuperpod] = []
    annotated: bool = False
    """Pods carry ``super-pod-id`` and ``super-pod-rank``."""


class Layouts(NamedTuple):
    """What an explanation says of topologies.

    Attributes:
        switch: Of leaf switches.
        blocks: Of blocks in SuperPoDs or groups of levels.
    """

    switch: LeafLayout | None = None
    blocks: BlockLayout | None = None


class Seat(NamedTuple):
    """Position of a planned rank.

    Attributes:
        leaf: Leaf switch; empty if it was not planned by leaf.
        superpod: SuperPoD, or group of level 1; empty if it was not planned by block.
        block: Its block; -1 for none.
    """

    leaf: str = ""
    superpod: str = ""
    block: int = -1


NO_LAYOUTS = Layouts()


def unfit(reasons: Reasons) -> dict[str, int]:
    """Nodes that do not fit, by reason, most frequent first, of the reasons of some nodes."""
    counts = Counter(reason for reason in reasons.tolist() if reason != _FITS)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {NodeReason(reason).name.lower(): nodes for reason, nodes in ordered}


def blocks_words(blocks: Iterable[int]) -> str:
    """Ids of blocks: ``block 3``, ``blocks 0-2``; empty without any."""
    ids = sorted(set(blocks))
    return f"block{'' if len(ids) == 1 else 's'} {ranges(ids)}" if ids else ""


def near_sentence(words: str, unfit: str, jobs: Sequence[str]) -> str:
    """A sentence about a group that comes close to a request.

    Args:
        words: What is usable of it.
        unfit: Why other nodes are not; empty without.
        jobs: Words of the jobs on it.
    """
    if unfit:
        words += f"; {unfit}"
    if jobs:
        more = len(jobs) - _JOBS_SHOWN
        words += f"; its jobs are {', '.join(jobs[:_JOBS_SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
    return f"{words}."
