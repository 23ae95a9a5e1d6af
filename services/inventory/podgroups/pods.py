"""State of a PodGroup's pods, from the gangs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.membership import natural
from berth.schemas.facts import MembersSeen
from berth.services.inventory.gangs.model import Gang, Member
from berth.services.inventory.podgroups.status import (
    CPU,
    MEMORY,
    NO_PODS,
    NO_REASON,
    VALIDATE_FAILED,
    PodCounts,
    Why,
    reason_of,
)


@dataclass(frozen=True, slots=True)
class GroupPods:
    """State of a PodGroup's pods.

    Attributes:
        is_ours: Whether Berth places its pods; None while that is being looked up.
        counts: Its pods.
        priority: Highest priority of its pods.
        is_placed: A request for its pods has chips, or had them.
        is_requested: A request for its pods waits in the queue, or has been decided.
        why: Why its pods wait.
        again_ms: When its owner is to be read again, because it could not be read; None for never.
        replicas: Pods that its owner has while a rollout is going on; None without one.
        held: Resources that its pods on nodes have, as in :class:`MinResources`: it does not need them once more.
        succeeded: Pods (uid) that have succeeded.
        may_displace: Its class does not forbid that others end for it.
        request: Name of the first request for its pods; empty without one.
        asked: Resources that the first pods of its minimum request, as far as they are there, as in
            :class:`MinResources`.
    """

    is_ours: bool | None
    counts: PodCounts = NO_PODS
    priority: int = 0
    is_placed: bool = False
    is_requested: bool = False
    why: Why = NO_REASON
    again_ms: int | None = None
    replicas: int | None = None
    held: Mapping[str, int] = field(default_factory=dict)
    succeeded: frozenset[str] = frozenset()
    may_displace: bool = True
    request: str = ""
    asked: Mapping[str, int] = field(default_factory=dict)


def group_pods(
    gang: Gang,
    members: Sequence[Member],
    published_members: Mapping[tuple[str, str], MembersSeen],
    *,
    least: int,
    priority: int,
    may_displace: bool,
    facts: OwnerFacts | None,
) -> GroupPods:
    """State of the pods of a PodGroup that Berth places.

    Args:
        gang: Of the PodGroup.
        members: Its pods; some may be in other gangs, because they were bound before they had it.
        published_members: What was published last about the pods of each name.
        least: How many pods it needs.
        priority: Highest priority of its pods.
        may_displace: Its class does not forbid that others end for it.
        facts: Facts of its owner, if the owner was read.
    """
    phases = {"Running": 0, "Succeeded": 0, "Failed": 0}
    scheduled = unscheduled = 0
    held: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    live = sorted((member for member in members if member.is_live), key=lambda one: natural(one.name))
    for member in live[:least]:
        asked.update(_amounts_of(member))
    for member in members:
        phase = member.pod.status.phase
        if phase in phases:
            phases[phase] += 1
        if member.is_live:
            scheduled += member.is_bound
            unscheduled += not member.is_bound
            if member.is_bound:
                held.update(_amounts_of(member))
    counts = PodCounts(
        total=len(members),
        running=phases["Running"],
        succeeded=phases["Succeeded"],
        failed=phases["Failed"],
        scheduled=scheduled + phases["Succeeded"],
        unscheduled=unscheduled,
    )
    return GroupPods(
        is_ours=True,
        counts=counts,
        priority=priority,
        is_placed=any(member.uid not in gang.members for member in members)
        or any(part.is_placed for part in gang.parts.values()),
        is_requested=any(part.phase for part in gang.parts.values()),
        why=_why(gang, published_members) if unscheduled else NO_REASON,
        replicas=facts.replicas if facts is not None and facts.rollout else None,
        held=held,
        succeeded=frozenset(member.uid for member in members if member.pod.status.phase == "Succeeded"),
        may_displace=may_displace,
        asked={name: amount for name, amount in asked.items() if amount},
        request=min((name for name, part in gang.parts.items() if part.phase), default=""),
    )


def _amounts_of(member: Member) -> dict[str, int]:
    ask = member.ask
    return {ask.resource: ask.chips, CPU: ask.cpu_milli, MEMORY: ask.memory_mib}


def _why(gang: Gang, published_members: Mapping[tuple[str, str], MembersSeen]) -> Why:
    """Why pods wait: the reason of the first request, otherwise the reason why the first pods are held."""
    for name in sorted(gang.parts):
        part = gang.parts[name]
        if part.sentence and (part.phase in {"waiting", "rejected"} or (part.state == "closed" and not part.hold)):
            return Why(reason_of(part.code), part.sentence)
    for name in sorted(gang.published_names):
        seen = published_members.get((gang.key.namespace, name))
        if seen is not None and seen.hold:
            return Why(VALIDATE_FAILED, seen.hold)
    return NO_REASON
