"""Placements and attempts as jobs on leaf switches (ToR).

Source: docs/reference/switches.md, "Shared leaf states" and "Rebuilding leaf states".
"""

from collections.abc import Iterable, Sequence

import msgspec

from berth.core.pod_shares import PodShare, pods_of
from berth.core.topologies.planning import HeldJob
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.placement import Placement


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
    """Job on leaf switches of some ranks of a placement, of which each pod has its place."""
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


def held_job(job: HeldJob, *, follows_pods: bool) -> LeafJob:
    """Job on leaf switches of a placed attempt; it is also where places are reserved for it.

    Args:
        job: The attempt.
        follows_pods: Pods without chips count too, and the progress of the job decides what counts.
    """
    gone = set(job.gone) if follows_pods else set()
    ranks = [rank for rank, pod in enumerate(job.pods) if pod.mask or (follows_pods and rank not in gone)]
    phase = _phase(job) if follows_pods else JobPhase.DECIDED
    found = _job(job.placement, job.pods, ranks, phase=phase, is_part=job.is_part)
    places = [place for place in job.reserved if place[0].mask or follows_pods]
    if not places:
        return found
    states = found.states or bytes(len(found.nodes))
    states += bytes(_state(placement, rank) for _, placement, rank in places)
    return msgspec.structs.replace(
        found,
        nodes=[*found.nodes, *(pod.node for pod, _, _ in places)],
        states=states if any(states) else b"",
        has_chips=found.has_chips or any(pod.mask for pod, _, _ in job.reserved),
    )


def _state(placement: Placement, rank: int) -> int:
    """State of the leaf of a rank."""
    part = switch_of(placement)
    return part.states[rank] if part is not None and part.states else 0


def _phase(job: HeldJob) -> JobPhase:
    """Progress of the pods of an attempt in the cluster."""
    if not job.running:
        return JobPhase.DECIDED
    return JobPhase.RUNNING if job.running >= job.placement.pods() - len(job.gone) else JobPhase.PARTLY
