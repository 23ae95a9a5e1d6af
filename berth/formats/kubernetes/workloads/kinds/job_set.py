"""JobSets: Jobs that are one gang.

Source: docs/reference/kubernetes.md, "Gangs of other systems"; JobSet, jobset.x-k8s.io/v1alpha2.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.pod_labels import COMPLETION_INDEX, JOBSET_NAME, label_or_annotation, number
from berth.formats.kubernetes.workloads.port import (
    Claim,
    GangKey,
    OwnerKey,
    OwnerObject,
    Place,
    PodReading,
    WorkloadKind,
)
from berth.formats.kubernetes.workloads.specs import JobSpec, OwnerCondition, first_final, first_named, or_one
from berth.formats.whole_numbers import Int32
from berth.schemas.facts import Owner

JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_TASK: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation of a JobSet, or of jobs of it: each job has a domain of its own; the value is a label of nodes."""
NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation beside it: nodes are labelled with their job beforehand, so that its pods need not wait."""
_NAME: Final = "JobSet"
_WORD: Final = "jobset"
_FINAL: Final = frozenset({"Completed", "Failed"})


class JobTemplate(Lean, frozen=True):
    """Template of the jobs of a JobSet."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()


class Dependency(Lean, frozen=True):
    """A replicated job that must start first."""

    name: str = ""


class ReplicatedJob(Lean, frozen=True):
    """Equal jobs of a JobSet."""

    name: str = ""
    replicas: Int32 | None = None
    template: JobTemplate = JobTemplate()
    depends_on: list[Dependency] | None = None


class StartupPolicy(Lean, frozen=True):
    """Start order of the jobs of a JobSet."""

    startup_policy_order: str = ""


class JobSetSpec(Lean, frozen=True):
    """Spec of a JobSet."""

    replicated_jobs: list[ReplicatedJob] | None = None
    suspend: bool | None = None
    startup_policy: StartupPolicy | None = None


class ReplicatedJobStatus(Lean, frozen=True):
    """How many of some equal jobs have succeeded."""

    name: str = ""
    succeeded: Int32 | None = None


class JobSetStatus(Lean, frozen=True):
    """Status of a JobSet."""

    conditions: list[OwnerCondition] | None = None
    replicated_jobs_status: list[ReplicatedJobStatus] | None = None


class JobSet(OwnerObject, frozen=True):
    """A JobSet."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus | None = None


def _facts(owner: JobSet, _: str) -> OwnerFacts:
    """Jobs that start after others are not part of the gang, which consists of the jobs before the first of them.

    Likewise all pods but the first of a job that has a topology domain of its own: they are refused until that pod has
    a node, and then they must go to its domain.

    Source: JobSet, ``pkg/webhooks/pod_webhook.go`` of release 0.12.0.
    """
    jobs = owner.spec.replicated_jobs or []
    policy = owner.spec.startup_policy
    one_by_one = policy is not None and policy.startup_policy_order == "InOrder"
    tasks = tuple(
        TaskFacts(
            job.name,
            or_one(job.replicas) * job.template.spec.width,
            job.template.spec.width,
            job.template.spec.template.has_chips,
            is_later=bool(job.depends_on) or (one_by_one and place > 0),
            scheduler_name=job.template.spec.template.scheduler_name,
        )
        for place, job in enumerate(jobs)
    )
    status = owner.status or JobSetStatus()
    succeeded = {one.name: one.succeeded or 0 for one in status.replicated_jobs_status or ()}
    return OwnerFacts(
        ended=sum(succeeded.get(task.name, 0) * task.width for task in tasks if not task.is_later),
        final=first_final(status.conditions, _FINAL),
        scheduler_name=first_named(task.scheduler_name for task in tasks),
        suspended=bool(owner.spec.suspend),
        min_count=sum(
            or_one(job.replicas) if _leads(owner, job) else task.pods
            for task, job in zip(tasks, jobs, strict=True)
            if not task.is_later
        ),
        min_name="the sum of its jobs",
        tasks=tasks,
    )


def _leads(owner: JobSet, job: ReplicatedJob) -> bool:
    """Whether the first pod of each of these jobs gets a node before the others are created."""
    layers = [owner.metadata.annotations or {}, job.template.metadata.annotations or {}]
    return any(EXCLUSIVE_TOPOLOGY in layer for layer in layers) and not any(NODE_SELECTOR in layer for layer in layers)


def _gang(pod: Pod) -> Claim | None:
    name = label_or_annotation(pod, JOBSET_NAME)
    if not name:
        return None
    namespace, uid = pod.metadata.namespace, label_or_annotation(pod, JOBSET_UID)
    look = OwnerKey(_NAME, namespace, name)
    return Claim(GangKey(_WORD, namespace, name, uid), look, Owner(_NAME, name, uid), maker=look)


def _task(pod: Pod) -> str:
    return label_or_annotation(pod, JOBSET_TASK)


def _place(pod: Pod) -> Place | None:
    if not label_or_annotation(pod, JOBSET_NAME):
        return None
    completion = number(label_or_annotation(pod, COMPLETION_INDEX))
    return Place(number(label_or_annotation(pod, JOBSET_JOB_INDEX)) or 0, completion)


JOB_SET: Final = WorkloadKind(
    name=_NAME,
    word=_WORD,
    versions=("jobset.x-k8s.io/v1alpha2",),
    plural="jobsets",
    struct=JobSet,
    facts=_facts,
    pods=PodReading(
        gang_of_labels=_gang,
        task=_task,
        place=_place,
        own_labels=frozenset({JOBSET_JOB_INDEX, "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/job-key"}),
    ),
    starts_by_parts=True,
)
