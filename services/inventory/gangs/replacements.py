"""Ranks that recover from a fault: which new pod of the controller takes a rank, and what is published about that.

A rank recovers while the newest status of its job lists it as open. Then it may be taken though its former pod was
bound: the controller made the new pod for it.

See decision recovery-execution.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from berth.formats.ascend.pod_annotations import RANK_INDEX
from berth.schemas.columns import pack
from berth.schemas.facts import is_repeat
from berth.schemas.fault_facts import ReplacementsSeen
from berth.services.inventory.gangs.backups import backups_of, is_backup, restore_backups
from berth.services.inventory.gangs.model import NO_INDEX, Gang, Member, Part, Slot

_BOUND: Final = frozenset({"bound", "running"})
_UNBOUND: Final = frozenset({"", "waiting", "placed"})
TAKEN_BACK: Final = "its pod replaces another one of the gang"
"""Reason of a cancellation: the request was made before it was known that the rank of the pod recovers."""


def replace_ranks(gang: Gang, free: Sequence[Member]) -> tuple[list[Member], list[tuple[Member, str]], list[Part]]:
    """Give ranks that recover to new pods.

    A pod with the name of the former one comes first, then one from the same place in the gang. A pod whose own request
    waits, made before it was known that the rank recovers, is taken out of it; likewise, but only that, where the whole
    job starts anew. One that is bound already is deleted with its request if it has the name of the former pod, and its
    controller makes another.

    Args:
        gang: The gang; its slots are up to date.
        free: Live pods without a node and without a rank, in order.

    Returns:
        Pods that stay free, those that wait because they state the rank of a pod that is there, with the reasons, and
        requests to withdraw.
    """
    vacant = _vacancies(gang)
    restarting = _restarting(gang)
    if not vacant and not restarting:
        return list(free), [], []
    own, early = _requested_alone(gang), _bound_alone(gang, vacant)
    alone = [member for _, member in (*own, *early)]
    candidates = {member.uid: member for member in (*free, *alone) if member.waits}
    taken: set[str] = set()
    for by_name in (True, False):
        for part, slot in list(vacant):
            found = next(
                (member for member in candidates.values() if _may_replace(part, slot, member, by_name=by_name)), None
            )
            if found is not None:
                del candidates[found.uid]
                taken.add(found.uid)
                vacant.remove((part, slot))
                slot.take(found)
    held = {
        member.uid: (member, why) for member in free if member.uid in candidates and (why := _misplaced(gang, member))
    }
    left = [member for member in free if member.uid not in taken and member.uid not in held]
    again = [
        member
        for _, member in own
        if member.uid not in taken and any(_may_replace(part, slot, member, by_name=False) for part, slot in restarting)
    ]
    withdrawn = taken.union(member.uid for member in again)
    outdated = [part for part, member in own if member.uid in withdrawn] + [part for part, _ in early]
    return [*left, *again], list(held.values()), outdated


def _replacements_of(gang: Gang, part: Part, before: ReplacementsSeen | None, *, at_ms: int) -> ReplacementsSeen:
    """Ranks of a request whose new pods wait for a place, and its backup pods; without any if there are none.

    Args:
        gang: The gang of the request.
        part: The request.
        before: The published fact, which says since when those of them wait that it has.
        at_ms: The time.
    """
    ranks = [
        rank
        for rank in (sorted(part.open_ranks) if part.phase != "ending" else ())
        if rank < len(part.slots) and part.slots[rank].is_live and not part.slots[rank].was_bound
    ]
    known = before.waiting_since() if before is not None and before.uid == part.uid else {}
    since_ms = pack([known.get(rank, at_ms) for rank in ranks], 8)
    backups = backups_of(gang, part)
    return ReplacementsSeen(part.gang.namespace, part.name, part.uid, pack(ranks, 4), at_ms, since_ms, backups)


def changed_replacements(gang: Gang, now_ms: int) -> list[ReplacementsSeen]:
    """Facts about new pods that wait for a place, and backup pods, as far as they differ from the published ones."""
    facts: list[ReplacementsSeen] = []
    wanted = {
        name: _replacements_of(gang, part, gang.replacements.get(name), at_ms=now_ms)
        for name, part in gang.parts.items()
    }
    for name in sorted({*wanted, *gang.replacements}):
        before = gang.replacements.get(name)
        uid = before.uid if before is not None else ""
        now = wanted.get(name) or ReplacementsSeen(gang.key.namespace, name, uid, at_ms=now_ms)
        has_pods = bool(now.ranks or now.backups)
        if is_repeat(before, now) or (before is None and not has_pods):
            continue
        facts.append(now)
        if has_pods:
            gang.replacements[name] = now
        else:
            del gang.replacements[name]
    return facts


def attach(
    restored: Iterable[ReplacementsSeen], find: Callable[[str, str], Gang | None], *, at_ms: int
) -> list[ReplacementsSeen]:
    """Assign facts of an earlier run to their gangs; returns tombstones for those without one.

    Args:
        restored: The facts.
        find: Gang that uses a name, by namespace and name of the request.
        at_ms: The time.
    """
    lost: list[ReplacementsSeen] = []
    for seen in restored:
        has_pods = bool(seen.ranks or seen.backups)
        gang = find(seen.namespace, seen.job) if has_pods else None
        if gang is not None:
            gang.replacements[seen.job] = seen
            if (part := gang.parts.get(seen.job)) is not None:
                restore_backups(part, seen)
        elif has_pods:
            lost.append(ReplacementsSeen(seen.namespace, seen.job, seen.uid, at_ms=at_ms))
    return lost


def _vacancies(gang: Gang) -> list[tuple[Part, Slot]]:
    return [
        (part, part.slots[rank])
        for _, part in sorted(gang.parts.items())
        for rank in sorted(part.open_ranks)
        if rank < len(part.slots) and not part.slots[rank].is_live and rank not in part.backups
    ]


def _restarting(gang: Gang) -> list[tuple[Part, Slot]]:
    """Ranks without a pod of jobs that start anew."""
    parts = [part for _, part in sorted(gang.parts.items()) if part.restarts]
    return [(part, slot) for part in parts for slot in part.slots if not slot.is_live]


def _requested_alone(gang: Gang) -> list[tuple[Part, Member]]:
    """Requests of one pod each whose pods are not bound, and the pods."""
    alone = [
        (part, gang.members.get(part.slots[0].uid))
        for _, part in sorted(gang.parts.items())
        if len(part.slots) == 1 and not part.is_first and part.state == "open" and part.phase in _UNBOUND
    ]
    return [(part, member) for part, member in alone if member is not None and member.waits]


def _bound_alone(gang: Gang, vacant: Sequence[tuple[Part, Slot]]) -> list[tuple[Part, Member]]:
    """Requests of one pod each that is bound, with the name and place of the former pod of a rank that recovers."""
    alone = [
        (part, gang.members.get(part.slots[0].uid))
        for _, part in sorted(gang.parts.items())
        if len(part.slots) == 1 and not part.is_first and part.state == "open" and part.phase in _BOUND
    ]
    return [
        (part, member)
        for part, member in alone
        if member is not None and any(_may_replace(other, slot, member, by_name=True) for other, slot in vacant)
    ]


def _may_replace(part: Part, slot: Slot, member: Member, *, by_name: bool) -> bool:
    """Whether a pod may take a rank; a rank that it states itself must be this one."""
    place = member.place
    if slot.task != place.task or (slot.ask is not None and slot.ask != member.ask):
        return False
    is_known = slot.index != NO_INDEX and (slot.source is not None or part.is_first)
    if member.has_rank and is_known and place.rank != slot.index:
        return False
    if by_name:
        return slot.pod == member.name
    if slot.source is not None:
        return slot.source in {place.source, place.own_source}
    return not place.source or place.rank is None or place.rank == slot.index or not is_known


def _misplaced(gang: Gang, member: Member) -> str:
    """Why a pod takes no rank though some wait for a pod: it states that of another pod; empty when it does not."""
    stated = member.place.rank
    if not member.has_rank or not member.ask.chips or stated is None or is_backup(member):
        return ""
    slots = [slot for part in gang.parts.values() for slot in part.slots if slot.task == member.place.task]
    other = next((slot for slot in slots if slot.is_live and slot.index == stated), None)
    if other is None:
        return ""
    wanted = ", ".join(str(slot.index) for _, slot in _vacancies(gang) if slot.index != NO_INDEX)
    return f"pod {member.name} has {RANK_INDEX} {stated}, the rank of pod {other.pod}: expected {wanted}"
