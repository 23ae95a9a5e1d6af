"""Revisions of requests whose gang names another queue or priority now: these do not depend on its pods.

Source: docs/queues.md, "The queue of a job".
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from berth.core.requests.bounds import above_bounds
from berth.services.inventory.gangs.model import Gang, Member, Part
from berth.services.inventory.gangs.request_lifecycle import dissolve

_SHOWN: Final = 64
"""Characters of a queue's name that a reason shows: anybody may write a longer one."""


def revised(
    gang: Gang,
    queue_of: Callable[[Sequence[Member]], str] | None,
    priority_of: Callable[[Sequence[Member]], int] | None,
) -> tuple[list[Part], list[tuple[Part, str]]]:
    """Requests of a gang that name another queue or priority now, under the same uid: they keep their place in line.

    Those that are placed keep their charge, and are in the other queue from their next attempt on.

    Args:
        gang: The gang.
        queue_of: Queue of a request for some pods, of which there may be none; None while it is not known.
        priority_of: Priority of a request for some pods; None while it is not known.

    Returns:
        The requests; and those that are too long with the new queue, which are withdrawn, with the reasons.
    """
    found: list[Part] = []
    back: list[tuple[Part, str]] = []
    for part in list(gang.parts.values()):
        members = [gang.members[slot.uid] for slot in part.slots if slot.uid in gang.members]
        before = part.request
        if before is None or not part.published or part.is_over or part.state == "closed":
            continue
        is_whole = len(members) == len(part.slots)
        queue = queue_of(members if is_whole else ()) if queue_of is not None else ""
        waits = part.phase in {"", "waiting"} and is_whole
        priority = priority_of(members) if priority_of is not None and waits else before.priority
        after = msgspec.structs.replace(before, queue=queue or before.queue, priority=priority)
        if after == before:
            continue
        above = above_bounds(after)
        if above is None:
            part.request = after
            found.append(part)
        elif waits:
            back.append((part, f"its queue is now {after.queue[:_SHOWN]}, not {before.queue}"))
            dissolve(gang, part)
    return found, back
