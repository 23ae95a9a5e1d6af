"""Gangs of job requests, and their place in the queue."""

from typing import Final, NamedTuple

import msgspec

from berth.core.gangs import Gang, QueueOrder
from berth.core.queues.charges import charge_of_runs
from berth.core.requests.job_validation import ValidJob, shapes_of, validate
from berth.core.topologies.registry import topology_of
from berth.schemas.facts import JobSeen
from berth.schemas.intake import FROM_PODS, JobRequest, Task, rank_of
from berth.schemas.ledger import Settings
from berth.schemas.placement import Run
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import Refusal

_BYTES_A_POD = 4 + 24
"""Index and share of the name table of one pod in a record, at most in the usual case."""
_BYTES_A_GANG = 64 + 64
"""Bytes of a gang without its pods. The length of its name is ignored, so that an anonymised recording has the same
rounds."""
_BYTES_A_CLAIM = 36 + 64 + 4
"""Uid of a claim, its volume, and a rank. Names of claims are ignored, as that of the gang is."""
_FRAMEWORK = "framework"
BESIDE = "berth/beside"
"""Annotation of a request without chips for a part of a gang: name of the request with the pods with chips."""
ORDERED: Final = 2
"""Setting ``queues`` with which queues order their jobs."""


def accepted_of(job: JobSeen, request: JobRequest) -> int:
    """Sequence of a job's place in the queue: of its own request, or of the earlier one that this follows."""
    if request.origin != FROM_PODS or not request.since_seq:
        return job.accepted_seq
    return min(request.since_seq, job.accepted_seq)


def priority_of(job: JobSeen, request: JobRequest) -> int:
    """Priority of a job: the one that somebody gave it, or that of its request."""
    return request.priority if job.priority is None else job.priority


def is_fragile(request: JobRequest) -> bool:
    """Whether a request is for ranks that a running gang lacks."""
    return request.is_fragile and request.origin == FROM_PODS


def is_unowned(request: JobRequest) -> bool:
    """Whether a pod of a request has no controller that makes it anew."""
    return request.is_unowned and request.origin == FROM_PODS


def charged_queue(request: JobRequest, settings: Settings) -> str:
    """Queue to which a job is charged; empty where queues do nothing."""
    return request.queue if settings.queues else ""


def has_turns(settings: Settings) -> bool:
    """Whether queues order their jobs; under ``fifo`` the order of acceptance holds for all of them."""
    return settings.queues == ORDERED and settings.queue_policy != "fifo"


def queue_order(job: JobSeen, request: JobRequest) -> QueueOrder:
    """Sort key of a waiting job, as :attr:`Gang.order`."""
    return (rank_of(priority_of(job, request), is_fragile=is_fragile(request)), accepted_of(job, request), job.uid)


class Profiles(NamedTuple):
    """Labels and constraints of the pods of each task, parallel to the tasks; empty while constraints are off."""

    pods: tuple[PodProfile, ...] = ()
    """All of them: constraints of others may bear on any pod."""
    shapes: tuple[PodProfile | None, ...] = ()
    """Profile in the shape of each task; None where no constraint bears on its pods."""


_NO_PROFILES = Profiles()


def _chips_held(valid: ValidJob | Refusal, task: Task) -> int:
    """Chips of a pod. A pod of a soft-share job shares one chip, whatever number it requests."""
    return min(task.chips, 1) if isinstance(valid, ValidJob) and valid.share is not None else task.chips


def gang_of(
    job: JobSeen, request: JobRequest, *, attempt: int, settings: Settings, profiles: Profiles = _NO_PROFILES
) -> Gang:
    """Gang of an accepted job.

    Args:
        job: The job.
        request: Its request.
        attempt: Number of the try to run it.
        settings: Settings of the epoch.
        profiles: Labels and constraints of its pods.
    """
    valid = validate(request, settings)
    invalid = valid if isinstance(valid, Refusal) else None
    shapes = [] if isinstance(valid, Refusal) else shapes_of(valid, request)
    if any(profiles.shapes):
        shapes = [
            msgspec.structs.replace(shape, profile=profile)
            for shape, profile in zip(shapes, profiles.shapes, strict=bool(shapes))
        ]
    runs = [Run(task.replicas, _chips_held(valid, task), task.cpu_milli, task.memory_mib) for task in request.tasks]
    demand = valid.demand if isinstance(valid, ValidJob) else None
    a_pod = _BYTES_A_POD + topology_of(demand).record_bytes_a_pod
    claims = sum(len(pod.constraints.claims) for pod in profiles.pods)
    return Gang(
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        attempt=attempt,
        priority=priority_of(job, request),
        accepted_seq=accepted_of(job, request),
        request_class=tuple((shape, task.replicas) for shape, task in zip(shapes, request.tasks, strict=bool(shapes))),
        tasks=[task.name for task in request.tasks],
        runs=runs,
        pods=sum(task.replicas for task in request.tasks),
        resource=request.resource,
        form=valid.form if isinstance(valid, ValidJob) else "",
        form_because=valid.because if isinstance(valid, ValidJob) else "",
        framework=request.labels.get(_FRAMEWORK, ""),
        labels=request.labels,
        beside=request.annotations.get(BESIDE, ""),
        invalid=invalid,
        profiles=profiles.pods,
        run_ms=request.run_ms,
        avoided=tuple(request.avoided),
        is_fragile=is_fragile(request),
        queue=charged_queue(request, settings),
        line=request.queue if has_turns(settings) else "",
        charge=charge_of_runs(runs, request.resource, valid.share)
        if settings.queues and isinstance(valid, ValidJob)
        else {},
        bytes_in_record=sum(run.pods * (a_pod + run.chips) for run in runs) + claims * _BYTES_A_CLAIM + _BYTES_A_GANG,
    )
