"""Attempts as jobs on leaf switches (ToR).

Source: docs/reference/switches.md, "Shared leaf states" and "Rebuilding leaf states".
"""

from collections.abc import Mapping, Sequence

import msgspec

from berth.core.pod_shares import PodShare
from berth.core.state.ledger import Holding
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob
from berth.core.topologies.switches.occupancy.placed_jobs import job_of
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.facts import PodPhase, PodsSeen


def leaf_job(
    holding: Holding,
    pods: Sequence[PodShare],
    reserved: Mapping[int, PodShare],
    *,
    follows_pods: bool,
    seen: PodsSeen | None,
) -> LeafJob:
    """Job on leaf switches of a held attempt; it is also where places are reserved for it.

    Args:
        holding: The attempt.
        pods: Chips that each of its ranks owns now.
        reserved: Places that are reserved for ranks.
        follows_pods: Pods without chips count too, and the progress of the job decides what counts.
        seen: Its pods in the cluster; only read if ``follows_pods``.
    """
    gone = set(holding.gone) if follows_pods else set()
    ranks = [rank for rank, pod in enumerate(pods) if pod.mask or (follows_pods and rank not in gone)]
    phase = _stage(holding, seen) if follows_pods else JobPhase.DECIDED
    job = job_of(holding.placement, pods, ranks, phase=phase, is_part=holding.foreign)
    places = [rank for rank, pod in reserved.items() if pod.mask or follows_pods]
    if not places:
        return job
    states = job.states or bytes(len(job.nodes))
    states += bytes(_reserved_state(holding, rank) for rank in places)
    return msgspec.structs.replace(
        job,
        nodes=[*job.nodes, *(reserved[rank].node for rank in places)],
        states=states if any(states) else b"",
        has_chips=job.has_chips or any(pod.mask for pod in reserved.values()),
    )


def _reserved_state(holding: Holding, rank: int) -> int:
    """State of the leaf of a place that is reserved for a rank."""
    move = next(move for move in holding.moves if rank in move.placed)
    part = switch_of(move.placement) if move.placement is not None else None
    return part.states[move.ranks.index(rank)] if part is not None and part.states else 0


def _stage(holding: Holding, seen: PodsSeen | None) -> JobPhase:
    """Progress of the pods of an attempt in the cluster."""
    running = seen.phase.count(PodPhase.RUNNING) if seen is not None else 0
    if not running:
        return JobPhase.DECIDED
    return JobPhase.RUNNING if running >= holding.placement.pods() - len(holding.gone) else JobPhase.PARTLY
