"""What a reader makes of changes: the next picture, or one change out of two."""

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from berth.schemas.page.view import Change, Job, NodeRow, View

T = TypeVar("T")


def applied(view: View, message: Change | View) -> View:
    """The picture after a change.

    Args:
        view: The picture before it.
        message: The change, or a picture that replaces everything.
    """
    if isinstance(message, View):
        return message
    nodes = list(view.nodes)
    for index, row in message.nodes:
        nodes[index] = row
    jobs = {job.n: job for job in view.jobs}
    for number in message.gone:
        jobs.pop(number, None)  # merged changes may name a job that came and left between
    jobs.update((job.n, job) for job in message.jobs)
    queue = _newer(view.queue, message.queue)
    return View(
        cell=view.cell,
        version=message.version,
        at_ms=message.at_ms,
        facts_seq=message.facts_seq,
        ledger_seq=message.ledger_seq,
        layout=view.layout,
        nodes=nodes,
        jobs=placed(jobs, queue),
        queue=queue,
        faults=_newer(view.faults, message.faults),
        reservations=_newer(view.reservations, message.reservations),
        has_queues=view.has_queues if message.has_queues is UNSET else message.has_queues,
        is_partial=view.is_partial,
    )


def _newer(before: list[T], now: list[T] | UnsetType) -> list[T]:
    return before if isinstance(now, UnsetType) else now


def placed(jobs: dict[int, Job], queue: list[int]) -> list[Job]:
    """Jobs by number, with the positions that follow from the queue."""
    positions: dict[int, int] = {}
    counts = {False: 0, True: 0}
    for number in queue:
        is_plain = jobs[number].is_plain
        counts[is_plain] += 1
        positions[number] = counts[is_plain]
    found = []
    for number in sorted(jobs):
        job, position = jobs[number], positions.get(number, 0)
        found.append(job if job.position == position else msgspec.structs.replace(job, position=position))
    return found


def merged(first: Change | View, then: Change | View) -> Change | View:
    """One message with the effect of two that follow each other."""
    if isinstance(then, View):
        return then
    if isinstance(first, View):
        return applied(first, then)
    nodes: dict[int, NodeRow] = dict(first.nodes)
    nodes.update(then.nodes)
    jobs = {job.n: job for job in first.jobs}
    for number in then.gone:
        jobs.pop(number, None)
    jobs.update((job.n, job) for job in then.jobs)
    return Change(
        version=then.version,
        at_ms=then.at_ms,
        facts_seq=then.facts_seq,
        ledger_seq=then.ledger_seq,
        nodes=sorted(nodes.items(), key=_index),
        jobs=[jobs[number] for number in sorted(jobs)],
        gone=sorted({*first.gone, *then.gone}),
        queue=first.queue if then.queue is UNSET else then.queue,
        faults=first.faults if then.faults is UNSET else then.faults,
        reservations=first.reservations if then.reservations is UNSET else then.reservations,
        has_queues=first.has_queues if then.has_queues is UNSET else then.has_queues,
    )


def _index(entry: tuple[int, NodeRow]) -> int:
    return entry[0]
