"""Use of queues: chips that each holds, is entitled to and may hold, and jobs that wait in it."""

from collections.abc import Callable
from typing import NamedTuple

from berth.core.parity import differs
from berth.core.queues.amounts import in_order, is_chips, unit_size
from berth.core.queues.tree import tree_of
from berth.core.state.cell import State
from berth.schemas.programs.lists import QueueAmount, QueueEntry
from berth.schemas.queues.queue import CHIP, ROOT


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


def queue_entries(state: State, may_read: Callable[[str], bool]) -> list[QueueEntry]:
    """All queues that are declared, and those that are made beside them, by name; none if none is declared.

    Args:
        state: The cell.
        may_read: Whether the reader may read a namespace; others are not named.
    """
    settings = state.fold.settings
    if not state.queues.declared:
        return []
    applied = state.queues.tree()
    declared = (fact.queue for fact in state.queues.declared.values())
    tree = applied or tree_of(declared, most=settings.queues_max, differs=differs(settings))
    amounts: dict[str, list[QueueAmount]] = {}
    shares = state.queues.shares()
    if shares is not None:
        usage = state.queues.usage(shares.tree)
        for name, entitled in shares.entitlements.items():
            limits = shares.limits[name]
            amounts[name] = [
                QueueAmount(
                    resource=one,
                    held=usage.held(name, one) / unit_size(one),
                    entitled=entitled[one] / unit_size(one),
                    limit=limits[one] / unit_size(one) if one in limits else None,
                )
                for one in in_order(entitled)
            ]
    waiting = waiting_by_queue(state)
    found: list[QueueEntry] = []
    for name in sorted(tree.queues):
        queue, is_valid = tree.queues[name], name in tree.paths
        namespaces = tree.namespaces(name) if is_valid else None
        found.append(
            QueueEntry(
                name=name,
                parent="" if name == ROOT else queue.parent or ROOT,
                state=tree.states[name].name.capitalize(),
                is_valid=is_valid,
                reason=tree.broken.get(name, ""),
                priority=queue.priority,
                weight=queue.weight,
                namespaces=None if namespaces is None else sorted(filter(may_read, namespaces)),
                amounts=amounts.get(name, []),
                waiting=len(waiting.get(name, ())),
                oldest_ms=min(waiting.get(name, ()), default=0),
                is_declared=name in tree.declared,
            )
        )
    return found


def waiting_by_queue(state: State) -> dict[str, list[int]]:
    """When each job that waits was accepted (ms), by the queue that it names, which need not exist.

    PodGroups that their queue does not let have pods wait since they were made.
    """
    found: dict[str, list[int]] = {}
    for job in state.jobs.values():
        gang = state.fold.gangs.get(job.uid)
        if job.state == "accepted" and job.request is not None and (gang is None or gang.phase == "waiting"):
            found.setdefault(job.request.queue, []).append(job.at_ms)
    for queue, request, created_ms in state.waiting_groups.asking():
        known = state.jobs.get(request)
        if known is None or known.state != "accepted":
            found.setdefault(queue, []).append(created_ms)
    return found
