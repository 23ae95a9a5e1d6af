"""Place in the queue of requests for pods that were requested before, and for ranks that a running gang has lost.

A rank that was bound has the age of its gang's first request, however it was lost, and comes before all other work of
its priority while its gang runs with fewer pods than have to start together. One whose pods fail again and again waits
like any other. What a gang grows beyond its largest size has an age of its own. A pod whose request is dropped while it
waits keeps its age.

Source: docs/reference/kubernetes.md, "Resolution of the gang".
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from berth.services.inventory.gangs.model import Gang, Member, Part

_FALLEN_MS: Final = 600_000
"""Time after which it does not count any more that a pod failed."""
_AGAIN: Final = 2
"""Failed pods at one place from which on they fail again and again."""


def update_size(gang: Gang, now_ms: int) -> None:
    """Note the size of a gang, the age of its first request, and which of its pods have failed."""
    gang.fallen = {uid: one for uid, one in gang.fallen.items() if 0 <= now_ms - one[0] < _FALLEN_MS}
    for member in gang.members.values():
        if member.is_bound and member.pod.status.phase == "Failed" and member.uid not in gang.fallen:
            gang.fallen[member.uid] = (now_ms, member.place.task, member.place.source)
    first = [part for part in gang.parts.values() if part.is_first and part.age_seq]
    gang.age_seq = min((part.age_seq for part in first), default=gang.age_seq)
    placed = (len(part.slots) for part in gang.parts.values() if part.is_first and part.is_placed)
    gang.largest = max([gang.largest, _size(gang), *placed])


def keep_ages(gang: Gang, part: Part) -> None:
    """Note the age of pods whose request is dropped while it waits."""
    if part.age_seq and not part.is_placed:
        gang.ages |= {slot.uid: part.age_seq for slot in part.slots if slot.uid in gang.members}


def give_age(gang: Gang, part: Part, members: Sequence[Member], *, is_lost: bool, is_below: bool) -> None:
    """Give a new request of a gang its place in the queue.

    Args:
        gang: The gang; the request is not among its parts yet.
        part: The request.
        members: Its pods.
        is_lost: They take places that the gang had.
        is_below: The gang runs with too few pods.
    """
    part.is_lost = is_lost
    places = [(member.place.task, member.place.source) for member in members]
    is_early = is_lost and not gang.failures and not _fails_again(gang, places)
    kept = [gang.ages.pop(member.uid) for member in members if member.uid in gang.ages]
    part.since_seq = min([*kept, *([gang.age_seq] if is_early and gang.age_seq else [])], default=0)
    part.is_fragile = is_early and not part.is_first and is_below


def lost_ranks(gang: Gang) -> int:
    """Places that a gang had and for which no pod waits; 0 or less for none."""
    waiting = sum(1 for part in gang.parts.values() for slot in part.slots if slot.is_live and not slot.was_bound)
    return gang.largest - _size(gang) - waiting


def is_below(gang: Gang, minimum: int) -> bool:
    """Whether a gang runs with fewer pods than have to start together."""
    return 0 < _size(gang) < minimum


def changed_precedence(gang: Gang, minimum: int) -> Iterable[tuple[Part, str]]:
    """Requests for lost ranks that wait with another precedence than they have now; with the reasons.

    Args:
        gang: The gang.
        minimum: Pods that have to start together now; 0 when unknown.
    """
    has_lost = gang.largest > _size(gang)  # else a request has the age of one that was dropped while it waited
    for part in list(gang.parts.values()) if minimum and has_lost else ():
        if _fails_again(gang, [(slot.task, slot.source) for slot in part.slots]):
            continue
        waits = not part.is_first and part.phase in {"", "waiting"} and part.state == "open"
        is_lost = part.is_lost and part.since_seq > 0
        if waits and is_lost and part.is_fragile != (not gang.failures and is_below(gang, minimum)):
            yield part, f"its gang has {_size(gang)} of at least {minimum} pods now"


def _fails_again(gang: Gang, places: Iterable[tuple[str, str | None]]) -> bool:
    """Whether pods at one of some places fail again and again."""
    fallen = Counter((task, source) for _, task, source in gang.fallen.values())
    return any(fallen[place] >= _AGAIN for place in places)


def _size(gang: Gang) -> int:
    """Pods of a gang that run or have succeeded."""
    succeeded = sum(1 for one in gang.members.values() if one.pod.status.phase == "Succeeded")
    return len(gang.runners) + succeeded
