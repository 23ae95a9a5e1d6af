"""Previous placement of blocks, and what happened to their pods.

Source: docs/reference/superpods.md, "After a fault of blocks" and "Where Berth decides otherwise".
"""

from collections import Counter
from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from berth.core.parity import OWN, Differences
from berth.core.topologies.blocks.demand import Variant
from berth.core.topologies.blocks.model import BlockDemand

WHOLE_JOB_SESSIONS: Final = 12
"""Number of attempts after which pods are no longer replaced one by one (850)."""
NOWHERE: Final = -1
"""Row of a position with an unknown node."""


class PodFate(IntEnum):
    """What happens to a pod at its previous place."""

    RUNS = 0
    """It runs and stays."""
    RETURNS = 1
    """It is placed again although its node did not fail."""
    LOST = 2
    """It is placed again because its node or its chips failed."""


class HeldBlock(NamedTuple):
    """A block at its previous place.

    Attributes:
        block_id: Id of the block.
        superpod: Physical SuperPoD of its nodes. A fault amid the move of a block to another SuperPoD leaves it in two;
            then the one that most of its healthy nodes are in, or of these the first node. In the reference always that
            of the first node.
        ranks: Rank of each position.
        rows: Row of the node of each position; :data:`NOWHERE` if it is not known.
        fates: What happens to the pod of each position.
    """

    block_id: int
    superpod: str
    ranks: Sequence[int]
    rows: Sequence[int]
    fates: Sequence[PodFate]

    @property
    def is_damaged(self) -> bool:
        """Whether one of its nodes failed."""
        return PodFate.LOST in self.fates

    @property
    def runs(self) -> int:
        """Number of its pods that run."""
        return self.fates.count(PodFate.RUNS)


class DisruptedGang(NamedTuple):
    """A gang after a fault.

    Attributes:
        held: Its blocks, sorted by id.
        is_pod_level: Pods are replaced one by one (:func:`is_pod_level`).
        failed_nodes: Rows of nodes that failed for this gang at some time; they are used last.
        waited_ms: Time since its first attempt, in milliseconds.
    """

    held: Sequence[HeldBlock]
    is_pod_level: bool
    failed_nodes: Collection[int] = frozenset()
    waited_ms: int = 0

    @property
    def runs(self) -> int:
        """Number of pods of the gang that run."""
        return sum(held.runs for held in self.held)


class PodRecord(NamedTuple):
    """Known facts of one pod.

    Attributes:
        rank: Its rank.
        block_id: Block in its annotation.
        superpod: SuperPoD in its annotation.
        row: Row of its node.
        fate: What happens to it.
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
        variant: Handler of the product: A3 checks whether some pods run, 850 reads the labels of the job.
        pending: Number of pods to place.
        replicas: Number of pods of the whole gang.
        is_rescheduling: Label ``pod-rescheduling`` is ``on``.
        is_recovering: Label ``process-recover-enable`` is ``on``.
        sessions: Number of attempts so far.
    """
    if variant == "850":
        return is_recovering or (is_rescheduling and sessions < WHOLE_JOB_SESSIONS)
    return pending != replicas


def restored(records: Sequence[PodRecord], demand: BlockDemand, differs: Differences = OWN) -> list[HeldBlock]:
    """Blocks restored from the annotations of their pods.

    A rank without a record returns to block ``rank div B`` if that has fewer than B nodes; otherwise it is open. The
    reference keeps the order in which it found the pods, whatever their ranks are (decision D-9).

    Args:
        records: Records of pods, one per rank, in the order in which they were found.
        demand: Request of the gang.
        differs: Which documented decisions go Berth's way.
    """
    blocks: dict[int, list[PodRecord]] = {}
    for record in sorted(records) if differs.order_by_rank else records:
        blocks.setdefault(record.block_id, []).append(record)
    if differs.order_by_rank:
        _return_unknown(blocks, demand)
    homes = {key: _home(block) if differs.running_pods_stay else block[0].superpod for key, block in blocks.items()}
    return [
        HeldBlock(
            block_id,
            homes[block_id],
            tuple(record.rank for record in block),
            tuple(record.row for record in block),
            tuple(_fate(record, homes[block_id], differs) for record in block),
        )
        for block_id, block in sorted(blocks.items())
    ]


def _home(block: Sequence[PodRecord]) -> str:
    """SuperPoD of a block: that of the most pods that did not fail, of these that of the first one."""
    found = Counter(record.superpod for record in block if record.fate is not PodFate.LOST)
    return max(found, key=found.__getitem__, default=block[0].superpod)  # the first one among equals


def _fate(record: PodRecord, home: str, differs: Differences) -> PodFate:
    """What happens to a pod: one that does not run returns to no SuperPoD but that of its block."""
    is_away = differs.running_pods_stay and record.superpod != home
    return PodFate.LOST if is_away and record.fate is PodFate.RETURNS else record.fate


def _return_unknown(blocks: dict[int, list[PodRecord]], demand: BlockDemand) -> None:
    """Assign ranks without a record to the blocks that lack them."""
    known = {record.rank for block in blocks.values() for record in block}
    for rank in range(demand.replicas):
        block = blocks.get(rank // demand.block, [])
        if rank not in known and 0 < len(block) < demand.block:
            block.append(PodRecord(rank, block[0].block_id, block[0].superpod, NOWHERE, PodFate.LOST))
            block.sort()
