"""Ranks of pods: in their request, and in their whole gang.

In the gang a pod has the rank that it states. Without one, the rank follows from its index and the sizes of the tasks
before its own. Otherwise it is the lowest free rank.

Source: docs/reference/nodes-and-chips.md, "Pod annotations of chips"; docs/reference/kubernetes.md,
"Volcano PodGroups".
"""

from collections.abc import Sequence

from berth.formats.kubernetes.owner_facts import OwnerFacts
from berth.services.inventory.gangs.model import Gang, Member, Slot, needs_no_rank


def slots_of(gang: Gang, members: Sequence[Member], facts: OwnerFacts | None) -> list[Slot]:
    """Ranks of a new request for ``members``, in their order. Other live pods of the gang keep their ranks."""
    live = {member.uid for member in gang.members.values() if member.is_live}
    taken = {slot.index for part in gang.parts.values() for slot in part.slots if slot.uid in live}
    assigned = {slot.uid for part in gang.parts.values() for slot in part.slots}
    for member in gang.members.values():
        if member.is_live and member.is_bound and member.uid not in assigned and member.place.rank is not None:
            taken.add(member.place.rank)
    starts = _starts(gang, facts)
    preferred_ranks = [_preferred_rank(member, starts) for member in members]
    given: dict[int, int] = {}
    for at, preferred in enumerate(preferred_ranks):
        if preferred is not None and preferred not in taken:
            given[at] = preferred
            taken.add(preferred)
    lowest = 0
    for at in range(len(members)):
        if at in given:
            continue
        while lowest in taken:
            lowest += 1
        given[at] = lowest
        taken.add(lowest)
    return [_slot(member, given[at]) for at, member in enumerate(members)]


def _starts(gang: Gang, facts: OwnerFacts | None) -> dict[str, tuple[int, int]]:
    """First rank of each task and the width of its children, as far as known."""
    if facts is None or not facts.tasks:
        names = {member.place.task for member in gang.members.values()}
        return dict.fromkeys(names, (0, 0)) if len(names) == 1 else {}
    starts: dict[str, tuple[int, int]] = {}
    start = 0
    for task in facts.tasks:
        starts[task.name.lower()] = (start, task.width)
        start += task.pods
    return starts


def _preferred_rank(member: Member, starts: dict[str, tuple[int, int]]) -> int | None:
    """Rank of a pod when all pods exist; None when it cannot be derived."""
    place = member.place
    if place.rank is not None:
        return place.rank
    start = starts.get(place.task)
    if start is None or place.local is None:
        return None
    return start[0] + place.child * start[1] + place.local


def _slot(member: Member, index: int) -> Slot:
    slot = Slot(
        task=member.place.task,
        ask=member.ask,
        source=member.place.source,
        index=index,
        pod=member.name,
        uid=member.uid,
        needs_no_rank=needs_no_rank(member),
    )
    slot.see(member)
    return slot
