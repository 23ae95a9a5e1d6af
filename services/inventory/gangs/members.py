"""Facts about the pods that take the ranks of a request."""

from collections.abc import Sequence
from dataclasses import dataclass

from berth.schemas.columns import pack
from berth.schemas.facts import MembersSeen, Owner
from berth.services.inventory.gangs.backups import backups_of
from berth.services.inventory.gangs.model import Gang, Member, Part


@dataclass(frozen=True, slots=True)
class GangOwner:
    """Objects to which a gang belongs.

    Attributes:
        controller: Its controller; empty fields without one.
        podgroup: Name of its Volcano PodGroup; empty without one.
        podgroup_uid: Uid of the PodGroup.
    """

    controller: Owner
    podgroup: str
    podgroup_uid: str


def members_of(gang: Gang, part: Part, owner: GangOwner, *, at_ms: int) -> MembersSeen:
    """Pods of a request. A bound pod keeps its rank, even deleted, until the request is over or another takes it."""
    rows = [
        (rank, slot)
        for rank, slot in enumerate(part.slots)
        if slot.uid and (slot.is_live or slot.was_bound or rank in part.open_ranks)
    ]
    return MembersSeen(
        namespace=part.gang.namespace,
        job=part.name,
        uid=part.uid,
        rank=pack((rank for rank, _ in rows), 4),
        pods=[slot.pod for _, slot in rows],
        pod_uids=[slot.uid for _, slot in rows],
        rank_index=["" if slot.needs_no_rank else str(slot.index) for _, slot in rows],
        hold=part.hold,
        owner=owner.controller,
        podgroup=owner.podgroup,
        distributed=part.gang_pods > 1,
        writes_real=any(slot.by_operator for _, slot in rows),
        at_ms=at_ms,
        stale=[rank for rank, slot in rows if slot.is_stale],
        podgroup_uid=owner.podgroup_uid,
        backups=backups_of(gang, part, beside=True),
    )


def held(
    namespace: str, job: str, members: Sequence[Member], hold: str, owner: GangOwner, *, at_ms: int
) -> MembersSeen:
    """Pods without a request, and the reason. A pod's rank is its place in the order of the gang."""
    return MembersSeen(
        namespace=namespace,
        job=job,
        uid="",
        rank=pack(range(len(members)), 4),
        pods=[member.name for member in members],
        pod_uids=[member.uid for member in members],
        rank_index=[""] * len(members),
        hold=hold,
        owner=owner.controller,
        podgroup=owner.podgroup,
        distributed=sum(1 for member in members if member.ask.chips) > 1,
        at_ms=at_ms,
        podgroup_uid=owner.podgroup_uid,
    )


def tombstone(namespace: str, job: str, uid: str, *, at_ms: int) -> MembersSeen:
    """Fact that a name has no pods any more."""
    return MembersSeen(namespace=namespace, job=job, uid=uid, at_ms=at_ms)


def owner_of(gang: Gang) -> GangOwner:
    """Owner of a gang: its PodGroup, and the controller of that, otherwise the controller of its pods."""
    controller = gang.group_owner or min(
        (member.place.owner for member in gang.members.values()),
        key=lambda it: (it.kind, it.name, it.uid),
        default=Owner(),
    )
    is_grouped = gang.key.kind == "podgroup"
    return GangOwner(controller, gang.key.name if is_grouped else "", gang.podgroup_uid if is_grouped else "")
