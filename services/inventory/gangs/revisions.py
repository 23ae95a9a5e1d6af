"""Revisions of requests that are to say something else: of queue, priority, preemption, or pods without a controller.

Source: docs/queues.md, "The queue of a job"; docs/reference/workloads.md, "Preemption".
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from berth.core.requests.bounds import above_bounds
from berth.schemas.intake import Preemption
from berth.services.inventory.gangs.model import Gang, Member, Part
from berth.services.inventory.gangs.request_lifecycle import dissolve
from berth.services.inventory.gangs.requests import are_unowned

_SHOWN: Final = 64
"""Characters of a queue's name that a reason shows: anybody may write a longer one."""


def revised(
    gang: Gang,
    queue_of: Callable[[Sequence[Member]], str] | None,
    priority_of: Callable[[Sequence[Member]], int] | None,
    preemption_of: Callable[[Sequence[Member]], Preemption | None] | None,
) -> tuple[list[Part], list[tuple[Part, str]]]:
    """Requests of a gang that are to say something else now, under the same uid: they keep their place in line.

    Those that are placed keep their charge, and are in the other queue from their next attempt on. They also keep what
    their class says: their priority, whether they end others, and whether they are critical.

    Args:
        gang: The gang.
        queue_of: Queue of a request for some pods, of which there may be none; None while it is not known.
        priority_of: Priority of a request for some pods; None while it is not known.
        preemption_of: What a request for some pods says of preemption; None while it is not known.

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
        preemption = preemption_of(members) if preemption_of is not None and is_whole and members else before.preemption
        if not waits:
            preemption = _of_class(before.preemption, preemption)
        after = msgspec.structs.replace(before, queue=queue or before.queue, priority=priority, preemption=preemption)
        if is_whole and members:
            after = msgspec.structs.replace(after, is_unowned=are_unowned(members))
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


def _of_class(before: Preemption | None, now: Preemption | None) -> Preemption | None:
    """What a request says of preemption now, but with what its class said before."""
    was = before or Preemption()
    found = msgspec.structs.replace(now or Preemption(), never=was.never, critical=was.critical)
    return None if found == Preemption() else found
