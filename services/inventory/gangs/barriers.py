"""Why nothing may be requested for a gang yet, whatever pods it has: each as a sentence, empty when nothing stands against."""

from typing import Final

from berth.formats.kubernetes.objects import PodGroup
from berth.formats.kubernetes.owners import OwnerKey
from berth.formats.kubernetes.workloads import GangKey
from berth.services.inventory.gangs.requests import unix_ms

NOT_ADMITTED: Final = frozenset({"", "Pending"})
"""Phases of a PodGroup that wait to be let in."""
TAKEN_BACK: Final = "its PodGroup is Pending again"
"""Reason of a cancelling that nobody asked for: its pods are requested anew once their group is let in."""
_JUDGED_MS: Final = 5_000
_MUST_BE_READ: Final = frozenset({"ReplicaSet", "StatefulSet", "Job"})


def barrier_of_group(key: GangKey, group: PodGroup | None) -> str:
    """Why a gang's Volcano PodGroup keeps its pods back."""
    if key.kind != "podgroup":
        return ""
    if group is None:
        return f"PodGroup {key.name} is not there"
    if group.status.phase not in NOT_ADMITTED:
        return ""
    told = (item.message for item in group.status.conditions or () if item.type == "Unschedulable")
    return f"PodGroup is Pending: {next((text for text in told if text), 'not admitted yet')}"


def judged_by_ms(group: PodGroup | None, now_ms: int) -> int:
    """Until when nothing need be said of a new PodGroup's pods: it is let in, or told why not, in a moment; 0 for now."""
    if group is None or group.status.phase not in NOT_ADMITTED:
        return 0
    if any(item.type == "Unschedulable" for item in group.status.conditions or ()):
        return 0
    made_ms = unix_ms(group.metadata.creation_timestamp)
    return made_ms + _JUDGED_MS if made_ms <= now_ms < made_ms + _JUDGED_MS else 0


def taken_back(group: PodGroup | None) -> str:
    """Why the requests of a PodGroup that wait are taken back."""
    if group is None or group.status.phase not in NOT_ADMITTED:
        return ""
    return TAKEN_BACK


def unreadable(look: OwnerKey, group: PodGroup | None) -> str:
    """Why an owner that could not be read holds its gang: nothing else tells how large it is."""
    minimum = group.spec.min_member if group is not None else None
    if look.kind in _MUST_BE_READ:
        is_known = (minimum or 0) > 1
    else:
        is_known = group is not None or look.kind not in {"VolcanoJob", "AscendJob"}
    return "" if is_known else f"{look.kind} {look.name} is not there, or cannot be read"
