"""Blocks of inference: beside the siblings of a service, or beside the pods that a MindIE gang prefers.

Both give whole blocks one after the other, each to the best SuperPoD at that moment, and never split one; soft or hard
plays no part. Every tie goes to the SuperPoD that comes first.

Source: docs/reference/superpods.md, "Inference on SuperPoDs".
"""

import heapq
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from berth.core.superpods.model import (
    BlockPlan,
    Counts,
    Grant,
    Lack,
    NoBlocks,
    Phase,
    Rules,
    Variant,
    Want,
    Yard,
    closest,
)
from berth.core.superpods.planner import candidates, drawn, not_enough_nodes

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


class Taste(NamedTuple):
    """What a MindIE gang prefers.

    Attributes:
        idlest: SuperPoDs with more free nodes come first.
        liked: Of each SuperPoD, its nodes that are no candidates and carry pods that the first term of the gang's preferred
            pod affinity matches; None where the gang has no such term.
    """

    idlest: bool = False
    liked: Counts | None = None


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


def plan_service(yard: Yard, want: Want, hosts: Collection[str]) -> BlockPlan | NoBlocks:
    """Where each rank of a job of an inference service goes.

    Args:
        yard: SuperPoDs with the candidates of the gang.
        want: What it asks.
        hosts: SuperPoDs that another job of the service has pods in.
    """
    return _planned(yard, want, lambda ids, counts: service_grants(ids, counts, want, hosts))


def plan_mindie(yard: Yard, want: Want, rules: Rules, taste: Taste) -> BlockPlan | NoBlocks:
    """Where each rank of a MindIE gang goes.

    Args:
        yard: SuperPoDs with the candidates of the gang.
        want: What it asks.
        rules: How many nodes a SuperPoD keeps.
        taste: What the gang prefers.
    """
    return _planned(yard, want, lambda ids, counts: mindie_grants(ids, counts, want, rules, taste))


def service_grants(
    ids: Sequence[str], counts: Counts, want: Want, hosts: Collection[str]
) -> tuple[Grant, ...] | NoBlocks:
    """Blocks of an inference service: beside its siblings first, then where most nodes are free.

    A SuperPoD that was given a block counts as one with siblings from then on. The reserve plays no part.

    Source: docs/reference/superpods.md, "Inference services".

    Args:
        ids: SuperPoDs in their order.
        counts: Candidates of each.
        want: What the gang asks.
        hosts: SuperPoDs that another job of the service has pods in.
    """
    left: list[int] = counts.tolist()
    is_host = [name in hosts for name in ids]

    def key(pod: int) -> tuple[int, ...]:
        return (not is_host[pod], -left[pod])

    def taken(pod: int) -> None:
        is_host[pod] = True

    lack: Lack = "service"
    return _too_few(ids, counts, want, lack) or _dealt(left, want, "service", key, taken)


def mindie_grants(
    ids: Sequence[str], counts: Counts, want: Want, rules: Rules, taste: Taste
) -> tuple[Grant, ...] | NoBlocks:
    """Blocks of a MindIE gang: where the reserve can be kept first, then beside the pods it prefers, then by what is free.

    Source: docs/reference/superpods.md, "MindIE".

    Args:
        ids: SuperPoDs in their order.
        counts: Candidates of each.
        want: What the gang asks.
        rules: How many nodes a SuperPoD keeps.
        taste: What the gang prefers.
    """
    left: list[int] = counts.tolist()
    liked: list[int] = [0] * len(left) if taste.liked is None else taste.liked.tolist()
    least = want.block + rules.reserve
    sign = -1 if taste.idlest else 1

    def key(pod: int) -> tuple[int, ...]:
        return (left[pod] < least, -liked[pod], sign * left[pod])

    def taken(pod: int) -> None:
        if taste.liked is not None:
            liked[pod] += want.block

    lack: Lack = "blocks"
    return _too_few(ids, counts, want, lack) or _dealt(left, want, "affinity", key, taken)


def _planned(
    yard: Yard, want: Want, grants_of: Callable[[Sequence[str], Counts], tuple[Grant, ...] | NoBlocks]
) -> BlockPlan | NoBlocks:
    ground = candidates(yard, want)
    if len(ground.rows) < want.replicas:
        return not_enough_nodes(ground, want)
    grants = grants_of(ground.ids, ground.counts)
    return grants if isinstance(grants, NoBlocks) else drawn(ground, grants, want.replicas)


def _dealt(
    left: list[int],
    want: Want,
    phase: Phase,
    key: Callable[[int], tuple[int, ...]],
    taken: Callable[[int], None],
) -> tuple[Grant, ...]:
    """Blocks one after the other, each from the SuperPoD whose key is the least at that moment.

    A key depends on its own SuperPoD alone, so that only the one that gave has to be looked at anew.
    """
    heap = [(key(pod), pod) for pod, nodes in enumerate(left) if nodes >= want.block]
    heapq.heapify(heap)
    grants: list[Grant] = []
    for vid in range(want.blocks):
        _, pod = heap[0]
        grants.append(Grant(vid, pod, want.block, phase))
        left[pod] -= want.block
        taken(pod)
        if left[pod] >= want.block:
            heapq.heapreplace(heap, (key(pod), pod))
        else:
            heapq.heappop(heap)
    return tuple(grants)


def _too_few(ids: Sequence[str], counts: Counts, want: Want, lack: Lack) -> NoBlocks | None:
    """Why the gang cannot be placed: too few whole blocks."""
    blocks = int((counts // want.block).sum())
    if blocks >= want.blocks:
        return None
    return NoBlocks(
        lack=lack,
        block=want.block,
        blocks_need=want.blocks,
        blocks_have=blocks,
        nodes_need=want.replicas,
        nodes_have=int(counts.sum()),
        closest=closest(ids, counts, want.block),
    )
