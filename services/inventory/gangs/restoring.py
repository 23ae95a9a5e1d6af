"""Requests restored from the facts of an earlier run."""

from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.formats.kubernetes.workloads.registry import kinds
from berth.schemas.columns import unpack
from berth.schemas.facts import JobSeen, MembersSeen
from berth.schemas.intake import JobRequest, Task
from berth.services.inventory.gangs.model import NO_INDEX, Gang, Part, Slot, needs_no_rank
from berth.services.inventory.gangs.requests import requested_gang_pods, task_requirements


def restored_owner(seen: MembersSeen) -> OwnerKey | None:
    """Controller of a request of which no pod is left; None if it is not known or cannot be read."""
    kind = kinds().of_word(seen.job.partition(".")[0])
    if kind is None or not kind.controls_pods or not seen.owner.name:
        return None
    return OwnerKey(kind.name, seen.namespace, seen.owner.name)


def part_from(seen: MembersSeen, job: JobSeen | None, gang: Gang, *, is_first: bool) -> Part:
    """Request restored from the fact about its pods.

    Args:
        seen: Its pods.
        job: Verdict on its name, if there is one.
        gang: The gang of the pods.
        is_first: The request has the gang's own name.
    """
    request = job.request if job is not None and job.uid == seen.uid else None
    rows = dict(zip(unpack(seen.rank, 4), range(len(seen.pods)), strict=True))
    tasks = [task for task in request.tasks for _ in range(task.replicas)] if request is not None else []
    count = max(len(tasks), max(rows, default=-1) + 1)
    slots = [
        _slot(seen, gang, rank, rows.get(rank), request, tasks[rank] if rank < len(tasks) else None)
        for rank in range(count)
    ]
    part = Part(
        gang=gang.key,
        name=seen.job,
        uid=seen.uid,
        slots=slots,
        is_first=is_first or count > 1,
        gang_pods=_gang_pods(seen, request),
        request=request,
        hold=seen.hold,
        since_seq=request.since_seq if request is not None else 0,
        is_lost=request is not None and request.since_seq > 0,
        is_fragile=request is not None and request.is_fragile,
    )
    if any(slot.was_bound for slot in slots):
        part.phase = "placed"  # until its status is read
    if job is not None:
        part.note_job(job)
    if seen.hold:
        part.state, part.phase, part.published = "closed", "cancelled", True
    return part


def _gang_pods(seen: MembersSeen, request: JobRequest | None) -> int:
    least = 2 if seen.distributed else 1
    return requested_gang_pods(request, least) if request is not None else least


def _slot(
    seen: MembersSeen, gang: Gang, rank: int, row: int | None, request: JobRequest | None, task: Task | None
) -> Slot:
    index_text = seen.rank_index[row] if row is not None and row < len(seen.rank_index) else ""
    member = gang.members.get(seen.pod_uids[row]) if row is not None else None
    if member is not None:
        place = member.place
        is_written = member.is_bound and bool(index_text)  # the scheduler wrote the rank, not the controller
        index = int(index_text) if index_text.isdigit() else place.rank if place.rank is not None else rank
        index = index if member.ask.chips else NO_INDEX
        slot = Slot(
            task=place.task,
            ask=member.ask,
            source=place.own_source if is_written else place.source,
            index=index,
            pod=member.name,
            uid=member.uid,
            needs_no_rank=needs_no_rank(member) if not member.is_bound else not index_text,
        )
        slot.see(member)
        return slot
    return Slot(
        task=task.name if task is not None else "",
        ask=task_requirements(request, task) if request is not None and task is not None else None,
        source=None,
        index=NO_INDEX if task is not None and not task.chips else int(index_text) if index_text.isdigit() else rank,
        pod=seen.pods[row] if row is not None else "",
        uid=seen.pod_uids[row] if row is not None else "",
        needs_no_rank=not index_text,
        is_live=False,
    )
