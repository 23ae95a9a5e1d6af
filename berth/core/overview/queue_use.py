"""Use of queues: chips that each holds, is entitled to and may hold, and jobs that wait in it."""

from collections import Counter
from typing import NamedTuple

from berth.core.queues.amounts import is_chips
from berth.core.state.cell import State
from berth.schemas.queues.queue import CHIP


class QueueChips(NamedTuple):
    """Chips of a queue with those below it, of one resource.

    Attributes:
        queue: Its name.
        resource: Name of the resource.
        held: Chips that its jobs hold, without those that are leaving.
        entitled: Chips that it is entitled to.
        limit: Most chips that it may hold; None without a limit.
    """

    queue: str
    resource: str
    held: float
    entitled: float
    limit: float | None


def queue_chips(state: State) -> list[QueueChips]:
    """Chips of all valid queues, by name and resource; none where queues do nothing."""
    shares = state.queues.shares()
    if shares is None:
        return []
    usage = state.queues.usage(shares.tree)
    found: list[QueueChips] = []
    for name in sorted(shares.tree.paths):
        limits = shares.limits[name]
        for resource, entitled in shares.entitlements[name].items():
            if is_chips(resource):
                limit = limits[resource] / CHIP if resource in limits else None
                found.append(QueueChips(name, resource, usage.held(name, resource) / CHIP, entitled / CHIP, limit))
    return found


def waiting_by_queue(state: State) -> dict[str, int]:
    """Jobs that wait, by the queue that they name, which need not exist; queues without any are left out."""
    found: Counter[str] = Counter()
    for job in state.jobs.values():
        gang = state.fold.gangs.get(job.uid)
        if job.state == "accepted" and job.request is not None and (gang is None or gang.phase == "waiting"):
            found[job.request.queue] += 1
    return dict(found)
