"""Attempts as jobs on leaf switches (ToR).

Source: docs/reference/switches.md, "Shared leaf states" and "Rebuilding leaf states".
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from berth.core.state.ledger import Holding, PodShare, pods_of
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.placement import Placement


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
    job = _job(holding.placement, pods, ranks, phase=phase, is_part=holding.foreign)
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


def placed_job(placement: Placement) -> LeafJob:
    """Job on leaf switches of a new placement."""
    pods = pods_of(placement)
    return _job(placement, pods, [rank for rank, pod in enumerate(pods) if pod.mask], phase=JobPhase.DECIDED)


def moving_job(job: LeafJob, placement: Placement) -> LeafJob:
    """Job on leaf switches of an attempt whose pods get new places, before they have left the old ones.

    Args:
        job: The attempt as it is.
        placement: The new places.
    """
    new = placed_job(placement)
    states = (job.states or bytes(len(job.nodes))) + (new.states or bytes(len(new.nodes)))
    return msgspec.structs.replace(job, nodes=[*job.nodes, *new.nodes], states=states if any(states) else b"")


def _job(
    placement: Placement, pods: Sequence[PodShare], ranks: Iterable[int], *, phase: JobPhase, is_part: bool = False
) -> LeafJob:
    part = switch_of(placement)
    states = part.states if part is not None else b""
    chosen = list(ranks)
    return LeafJob(
        tor_affinity=part.tor_affinity if part is not None else "",
        pods=part.pods if part is not None else 0,
        nodes=[pods[rank].node for rank in chosen],
        states=bytes(states[rank] for rank in chosen) if any(states) else b"",
        has_chips=any(pod.mask for pod in pods),
        phase=phase,
        is_part=is_part,
    )


def _stage(holding: Holding, seen: PodsSeen | None) -> JobPhase:
    """Progress of the pods of an attempt in the cluster."""
    running = seen.phase.count(PodPhase.RUNNING) if seen is not None else 0
    if not running:
        return JobPhase.DECIDED
    return JobPhase.RUNNING if running >= holding.placement.pods() - len(holding.gone) else JobPhase.PARTLY
