"""Blocks as they were last placed, and what became of their pods.

Source: docs/reference/superpods.md, "After a fault of blocks" and "Where Berth decides otherwise".
"""

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from berth.core.superpods.model import BlockDemand, Variant

WHOLE_JOB_SESSIONS: Final = 12
"""Tries after which pods are no longer replaced one by one (850)."""
NOWHERE: Final = -1
"""Row of a position whose node is not known."""


class PodFate(IntEnum):
    """What becomes of a pod where it was placed."""

    RUNS = 0
    """It runs and stays."""
    RETURNS = 1
    """It is to be placed again although its node did not fail."""
    LOST = 2
    """It is to be placed again because its node or its chips failed."""


class HeldBlock(NamedTuple):
    """A block where it was last placed.

    Attributes:
        block_id: Its id.
        superpod: Physical SuperPoD of its first node.
        ranks: Rank of each position.
        rows: Node of each position; :data:`NOWHERE` where it is not known.
        fates: What becomes of the pod of each position.
    """

    block_id: int
    superpod: str
    ranks: Sequence[int]
    rows: Sequence[int]
    fates: Sequence[PodFate]

    @property
    def is_damaged(self) -> bool:
        """A node of it failed."""
        return PodFate.LOST in self.fates

    @property
    def runs(self) -> int:
        """Pods of it that run."""
        return self.fates.count(PodFate.RUNS)


class DisruptedGang(NamedTuple):
    """A gang after a fault.

    Attributes:
        held: Its blocks, by id.
        is_pod_level: Pods are replaced one by one (:func:`is_pod_level`).
        failed_nodes: Nodes that ever failed for this gang; they are taken last.
        waited_ms: Time since its first try.
    """

    held: Sequence[HeldBlock]
    is_pod_level: bool
    failed_nodes: Collection[int] = frozenset()
    waited_ms: int = 0

    @property
    def runs(self) -> int:
        """Pods of the gang that run."""
        return sum(held.runs for held in self.held)


class PodRecord(NamedTuple):
    """What is known of one pod.

    Attributes:
        rank: Its rank.
        block_id: Block that its annotation names.
        superpod: SuperPoD that its annotation names.
        row: Its node.
        fate: What becomes of it.
    """

    rank: int
    block_id: int
    superpod: str
    row: int
    fate: PodFate


def is_pod_level(
    variant: Variant, pending: int, replicas: int, *, is_rescheduling: bool, is_recovering: bool, sessions: int
) -> bool:
    """Whether pods are replaced one by one.

    Source: docs/reference/superpods.md, "Places after a fault".

    Args:
        variant: Which handler: A3 asks whether some pods run, 850 for what the job's labels say.
        pending: Pods that are to be placed.
        replicas: Pods of the whole gang.
        is_rescheduling: Label ``pod-rescheduling`` is ``on``.
        is_recovering: Label ``process-recover-enable`` is ``on``.
        sessions: Tries so far.
    """
    if variant == "850":
        return is_recovering or (is_rescheduling and sessions < WHOLE_JOB_SESSIONS)
    return pending != replicas


def restored(words: Sequence[PodRecord], demand: BlockDemand, *, parity: bool = False) -> list[HeldBlock]:
    """Blocks as the annotations of their pods tell of them.

    A rank of which nothing is known returns to block ``rank div B`` where that has fewer than B nodes; else it is open. The
    reference keeps the order in which it found the pods, whatever their ranks (decision D-9).

    Args:
        words: What is known of pods, one a rank, in the order in which they were found.
        demand: What the gang asks.
        parity: The reference's way.
    """
    blocks: dict[int, list[PodRecord]] = {}
    for word in words if parity else sorted(words):
        blocks.setdefault(word.block_id, []).append(word)
    if not parity:
        _return_unknown(blocks, demand)
    return [
        HeldBlock(
            block_id,
            block[0].superpod,
            tuple(word.rank for word in block),
            tuple(word.row for word in block),
            tuple(word.fate for word in block),
        )
        for block_id, block in sorted(blocks.items())
    ]


def _return_unknown(blocks: dict[int, list[PodRecord]], demand: BlockDemand) -> None:
    """Give the ranks of which nothing is known to the blocks that lack them."""
    known = {word.rank for block in blocks.values() for word in block}
    for rank in range(demand.replicas):
        block = blocks.get(rank // demand.block, [])
        if rank not in known and 0 < len(block) < demand.block:
            block.append(PodRecord(rank, block[0].block_id, block[0].superpod, NOWHERE, PodFate.LOST))
            block.sort()
