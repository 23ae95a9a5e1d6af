"""Gangs of the simulated cluster: their pods, the resources of a placement, and the facts about them. Pure."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from berth.lab.nodesim.accounts import ResourceUse
from berth.schemas.columns import pack, pack_names, unpack, unpack_names
from berth.schemas.facts import PodPhase, PodsSeen
from berth.schemas.placement import Placement, Share
from berth.schemas.simulation import GangBound
from berth.schemas.units import UnixMs

LIVE: Final = frozenset({PodPhase.RUNNING, PodPhase.TERMINATING})
"""Phases in which a pod uses its resources."""
GangKey: TypeAlias = tuple[str, str]
"""(namespace, name)"""


@dataclass(frozen=True, slots=True)
class Restored:
    """Pods of an earlier run of the simulation, from the last published fact."""

    seen: PodsSeen
    run_ms: int
    share: Share | None = None


@dataclass(slots=True)
class SimPod:
    """A pod that has been bound."""

    rank: int
    use: ResourceUse
    phase: PodPhase = PodPhase.RUNNING


@dataclass(slots=True)
class SimGang:
    """Pods of an attempt, and the answer to its request.

    Attributes:
        due_ms: Time at which its pods finish, or are gone when terminating.
        live: Some of its pods use their resources.
        evicted: Its pods were evicted.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    size: int
    """Number of pods of the placement, of which fewer may run; 0 when unknown after a restart."""
    resource: str
    pods: list[SimPod]
    answer: GangBound
    due_ms: UnixMs = 0
    live: bool = True
    evicted: bool = False

    @property
    def key(self) -> GangKey:
        """Its name."""
        return (self.namespace, self.name)


def uses_of(placement: Placement) -> list[ResourceUse]:
    """Resources of each rank, in rank order."""
    runs = [run for run in placement.runs for _ in range(run.pods)]
    out: list[ResourceUse] = []
    for node, chips, run in zip(placement.names(), placement.chips_by_rank(), runs, strict=True):
        mask = sum(1 << chip for chip in set(chips))
        repeated = len(set(chips)) != len(chips)
        share = placement.share if chips else None
        out.append(ResourceUse(node, mask, placement.resource, run.cpu_milli, run.memory_mib, share, repeated=repeated))
    return out


def pods_fact(gang: SimGang, now_ms: UnixMs) -> PodsSeen:
    """Fact about a gang's pods.

    After an eviction, pods of an incomplete gang are not listed: none is left.
    """
    pods = [] if gang.evicted and not gang.live and len(gang.pods) != gang.size else gang.pods
    table = sorted({pod.use.node for pod in pods})
    index = {name: position for position, name in enumerate(table)}
    first = pods[0].use if pods else None
    return PodsSeen(
        namespace=gang.namespace,
        gang=gang.name,
        uid=gang.uid,
        attempt=gang.attempt,
        rank=pack([pod.rank for pod in pods], 4),
        nodes=pack_names(table),
        node_index=pack([index[pod.use.node] for pod in pods], 4),
        phase=pack([pod.phase for pod in pods], 1),
        chips=pack([pod.use.chips for pod in pods], 8),
        resource=gang.resource,
        cpu_milli=first.cpu_milli if first else 0,
        memory_mib=first.memory_mib if first else 0,
        at_ms=now_ms,
    )


def gang_of(event: Restored) -> SimGang:
    """Gang from the fact of an earlier run; its CPU and memory are those of its first pod."""
    seen = event.seen
    table = unpack_names(seen.nodes)
    nodes = [table[index] for index in unpack(seen.node_index, 4)]
    pods = [
        SimPod(
            rank,
            ResourceUse(
                node, chips, seen.resource if chips else "", seen.cpu_milli, seen.memory_mib, event.share if chips else None
            ),
            PodPhase(phase),
        )
        for rank, node, chips, phase in zip(
            unpack(seen.rank, 4), nodes, unpack(seen.chips, 8), unpack(seen.phase, 1), strict=True
        )
    ]  # fmt: skip
    return SimGang(
        namespace=seen.namespace,
        name=seen.gang,
        uid=seen.uid,
        attempt=seen.attempt,
        size=0,
        resource=seen.resource,
        pods=pods,
        answer=GangBound(len(pods)),
    )
