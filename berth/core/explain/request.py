"""The request of a job and its place in the queue: data and words."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from berth.core.explain.evidence import Clock
from berth.core.gangs import Gang, QueueOrder
from berth.core.requests.gangs import priority_of, queue_order
from berth.core.requests.key_spelling import near_key
from berth.core.state.cell import State
from berth.core.text import pluralize
from berth.schemas.intake import JobRequest
from berth.schemas.units import UnixMs

_LABELS_SHOWN: Final = 6
_SECOND_MS: Final = 1000
_POLICY: Final = (
    "huawei.com/",
    "berth/",
    "sp-",
    "ra-block",
    "super-pod-affinity",
    "npu-",
    "tor-affinity",
    "subHealthyStrategy",
    "inferserviceid",
    "duo",
    "distributed",
    "framework",
)
"""Prefixes of labels and annotations that affect a decision."""


class TaskSummary(msgspec.Struct, frozen=True):
    """Equal pods of a job."""

    name: str
    pods: int
    chips: int
    """Chips of one pod."""
    cpu_milli: int = 0
    memory_mib: int = 0
    node_selector: dict[str, str] = {}
    """Of this task only; the selector of the job applies as well."""


class QueuePlace(msgspec.Struct, frozen=True):
    """Place of a job in the queue."""

    gangs: int
    """Jobs ahead of it: of higher priority, or older."""
    chips: int
    """Chips that they request."""
    first: str = ""
    """The first of them, as ``namespace/name``."""
    waiting: int = 0
    """All waiting jobs, this one included."""


class RequestSummary(msgspec.Struct, frozen=True):
    """Request of a job."""

    tasks: list[TaskSummary]
    pods: int
    chips: int
    """All chips of the job."""
    resource: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    queue: str = ""
    priority: int = 0
    min_available: int = 0
    run_ms: int = 0
    """Declared run time; 0 for none."""
    since_ms: UnixMs = 0
    """When it was submitted."""
    place: QueuePlace | None = None
    """Its place in the queue at the decision; None when unknown."""


def summary_of(state: State, gang: Gang, *, placed: Iterable[str] = ()) -> RequestSummary | None:
    """Request of a gang and its place in the queue; None when the state does not contain the request.

    Args:
        state: The cell just before the decision.
        gang: The gang.
        placed: Gangs (uid) that earlier verdicts of the same record placed: they no longer wait.
    """
    job = state.jobs.get((gang.namespace, gang.name))
    if job is None or job.uid != gang.uid or job.request is None:
        return None
    asked = request_summary(job.request, since_ms=job.request.created_at_ms or job.at_ms)
    place = _place(state, gang, dict.fromkeys(placed))
    return msgspec.structs.replace(asked, priority=priority_of(job, job.request), place=place)


def request_summary(request: JobRequest, *, since_ms: UnixMs) -> RequestSummary:
    """Summary of a request.

    Args:
        request: The request.
        since_ms: When it was submitted.
    """
    tasks = request.tasks
    return RequestSummary(
        tasks=[
            TaskSummary(task.name, task.replicas, task.chips, task.cpu_milli, task.memory_mib, dict(task.node_selector))
            for task in tasks
        ],
        pods=sum(task.replicas for task in tasks),
        chips=_chips(request),
        resource=request.resource,
        labels=dict(request.labels),
        annotations=dict(request.annotations),
        node_selector=dict(request.node_selector),
        queue=request.queue,
        priority=request.priority,
        min_available=request.min_available,
        run_ms=request.run_ms,
        since_ms=since_ms,
    )


def _chips(request: JobRequest) -> int:
    return sum(task.replicas * task.chips for task in request.tasks)


def _place(state: State, gang: Gang, placed: dict[str, None]) -> QueuePlace:
    before: list[tuple[QueueOrder, str, int]] = []
    waiting = 0
    for job in state.jobs.values():
        known = state.fold.gangs.get(job.uid)
        if job.state != "accepted" or job.request is None or (known is not None and known.phase != "waiting"):
            continue
        if job.uid != gang.uid and (job.uid in placed or job.hold is not None):
            continue
        if bool(_chips(job.request)) == gang.is_plain:
            continue
        waiting += 1
        order = queue_order(job, job.request)
        if order < gang.order:
            before.append((order, f"{job.namespace}/{job.name}", _chips(job.request)))
    return QueuePlace(
        gangs=len(before),
        chips=sum(chips for _, _, chips in before),
        first=min(before)[1] if before else "",
        waiting=waiting,
    )


def request_lines(asked: RequestSummary, clock: Clock) -> list[str]:
    """The request, one sentence for each entry."""
    tasks = [_task_words(task, asked) for task in asked.tasks]
    words = f"It asked for {' and '.join(tasks)}"
    words += f" of {asked.resource}" if asked.resource and asked.chips else ""
    words += f", {pluralize(asked.chips, 'chip')} in all" if asked.pods > 1 and asked.chips else ""
    words += f", priority {asked.priority}" if asked.priority else ""
    words += f", to run for {_span(asked.run_ms)}" if asked.run_ms else ""
    words += f", at {clock(asked.since_ms)}" if asked.since_ms else ""
    lines = [f"{words}."]
    policy = _pairs({**asked.labels, **asked.annotations}, lambda name: name.startswith(_POLICY) and not near_key(name))
    selector = _pairs(asked.node_selector, lambda _: True)
    parts = [*([f"labels {policy}"] if policy else []), *([f"selector {selector}"] if selector else [])]
    if parts:
        lines.append(f"It has {' and '.join(parts)}.")
    if asked.place is not None and asked.place.gangs:
        place = asked.place
        verb = "waits" if place.gangs == 1 else "wait"
        rest = f", the first is {place.first}"
        lines.append(f"Ahead of it {verb} {pluralize(place.gangs, 'job')} for {pluralize(place.chips, 'chip')}{rest}.")
    return lines


def _task_words(task: TaskSummary, asked: RequestSummary) -> str:
    name = f" ({task.name})" if len(asked.tasks) > 1 else ""
    chips = (
        f" with {pluralize(task.chips, 'chip')}{'' if task.pods == 1 else ' each'}" if task.chips else " without chips"
    )
    return f"{pluralize(task.pods, 'pod')}{name}{chips}"


def _pairs(named: dict[str, str], counts: Callable[[str], bool]) -> str:
    kept = [f"{name}={value}" for name, value in sorted(named.items()) if counts(name)]
    more = len(kept) - _LABELS_SHOWN
    return f"{', '.join(kept[:_LABELS_SHOWN])}{f' and {more} more' if more > 0 else ''}"


def _span(run_ms: int) -> str:
    """A duration in its largest unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if run_ms >= 2 * size * _SECOND_MS:
            return f"{round(run_ms / size / _SECOND_MS)} {unit}"
    return f"{run_ms / _SECOND_MS:g} s"
