"""Backup pods of a hot switch: each is made beside the pod of a rank, and takes the rank over once that is gone.

Such a pod is no task of its own: it states the rank of the other one, which it names as its source. It keeps being
known by its uid when its marks are removed.

Source: docs/reference/faults.md, "Hot switch".
"""

from berth.formats.ascend.pod_annotations import BACKUP, BACKUP_SOURCE, POD_TYPE
from berth.schemas.fault_facts import BackupPod, ReplacementsSeen
from berth.services.inventory.gangs.model import RUNS, Gang, Member, Part


def is_backup(member: Member) -> bool:
    """Whether a pod says that it is a backup pod."""
    return member.pod.metadata.annotation(POD_TYPE) == BACKUP


def assign_backups(gang: Gang) -> list[tuple[Member, str]]:
    """Note the backup pods of a gang, and give them the ranks of pods that are gone or have ended.

    Args:
        gang: The gang; its slots are up to date.

    Returns:
        Backup pods that wait because their source has no place, with the reasons.
    """
    known: set[str] = set()
    for part in gang.parts.values():
        part.backups = {
            rank: uid for rank, uid in part.backups.items() if _exists(gang, uid) and rank < len(part.slots)
        }
        known.update(part.backups.values())
    waiting: list[tuple[Member, str]] = []
    for member in sorted(gang.members.values(), key=lambda one: one.uid):
        if not is_backup(member) or member.uid in known or _has_ended(member):
            continue
        source = member.pod.metadata.annotation(BACKUP_SOURCE)
        found = _rank_of(gang, member, source)
        if found is not None:
            found[0].backups[found[1]] = member.uid
        elif member.waits and any(one.name == source and one.is_live for one in gang.members.values()):
            waiting.append((member, f"pod {member.name} is the backup of pod {source}, which has no place of its own"))
    for part in gang.parts.values():
        for rank, uid in part.backups.items():
            slot, member = part.slots[rank], gang.members[uid]
            if slot.uid != uid and member.is_live and not _exists(gang, slot.uid):
                slot.take(member)
    return waiting


def restore_backups(part: Part, seen: ReplacementsSeen) -> None:
    """Note the backup pods that an earlier run published: their marks may have been removed since."""
    part.backups = {one.rank: one.uid for one in seen.backups if one.rank < len(part.slots)}


def backups_of(gang: Gang, part: Part, *, beside: bool = False) -> list[BackupPod]:
    """Backup pods of a request, ascending by rank.

    Args:
        gang: The gang.
        part: The request.
        beside: Without those that have taken their rank, and without saying whether they are bound.
    """
    return [
        BackupPod(rank, gang.members[uid].name, uid, is_bound=not beside and gang.members[uid].is_bound)
        for rank, uid in sorted(part.backups.items())
        if uid in gang.members and not (beside and part.slots[rank].uid == uid)
    ]


def _rank_of(gang: Gang, member: Member, source: str) -> tuple[Part, int] | None:
    """Request and rank of the pod beside which a backup pod was made; None if it has no place."""
    for _, part in sorted(gang.parts.items()):
        if part.phase not in RUNS:
            continue
        for rank, slot in enumerate(part.slots):
            is_source = slot.pod == source and slot.uid != member.uid
            if is_source and slot.task == member.place.task and rank not in part.backups:
                return part, rank
    return None


def _exists(gang: Gang, uid: str) -> bool:
    """Whether a pod is there and has not ended."""
    member = gang.members.get(uid)
    return member is not None and not _has_ended(member)


def _has_ended(member: Member) -> bool:
    return member.pod.status.phase in {"Succeeded", "Failed"}
