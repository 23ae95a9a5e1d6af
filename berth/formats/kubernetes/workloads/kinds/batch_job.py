"""Jobs of Kubernetes.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes" and "Resolution of the gang";
Kubernetes, ``batch/v1`` Job.
"""

from typing import Final

from berth.formats.gang_keys import GROUP_MIN_MEMBER, QUEUE_NAME, REPLICAS_MAX
from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.manifest_form import (
    AddTask,
    GangTerms,
    ManifestForm,
    ManifestPlaces,
    Metadata,
    read_metadata,
    read_replicas,
)
from berth.formats.kubernetes.workloads.pod_labels import COMPLETION_INDEX, JOB_NAME, label_or_annotation, number
from berth.formats.kubernetes.workloads.port import OwnerObject, Place, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import JobSpec, OwnerCondition, first_final, or_one
from berth.formats.whole_numbers import Int32, whole_number
from berth.formats.yaml_tree import Tree
from berth.products.model import MIN_AVAILABLE

TASK: Final = "worker"
"""Name of the only task."""
_FINAL: Final = frozenset({"Complete", "Failed"})


class JobState(Lean, frozen=True):
    """Status of a Job."""

    succeeded: Int32 | None = None
    failed_indexes: str | None = None
    """Indexes that are not tried again, as ``1,3-5``."""
    conditions: list[OwnerCondition] | None = None


class Job(OwnerObject, frozen=True):
    """A Kubernetes Job."""

    spec: JobSpec = JobSpec()
    status: JobState | None = None


def _facts(owner: Job, _: str) -> OwnerFacts:
    status = owner.status or JobState()
    return OwnerFacts(
        scheduler_name=owner.spec.template.scheduler_name,
        parallelism=or_one(owner.spec.parallelism),
        completions=owner.spec.completions,
        ended=(status.succeeded or 0) + _indexes_in(status.failed_indexes or ""),
        indexed=owner.spec.completion_mode == "Indexed",
        suspended=bool(owner.spec.suspend),
        final=first_final(status.conditions, _FINAL),
    )


def _indexes_in(text: str) -> int:
    """Number of the indexes in a list such as ``1,3-5``; what is none counts as none.

    Source: Kubernetes, batch/v1, ``JobStatus.failedIndexes``.
    """
    ends = [(part.partition("-")[0], part.rpartition("-")[2]) for part in text.split(",")]
    numbers = [(whole_number(first), whole_number(last)) for first, last in ends]
    return sum(max(last - first + 1, 0) for first, last in numbers if first is not None and last is not None)


def _place(pod: Pod) -> Place | None:
    index = number(label_or_annotation(pod, COMPLETION_INDEX))
    return Place(rank=index) if index is not None else None


def _read(document: Tree, add: AddTask) -> GangTerms:
    """The first pods of a Job, as many as may run at a time: a gang runs once.

    Pods that must start together: annotation ``huawei.com/schedule_minAvailable``, otherwise
    ``scheduling.volcano.sh/group-min-member``, otherwise all pods of an indexed job, otherwise one.
    """
    spec = document.need("spec", "a Job's spec")
    suspend = spec.find("suspend")
    if suspend is not None and suspend.flag():
        raise suspend.wrong("false: a suspended job has no pods to place")
    parallelism = read_replicas(spec, "parallelism", default=1)
    completions = spec.find("completions")
    replicas = parallelism
    if completions is not None:
        replicas = completions.whole(least=1, most=REPLICAS_MAX)
        if replicas > parallelism:
            raise completions.wrong(f"at most spec.parallelism, {parallelism}: the pods of a gang run at the same time")
    if not replicas:
        raise spec.need("parallelism", "").wrong("at least one pod in the job")
    mode = spec.find("completionMode")
    indexed = mode is not None and mode.choice(("Indexed", "NonIndexed")) == "Indexed"
    if indexed and completions is None:
        spec.need("completions", "the number of completions, which an indexed job must give")
    job = read_metadata(document)
    add(spec, TASK, replicas, lambda index: pod_labels(job, index if indexed else None))
    return GangTerms(_annotation(document, QUEUE_NAME), min_available=_min_available(document, 0 if indexed else 1))


def _annotation(document: Tree, key: str) -> Tree | None:
    """Annotation of the job, otherwise of its pods."""
    own = document.dig("metadata", "annotations", key)
    return document.dig("spec", "template", "metadata", "annotations", key) if own is None else own


def _min_available(document: Tree, default: int) -> int:
    for key in (MIN_AVAILABLE, GROUP_MIN_MEMBER):
        place = _annotation(document, key)
        if place is not None:
            text = str(place.value)
            if not (text.isascii() and text.isdigit() and int(text[:10]) <= REPLICAS_MAX):
                raise place.wrong(f"a whole number from 0 to {REPLICAS_MAX} in quotes")
            return int(text)
    return default


def pod_labels(job: Metadata, index: int | None) -> dict[str, str]:
    """Labels that the server and the controller of Jobs give a pod.

    Source: Kubernetes, Job, labels of pods.

    Args:
        job: Metadata of the job; without a uid, the labels with it are left out.
        index: Completion index of the pod; None for a job without.
    """
    found = {JOB_NAME: job.name, "job-name": job.name}
    if job.uid:
        found |= {"batch.kubernetes.io/controller-uid": job.uid, "controller-uid": job.uid}
    return found | ({COMPLETION_INDEX: str(index)} if index is not None else {})


BATCH_JOB: Final = WorkloadKind(
    name="Job",
    versions=("batch/v1",),
    plural="jobs",
    struct=Job,
    facts=_facts,
    pods=PodReading(
        place=_place, own_labels=frozenset({COMPLETION_INDEX, "batch.kubernetes.io/controller-uid", "controller-uid"})
    ),
    starts_together=lambda facts, _: facts.indexed,
    counts_deleted=True,
    manifest=ManifestForm(
        origin="batch-job",
        read=_read,
        places=ManifestPlaces(
            tasks_of=lambda spec: [spec],
            names_tasks=False,
            replicas=("completions", "parallelism"),
            queue=None,
            minimum=None,
        ),
    ),
)
