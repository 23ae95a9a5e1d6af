"""Barriers: why no request is made for a gang, whatever its pods. Each is a sentence, empty without a barrier."""

from collections.abc import Iterable
from typing import Final

from berth.formats.gang_keys import GROUP_MIN_MEMBER
from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import GangKey, OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.products.model import MIN_AVAILABLE
from berth.schemas.units import unix_ms
from berth.services.inventory.gangs.model import Gang, Member

NOT_ADMITTED: Final = frozenset({"", "Pending"})
"""Phases of a PodGroup that waits for admission."""
PENDING_AGAIN: Final = "its PodGroup is Pending again"
"""Reason of a cancellation that no user requested: the pods are requested again after their PodGroup is admitted."""
_ADMISSION_GRACE_MS: Final = 5_000


def barrier_of_group(key: GangKey, group: PodGroup | None) -> str:
    """Why the Volcano PodGroup of a gang holds its pods back."""
    if key.kind != "podgroup":
        return ""
    if group is None:
        return f"PodGroup {key.name} does not exist"
    if group.status.phase not in NOT_ADMITTED:
        return ""
    messages = (item.message for item in group.status.conditions or () if item.type == "Unschedulable")
    return f"PodGroup is Pending: {next((text for text in messages if text), 'not admitted yet')}"


def admission_grace_ends_ms(group: PodGroup | None, now_ms: int) -> int:
    """End of the time in which a new PodGroup needs no message, because it is about to be judged; 0 when over."""
    if group is None or group.status.phase not in NOT_ADMITTED:
        return 0
    if any(item.type == "Unschedulable" for item in group.status.conditions or ()):
        return 0
    made_ms = unix_ms(group.metadata.creation_timestamp)
    return made_ms + _ADMISSION_GRACE_MS if made_ms <= now_ms < made_ms + _ADMISSION_GRACE_MS else 0


def pending_again(group: PodGroup | None) -> str:
    """Why the waiting requests of a PodGroup are withdrawn."""
    if group is None or group.status.phase not in NOT_ADMITTED:
        return ""
    return PENDING_AGAIN


def unreadable(look: OwnerKey, group: PodGroup | None, members: Iterable[Member]) -> str:
    """Why an owner that cannot be read holds its gang: no other source states the gang's size."""
    annotations = (member.pod.metadata.annotations or {} for member in members)
    if any(MIN_AVAILABLE in one or GROUP_MIN_MEMBER in one for one in annotations):
        return ""
    minimum = group.spec.min_member if group is not None else None
    kind = kinds().named[look.kind]
    is_told = (minimum or 0) > 1 if kind.starts_together is not None else group is not None
    is_known = is_told or kind.pods.names_gangs
    return "" if is_known else f"{look.kind} {look.name} does not exist or cannot be read"


def made_in_turn(gang: Gang, facts: OwnerFacts | None) -> str:
    """That the controller of the only pod of a group may make no other before this one is ready: the end of a sentence.

    Args:
        gang: The gang.
        facts: Of the object that was read for the gang: if it is this controller, the minimum follows from them.
    """
    live = [member for member in gang.members.values() if member.is_live]
    owner = live[0].pod.metadata.controller if len(live) == 1 and kinds().is_group(gang.key.kind) else None
    kind = kinds().named.get(owner.kind) if owner is not None else None  # also of another API
    if owner is None or kind is None or not kind.waits or (facts is not None and facts.kind == kind.name):
        return ""
    return f"; {kind.name} {owner.name} {kind.waits}"
