"""Gangs as the queue and a round use them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.core.requests.job_validation import ValidJob, shapes_of, validate
from berth.core.topologies.registry import topology_of
from berth.schemas.facts import JobSeen
from berth.schemas.intake import FROM_PODS, JobRequest, Task, rank_of
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand, Shape
from berth.schemas.placement import Run, Share
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

ClassKey = tuple[tuple[Shape, int], ...]
"""Request class: the shapes and the number of pods of each. Equal classes have equal placements and refusals."""


class WaitKey(NamedTuple):
    """What gangs have in common that sleep and wake together while they wait."""

    request_class: ClassKey
    line: str = ""
    """Queue whose turn they wait for; empty where queues order nothing."""


QueueOrder = tuple[int, int, str]
"""Sort key of a waiting job: priority and whether it is fragile, sequence of its place in the queue, uid."""


def accepted_of(job: JobSeen, request: JobRequest) -> int:
    """Sequence of a job's place in the queue: of its own request, or of the earlier one that this follows."""
    if request.origin != FROM_PODS or not request.since_seq:
        return job.accepted_seq
    return min(request.since_seq, job.accepted_seq)


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
    return (rank_of(request.priority, is_fragile=is_fragile(request)), accepted_of(job, request), job.uid)


class Profiles(NamedTuple):
    """Labels and constraints of the pods of each task, parallel to the tasks; empty while constraints are off."""

    pods: tuple[PodProfile, ...] = ()
    """All of them: constraints of others may bear on any pod."""
    shapes: tuple[PodProfile | None, ...] = ()
    """Profile in the shape of each task; None where no constraint bears on its pods."""


_NO_PROFILES = Profiles()


class Gang(msgspec.Struct, gc=False):
    """A job request that waits for its placement."""

    namespace: str
    name: str
    uid: str
    attempt: int
    priority: int
    accepted_seq: int
    request_class: ClassKey
    tasks: list[str]
    runs: list[Run]
    """Pods of each task, parallel to ``request_class``."""
    pods: int
    resource: str
    form: str
    form_because: str
    framework: str = ""
    """Label of that name; empty if it is missing."""
    labels: Mapping[str, str] = {}
    """Labels of the job."""
    beside: str = ""
    """Name of the job of its namespace near whose pods with chips it is placed; empty without."""
    invalid: Refusal | None = None
    """Refusal of a request that the settings of this epoch do not allow."""
    fresh: bool = True
    """It has no verdict in this epoch yet."""
    profiles: tuple[PodProfile, ...] = ()
    """Labels and constraints of the pods of each task; empty while constraints are off."""
    run_ms: int = 0
    """Declared run time in milliseconds; 0 if none is declared."""
    avoided: tuple[str, ...] = ()
    """Nodes that failed for the attempt before, or that rejected pods of its owner, sorted: used only if it is not
    placed otherwise."""
    is_fragile: bool = False
    """Its gang runs with too few pods: it comes before others of its priority."""
    bytes_in_record: int = 0
    """Approximate size of its placement in a record."""
    queue: str = ""
    """Queue to which it is charged; empty where queues do nothing."""
    line: str = ""
    """Queue whose turn it waits for; empty where queues order nothing."""

    @property
    def wait_key(self) -> WaitKey:
        """What it waits as."""
        return WaitKey(self.request_class, self.line)

    @property
    def demand(self) -> Demand | None:
        """What its pods with chips demand of a topology; None if each gets its best node."""
        return next((shape.demand for shape, _ in self.request_class if shape.demand is not None), None)

    @property
    def share(self) -> Share | None:
        """Quota of each of its soft-share pods; None if it has none."""
        return next((shape.share for shape, _ in self.request_class if shape.share is not None), None)

    def pods_in_order(self) -> list[PodProfile]:
        """Labels and constraints of each pod, by rank; empty while constraints are off."""
        pods = zip(self.profiles, self.runs, strict=bool(self.profiles))
        return [profile for profile, run in pods for _ in range(run.pods)]

    @property
    def is_plain(self) -> bool:
        """Whether none of its pods has chips."""
        return has_no_chips(self.request_class)

    @property
    def namespaced_name(self) -> str:
        """Name in refusals, logs and reports: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> QueueOrder:
        """Sort key in the queue."""
        return (rank_of(self.priority, is_fragile=self.is_fragile), self.accepted_seq, self.uid)


def chips_of(request_class: ClassKey) -> int:
    """Chips of a gang of a class, without chips that its pods share."""
    return sum(shape.chips * pods for shape, pods in request_class if shape.share is None)


def has_no_chips(request_class: ClassKey) -> bool:
    """Whether no pod of a class has chips; false for the class of a request that is invalid."""
    return bool(request_class) and not any(shape.chips for shape, _ in request_class)


def placing_order(request_class: ClassKey) -> list[int]:
    """Tasks of a class, by index, in the order in which their pods get nodes.

    Planned pods come first: the other pods must leave them their cpu and memory. Pods without chips come last, for they
    are placed near the others (decision plain-pods).
    """

    def stage(index: int) -> int:
        shape, _ = request_class[index]
        return 0 if shape.is_planned else 1 if shape.chips else 2

    return sorted(range(len(request_class)), key=stage)


def tasks_in_order(gang: Gang) -> Iterator[tuple[int, range]]:
    """Tasks with the ranks of their pods, in the order in which they get their nodes."""
    starts = list(itertools.accumulate((pods for _, pods in gang.request_class), initial=0))
    for index in placing_order(gang.request_class):
        yield index, range(starts[index], starts[index + 1])


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
        priority=request.priority,
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
        bytes_in_record=sum(run.pods * (a_pod + run.chips) for run in runs) + claims * _BYTES_A_CLAIM + _BYTES_A_GANG,
    )
