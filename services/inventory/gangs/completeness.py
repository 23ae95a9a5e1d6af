"""Completeness of a gang: whether the pods are there that its controller, or its user, creates. Pure.

A gang that is known to be complete waits for nothing. Any other waits a little after a change, because the next pod may
be on its way: what its pods become depends on which of them are there.

See decision act-at-once.
"""

from enum import Enum

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.minimum import minimum
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.services.inventory.gangs.lookups import LookupResult
from berth.services.inventory.gangs.model import Gang


class Completeness(Enum):
    """What is known of the pods of a gang."""

    COMPLETE = "complete"
    """Nothing more is to come, or what is to come is not known before the owner is read."""
    OPEN = "open"
    """More pods may come."""
    SHORT = "short"
    """More pods must come, or some must go, before those that stay can be requested."""
    LARGE = "large"
    """The owner was made smaller after all of its pods came, and its controller is about to delete some."""


def completeness(gang: Gang, group: PodGroup | None, look: OwnerKey | None, lookup: LookupResult) -> Completeness:
    """What is known of the pods of a gang.

    Args:
        gang: The gang.
        group: Its Volcano PodGroup, if there is one.
        look: Owner that has the size of the gang; None when pods or PodGroup have it.
        lookup: Known state of that owner.
    """
    is_over = gang.is_past or gang.is_succeeded or bool(gang.ended)
    has_lost_group = gang.key.kind == "podgroup" and group is None
    if has_lost_group and gang.is_empty and not is_over:
        return Completeness.OPEN  # its controller may restart it
    if is_over or gang.key.kind == "pod" or not gang.members or (look is not None and not lookup.is_known):
        return Completeness.COMPLETE
    if has_lost_group:
        return Completeness.OPEN
    members = gang.members.values()
    first = next(iter(members))
    least = minimum(
        gang.key,
        group=group,
        facts=lookup.facts,
        pod=first.pod,
        size=first.place.size,
        has_chips=any(member.ask.chips for member in members),
    )
    live = len(members)
    if live >= max(least.size or 0, least.count):  # else it is not worth while to count
        live = sum(1 for member in members if member.is_live)
        if live == (_declared(gang, group, least.count) if least.size is None else least.size):
            return Completeness.COMPLETE
        if least.size is not None and live > least.size:
            is_sure = all(lookup.read > gang.arrivals.get(uid, lookup.read) for uid in gang.members)
            return Completeness.LARGE if is_sure else Completeness.SHORT  # else it may be larger by now
    return Completeness.SHORT if live < least.count and not gang.parts else Completeness.OPEN


def _declared(gang: Gang, group: PodGroup | None, count: int) -> int:
    """Pods of a gang without a controller, as its PodGroup declares them; -1 when no number is declared.

    Pods beyond the minimum are like pods that come later: no object says that there will be any. Those of a PodGroup of
    Kubernetes belong to its first request if they are there, so it waits for them.
    """
    has_controller = group is not None and group.metadata.controller is not None
    if has_controller or any(member.place.owner.kind for member in gang.members.values()):
        return -1
    is_declared = group is not None and group.spec.min_member is not None
    kind = kinds().of_word(gang.key.kind)
    is_stated = kind is not None and not kind.controls_pods and not kind.as_kube_scheduler
    return count if is_declared or is_stated else -1
