"""Blocks of inference: beside the siblings of a service, or beside the pods that a MindIE gang prefers.

Both give whole blocks one after the other, each to the best SuperPoD at that moment, and never split one; soft or hard
plays no part. Every tie goes to the SuperPoD that comes first.

Source: docs/reference/superpods.md, "Inference on SuperPoDs".
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from berth.core.superpods.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    Counts,
    Lack,
    NoBlocks,
    Phase,
    Variant,
    closest,
)
from berth.core.superpods.planner import candidates, draw_nodes, not_enough_nodes

SERVICE_LABEL: Final = "inferserviceid"
"""Label of a job of an inference service: its value is the service's id."""
MINDIE_LABELS: Final = ("app", "jobID")
"""Labels that a MindIE job carries, both of them."""
SP_FIT: Final = "sp-fit"
"""Annotation of a MindIE job: which SuperPoDs it fits into."""
IDLEST: Final = "idlest"
"""Value of :data:`SP_FIT` with which SuperPoDs with more free nodes come first; with any other, those with fewer."""

Inference = Literal["service", "mindie"]
"""Which of the two ways."""


class AffinityPreference(NamedTuple):
    """What a MindIE gang prefers.

    Attributes:
        idlest: SuperPoDs with more free nodes come first.
        preferred: Of each SuperPoD, its nodes that are no candidates and carry pods that the first term of the gang's preferred
            pod affinity matches; None where the gang has no such term.
    """

    idlest: bool = False
    preferred: Counts | None = None


def inference_of(labels: Mapping[str, str], variant: Variant) -> Inference | None:
    """Which of the two ways a job goes; None for neither.

    Source: docs/reference/superpods.md, "Before the selection".

    Args:
        labels: Labels of the job.
        variant: Which handler; only A3 knows MindIE.
    """
    if labels.get(SERVICE_LABEL):
        return "service"
    return "mindie" if variant == "a3" and all(name in labels for name in MINDIE_LABELS) else None


def plan_service(pool: CandidatePool, demand: BlockDemand, hosts: Collection[str]) -> BlockPlan | NoBlocks:
    """Where each rank of a job of an inference service goes.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        demand: What it asks.
        hosts: SuperPoDs that another job of the service has pods in.
    """
    return _planned(pool, demand, lambda ids, counts: service_allocations(ids, counts, demand, hosts))


def plan_mindie(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, preference: AffinityPreference
) -> BlockPlan | NoBlocks:
    """Where each rank of a MindIE gang goes.

    Args:
        pool: SuperPoDs with the candidates of the gang.
        demand: What it asks.
        rules: How many nodes a SuperPoD keeps.
        preference: What the gang prefers.
    """
    return _planned(pool, demand, lambda ids, counts: mindie_allocations(ids, counts, demand, rules, preference))


def service_allocations(
    ids: Sequence[str], counts: Counts, demand: BlockDemand, hosts: Collection[str]
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Blocks of an inference service: beside its siblings first, then where most nodes are free.

    A SuperPoD that was given a block counts as one with siblings from then on. The reserve plays no part.

    Source: docs/reference/superpods.md, "Inference services".

    Args:
        ids: SuperPoDs in their order.
        counts: Candidates of each.
        demand: What the gang asks.
        hosts: SuperPoDs that another job of the service has pods in.
    """
    left: list[int] = counts.tolist()
    is_host = [name in hosts for name in ids]

    def key(pod: int) -> tuple[int, ...]:
        return (not is_host[pod], -left[pod])

    def taken(pod: int) -> None:
        is_host[pod] = True

    lack: Lack = "service"
    return _too_few(ids, counts, demand, lack) or _allocate_blocks(left, demand, "service", key, taken)


def mindie_allocations(
    ids: Sequence[str], counts: Counts, demand: BlockDemand, rules: BlockRules, preference: AffinityPreference
) -> tuple[BlockAllocation, ...] | NoBlocks:
    """Blocks of a MindIE gang: where the reserve can be kept first, then beside the pods it prefers, then by what is free.

    Source: docs/reference/superpods.md, "MindIE".

    Args:
        ids: SuperPoDs in their order.
        counts: Candidates of each.
        demand: What the gang asks.
        rules: How many nodes a SuperPoD keeps.
        preference: What the gang prefers.
    """
    left: list[int] = counts.tolist()
    preferred: list[int] = [0] * len(left) if preference.preferred is None else preference.preferred.tolist()
    least = demand.block + rules.reserve
    sign = -1 if preference.idlest else 1

    def key(pod: int) -> tuple[int, ...]:
        return (left[pod] < least, -preferred[pod], sign * left[pod])

    def taken(pod: int) -> None:
        if preference.preferred is not None:
            preferred[pod] += demand.block

    lack: Lack = "blocks"
    return _too_few(ids, counts, demand, lack) or _allocate_blocks(left, demand, "affinity", key, taken)


def _planned(
    pool: CandidatePool,
    demand: BlockDemand,
    allocations_of: Callable[[Sequence[str], Counts], tuple[BlockAllocation, ...] | NoBlocks],
) -> BlockPlan | NoBlocks:
    ground = candidates(pool, demand)
    if len(ground.rows) < demand.replicas:
        return not_enough_nodes(ground, demand)
    allocations = allocations_of(ground.ids, ground.counts)
    return allocations if isinstance(allocations, NoBlocks) else draw_nodes(ground, allocations, demand.replicas)


def _allocate_blocks(
    left: list[int],
    demand: BlockDemand,
    phase: Phase,
    key: Callable[[int], tuple[int, ...]],
    taken: Callable[[int], None],
) -> tuple[BlockAllocation, ...]:
    """Blocks one after the other, each from the SuperPoD whose key is the least at that moment.

    A key depends on its own SuperPoD alone, so that only the one that gave has to be looked at anew.
    """
    heap = [(key(pod), pod) for pod, nodes in enumerate(left) if nodes >= demand.block]
    heapq.heapify(heap)
    allocations: list[BlockAllocation] = []
    for block_id in range(demand.blocks):
        _, pod = heap[0]
        allocations.append(BlockAllocation(block_id, pod, demand.block, phase))
        left[pod] -= demand.block
        taken(pod)
        if left[pod] >= demand.block:
            heapq.heapreplace(heap, (key(pod), pod))
        else:
            heapq.heappop(heap)
    return tuple(allocations)


def _too_few(ids: Sequence[str], counts: Counts, demand: BlockDemand, lack: Lack) -> NoBlocks | None:
    """Why the gang cannot be placed: too few whole blocks."""
    blocks = int((counts // demand.block).sum())
    if blocks >= demand.blocks:
        return None
    return NoBlocks(
        lack=lack,
        block=demand.block,
        blocks_need=demand.blocks,
        blocks_have=blocks,
        nodes_need=demand.replicas,
        nodes_have=int(counts.sum()),
        closest=closest(ids, counts, demand.block),
    )
