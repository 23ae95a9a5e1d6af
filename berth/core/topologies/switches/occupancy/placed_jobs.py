"""Placements as jobs on leaf switches (ToR)."""

from collections.abc import Iterable, Sequence

import msgspec

from berth.core.pod_shares import PodShare, pods_of
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob
from berth.core.topologies.switches.placed import switch_of
from berth.schemas.placement import Placement


def placed_job(placement: Placement) -> LeafJob:
    """Job on leaf switches of a new placement."""
    pods = pods_of(placement)
    return job_of(placement, pods, [rank for rank, pod in enumerate(pods) if pod.mask], phase=JobPhase.DECIDED)


def moving_job(job: LeafJob, placement: Placement) -> LeafJob:
    """Job on leaf switches of an attempt whose pods get new places, before they have left the old ones.

    Args:
        job: The attempt as it is.
        placement: The new places.
    """
    new = placed_job(placement)
    states = (job.states or bytes(len(job.nodes))) + (new.states or bytes(len(new.nodes)))
    return msgspec.structs.replace(job, nodes=[*job.nodes, *new.nodes], states=states if any(states) else b"")


def job_of(
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
