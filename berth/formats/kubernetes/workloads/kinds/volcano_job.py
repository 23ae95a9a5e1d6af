"""Jobs of Volcano.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; Volcano, ``batch.volcano.sh/v1alpha1`` Job.
"""

from functools import partial
from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.manifest_form import (
    AddTask,
    GangTerms,
    ManifestForm,
    Metadata,
    read_metadata,
    read_replicas,
    read_tasks,
)
from berth.formats.kubernetes.workloads.pod_labels import index_in_task, label_or_annotation
from berth.formats.kubernetes.workloads.port import MakesAnew, OwnerObject, Place, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import first_named, or_one
from berth.formats.whole_numbers import Int32
from berth.formats.yaml_tree import Tree

JOB_NAME: Final = "volcano.sh/job-name"
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
_FINAL: Final = frozenset({"Completed", "Failed", "Terminated"})
_SUSPENDED: Final = frozenset({"Aborting", "Aborted"})
"""Its pods are deleted, and made again when it is resumed: an aborted job has not ended."""
_ON_DELETION: Final = frozenset({"PodEvicted", "*"})
"""Events of a policy that a deleted pod triggers.

Source: Volcano, batch.volcano.sh/v1alpha1, LifecyclePolicy.
"""


class TaskDependency(Lean, frozen=True):
    """Tasks that must start first."""

    name: list[str] | None = None


class VolcanoTask(Lean, frozen=True):
    """A task of a Volcano job."""

    name: str = ""
    replicas: Int32 | None = None
    template: Template = Template()
    depends_on: TaskDependency | None = None


class VolcanoJobSpec(Lean, frozen=True):
    """Spec of a Volcano job."""

    scheduler_name: str = ""
    min_available: Int32 | None = None
    queue: str = ""
    tasks: list[VolcanoTask] | None = None


class VolcanoJobPhase(Lean, frozen=True):
    """State of a Volcano Job."""

    phase: str = ""


class VolcanoJobStatus(Lean, frozen=True):
    """Status of a Volcano Job."""

    state: VolcanoJobPhase | None = None


class VolcanoJob(OwnerObject, frozen=True):
    """A Volcano job."""

    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus | None = None


def _facts(owner: VolcanoJob, _: str) -> OwnerFacts:
    """Volcano's webhook writes the minimum of a job that has none; without webhooks such a job starts what fits."""
    tasks = owner.spec.tasks or []
    phase = owner.status.state.phase if owner.status is not None and owner.status.state is not None else ""
    return OwnerFacts(
        suspended=phase in _SUSPENDED,
        final=phase if phase in _FINAL else "",
        scheduler_name=owner.spec.scheduler_name or first_named(task.template.scheduler_name for task in tasks),
        queue=owner.spec.queue,
        min_count=or_one(owner.spec.min_available),
        tasks=tuple(
            TaskFacts(
                task.name or f"default{index}",
                or_one(task.replicas),
                has_chips=task.template.has_chips,
                is_later=task.depends_on is not None and bool(task.depends_on.name),
            )
            for index, task in enumerate(tasks)
        ),
    )


def _task(pod: Pod) -> str:
    return label_or_annotation(pod, TASK_SPEC)


def _place(pod: Pod) -> Place | None:
    index = index_in_task(pod, TASK_INDEX)
    return Place(local=index) if index is not None else None


class _Policy(Lean, frozen=True):
    event: str = ""
    events: list[str] | None = None


class _TaskPolicies(Lean, frozen=True):
    policies: list[_Policy] | None = None


class _Policies(Lean, frozen=True):
    policies: list[_Policy] | None = None
    tasks: list[_TaskPolicies] | None = None


class _Lifecycle(OwnerObject, frozen=True):
    spec: _Policies = _Policies()


def _why_not_anew(owner: _Lifecycle, name: str) -> str:
    policies = [*(owner.spec.policies or ()), *(one for task in owner.spec.tasks or () for one in task.policies or ())]
    is_counted = any(not _ON_DELETION.isdisjoint([policy.event, *(policy.events or ())]) for policy in policies)
    return f"a policy of {name} acts on deleted pods" if is_counted else ""


def _read(document: Tree, add: AddTask) -> GangTerms:
    """Ranks follow the order of ``spec.tasks``. A task without a name is ``default<index>``, as in Volcano.

    ``schedulerName``, plug-ins, policies, volumes, and ``minAvailable`` of a single task are not read.
    """
    spec = document.need("spec", "a Volcano job's spec")
    tasks = spec.need("tasks", "a list of tasks")
    job, queue = read_metadata(document), spec.find("queue")
    queue_name = "default" if queue is None else queue.dns_name()
    found = read_tasks(tasks)
    for index, task in enumerate(found):
        name = named.dns_label() if (named := task.find("name")) is not None else f"default{index}"
        replicas = read_replicas(task, "replicas", default=1)
        add(task, name, replicas, partial(pod_labels, job, queue_name, name))
    if not found:
        raise tasks.wrong("at least one task")
    return GangTerms(queue, spec.find("priorityClassName"), read_replicas(spec, "minAvailable", default=0))


def pod_labels(job: Metadata, queue: str, task: str, index: int) -> dict[str, str]:
    """Labels that Volcano's controller gives a pod.

    Source: Volcano, ``createJobPod``.

    Args:
        job: Metadata of the job.
        queue: Name of the queue.
        task: Name of the task.
        index: Index of the pod in the task.
    """
    return {
        JOB_NAME: job.name,
        "volcano.sh/job-namespace": job.namespace,
        "volcano.sh/queue-name": queue,
        TASK_SPEC: task,
        TASK_INDEX: str(index),
    }


VOLCANO_JOB: Final = WorkloadKind(
    name="VolcanoJob",
    kind="Job",
    word="vcjob",
    versions=("batch.volcano.sh/v1alpha1",),
    plural="jobs",
    struct=VolcanoJob,
    facts=_facts,
    pods=PodReading(task=_task, place=_place, own_labels=frozenset({TASK_INDEX})),
    makes_anew=MakesAnew(_Lifecycle, _why_not_anew),
    manifest=ManifestForm(origin="volcano-job", read=_read),
)
