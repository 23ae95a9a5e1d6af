"""Ranks of pods: in their request, and in their whole gang.

In the gang a pod has the rank that it states. Without one, the rank follows from its index and the sizes of the tasks
before its own. Otherwise it is the lowest free rank. Pods without chips have no rank in the gang, so those of the
others start at 0 and have no gap.

Source: docs/reference/nodes-and-chips.md, "Pod annotations of chips"; docs/reference/kubernetes.md,
"Volcano PodGroups".
"""

import bisect
from collections.abc import Sequence

from berth.formats.ascend.pod_annotations import RANK_INDEX
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.whole_numbers import whole_number
from berth.services.inventory.gangs.backups import is_backup
from berth.services.inventory.gangs.chip_pods import tasks_without_chips
from berth.services.inventory.gangs.model import NO_INDEX, Gang, Member, Slot, needs_no_rank


def slots_of(gang: Gang, members: Sequence[Member], facts: OwnerFacts | None) -> list[Slot]:
    """Ranks of a new request for ``members``, in their order. Other live pods of the gang keep their ranks."""
    live = {member.uid for member in gang.members.values() if member.is_live}
    taken = {slot.index for part in gang.parts.values() for slot in part.slots if slot.uid in live}
    assigned = {slot.uid for part in gang.parts.values() for slot in part.slots}
    places = _Places(gang, facts)
    for member in gang.runners:
        if member.uid not in assigned:
            rank = places.stated(member)
            taken.update(() if rank is None else (rank,))
    preferred_ranks = [places.preferred(member) for member in members]
    given: dict[int, int] = {}
    for at, preferred in enumerate(preferred_ranks):
        if preferred is not None and preferred not in taken:
            given[at] = preferred
            taken.add(preferred)
    lowest = 0
    for at, member in enumerate(members):
        if at in given:
            continue
        if not member.ask.chips:
            given[at] = NO_INDEX
            continue
        while lowest in taken:
            lowest += 1
        given[at] = lowest
        taken.add(lowest)
    return [_slot(member, given[at]) for at, member in enumerate(members)]


def wrong_ranks(gang: Gang, free: Sequence[Member], facts: OwnerFacts | None) -> dict[str, str]:
    """Why pods that state a rank of another pod, or one that their gang does not have, are not requested, by uid.

    A rank that is stale was written by the scheduler: it may have passed to another pod since.

    Args:
        gang: The gang; its slots are up to date.
        free: Live pods without a node and without a rank, in order; the first of those that state a rank has it.
        facts: Facts of its owner, if they are known.
    """
    end = _end(gang, facts)
    slots = [slot for _, part in sorted(gang.parts.items()) for slot in part.slots if slot.uid]
    assigned = {slot.uid for slot in slots}
    holders = {slot.index: slot.pod for slot in slots if slot.is_live and slot.index != NO_INDEX}
    for member in sorted(gang.runners, key=lambda one: one.name):
        rank = _stated_by(member)
        if rank is not None and member.uid not in assigned:
            holders.setdefault(rank, member.name)
    refused: list[tuple[Member, int]] = []
    beyond: dict[str, str] = {}
    for member in free:
        rank = _stated_by(member)
        if rank is None:
            continue
        if end and rank >= end:
            beyond[member.uid] = (
                f"pod {member.name} has {RANK_INDEX} {rank}: expected a rank below {end}, its gang has no more pods"
            )
        elif holders.setdefault(rank, member.name) != member.name:
            refused.append((member, rank))
    unused = next(rank for rank in range(len(holders) + 1) if rank not in holders)
    return beyond | {
        member.uid: f"pod {member.name} has {RANK_INDEX} {rank}, the rank of pod {holders[rank]}: expected a rank that "
        f"no other pod of the gang has, such as {unused}"
        for member, rank in refused
    }


def _end(gang: Gang, facts: OwnerFacts | None) -> int:
    """Rank below which those of a gang are: its rank table never has others; 0 where its tasks are not known."""
    if facts is None or not facts.tasks:
        return 0
    pods = sum(task.first_index + task.pods for task in facts.tasks)
    return facts.first_index + max(pods, len(gang.members))


def _stated_by(member: Member) -> int | None:
    """Rank that a pod with chips states itself; None without one."""
    if not member.ask.chips or member.is_stale or is_backup(member):
        return None
    return whole_number(member.pod.metadata.annotation(RANK_INDEX))


class _Places:
    """Ranks that follow from the places of pods in their gang.

    Args:
        gang: The gang.
        facts: Facts of its owner, if they are known.
    """

    def __init__(self, gang: Gang, facts: OwnerFacts | None) -> None:
        self._starts = _starts(gang, facts)
        self._first = facts.first_index if facts is not None else 0
        self._without_chips = sorted(
            member.place.rank
            for member in gang.members.values()
            if member.place.rank is not None and not member.ask.chips
        )
        """Indexes in the whole gang of pods without chips."""

    def stated(self, member: Member) -> int | None:
        """Rank that a pod states, or that follows from its index in the whole gang; None for no such rank."""
        rank = member.place.rank
        if rank is None or not member.ask.chips:
            return None
        if member.has_rank:
            return rank
        found = rank - self._first - bisect.bisect_left(self._without_chips, rank)
        return found if found >= 0 else None  # an ordinal below the first one is of a pod that is to go

    def preferred(self, member: Member) -> int | None:
        """Rank of a pod when all pods exist; None when it cannot be derived, or the pod has no chips."""
        place = member.place
        if place.rank is not None or not member.ask.chips:
            return self.stated(member)
        start = self._starts.get(place.task)
        if start is None or place.local is None:
            return None
        return start[0] + place.child * start[1] + place.local


def _starts(gang: Gang, facts: OwnerFacts | None) -> dict[str, tuple[int, int]]:
    """First rank of each task with chips and the width of its children, as far as known."""
    plain = tasks_without_chips(gang, facts)
    if facts is None or not facts.tasks:
        names = {member.place.task for member in gang.members.values()} - plain
        return dict.fromkeys(names, (0, 0)) if len(names) == 1 else {}
    starts: dict[str, tuple[int, int]] = {}
    start = 0
    for task in facts.tasks:
        if task.name.lower() not in plain:
            starts[task.name.lower()] = (start - task.first_index, task.width)
            start += task.pods
    return starts


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
