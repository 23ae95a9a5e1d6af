"""Numbers of the owner of a gang, in one form for all kinds of owners.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

from collections.abc import Iterable
from typing import Final, assert_never

import msgspec

from berth.formats.gang_keys import DESIRED_REPLICAS, REPLICA_TYPES
from berth.formats.kubernetes.owners import (
    AscendJob,
    CoPodGroup,
    Job,
    JobSet,
    LeaderWorkerSet,
    NativePodGroup,
    NativePolicy,
    OwnerCondition,
    OwnerKey,
    OwnerObject,
    ReplicaSet,
    ReplicatedJob,
    StatefulSet,
    VolcanoJob,
    Workload,
)
from berth.formats.whole_numbers import whole_number

_VOLCANO_FINAL: Final = frozenset({"Completed", "Failed", "Terminated"})
"""An aborted job may be resumed."""
_JOB_FINAL: Final = frozenset({"Complete", "Failed"})
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation of a JobSet, or of jobs of it: each job has a domain of its own; the value is a label of nodes."""
NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation beside it: nodes are labelled with their job beforehand, so that its pods need not wait."""
_ASCEND_FINAL: Final = frozenset({"Succeeded", "Failed"})
_JOB_SET_FINAL: Final = frozenset({"Completed", "Failed"})


class TaskFacts(msgspec.Struct, frozen=True, gc=False):
    """Equal pods of an owner."""

    name: str
    pods: int
    """All of them."""
    width: int = 1
    """Pods of one child, if the task consists of several: the place of a pod is ``child * width`` plus its index
    there."""
    has_chips: bool | None = None
    """Whether its pods ask for chips; None when its template does not say what its containers need."""


class OwnerFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Numbers of the owner of a gang; None for those that the object does not have."""

    kind: str
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    scheduler_name: str = ""
    """Scheduler of the pods; empty if the object does not name it."""
    queue: str = ""
    replicas: int | None = None
    """Pods that it keeps running."""
    parallelism: int | None = None
    completions: int | None = None
    succeeded: int = 0
    indexed: bool = False
    ordered: bool = False
    """It creates a pod only when the previous one is ready."""
    rollout: str = ""
    """That its pods are being replaced by those of another template, as a sentence; empty otherwise."""
    suspended: bool = False
    min_count: int | None = None
    """Pods that must start together."""
    tasks: tuple[TaskFacts, ...] = ()
    """In order of rank."""
    is_ending: bool = False
    """It is being deleted."""
    final: str = ""
    """State in which it makes no pods any more, whatever becomes of them; empty in any other."""


def owner_facts(key: OwnerKey, owner: OwnerObject) -> OwnerFacts:
    """Numbers of the object that was read for ``key``."""
    match owner:
        case ReplicaSet() | StatefulSet():
            facts = _set_facts(owner)
        case Job():
            facts = _job_facts(owner)
        case VolcanoJob():
            facts = _volcano_facts(owner)
        case AscendJob():
            facts = _ascend_facts(owner)
        case JobSet():
            facts = _job_set_facts(owner)
        case Workload():
            facts = _workload_facts(owner, key.part)
        case LeaderWorkerSet() | NativePodGroup() | CoPodGroup():
            facts = OwnerFacts(kind=key.kind, min_count=_minimum(owner))
        case _:
            assert_never(owner)
    meta = owner.metadata
    return msgspec.structs.replace(
        facts,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        is_ending=meta.deletion_timestamp is not None,
    )


def _minimum(owner: LeaderWorkerSet | NativePodGroup | CoPodGroup) -> int | None:
    match owner:
        case LeaderWorkerSet():
            return owner.spec.leader_worker_template.size
        case NativePodGroup():
            return _native_minimum(owner.spec.scheduling_policy)
        case CoPodGroup():
            return owner.spec.min_member


def _set_facts(owner: ReplicaSet | StatefulSet) -> OwnerFacts:
    is_stateful = isinstance(owner, StatefulSet)
    replicas = _or_one(owner.spec.replicas)
    return OwnerFacts(
        kind="StatefulSet" if is_stateful else "ReplicaSet",
        scheduler_name=owner.spec.template.scheduler_name,
        replicas=replicas,
        ordered=is_stateful and owner.spec.pod_management_policy != "Parallel",
        rollout=_rollout_of_pods(owner) if isinstance(owner, StatefulSet) else _rollout_of_replicas(owner, replicas),
    )


def _rollout_of_replicas(owner: ReplicaSet, replicas: int) -> str:
    """Rollout of the Deployment of a ReplicaSet: it has another number of replicas than the Deployment wants.

    Source: Kubernetes, ``pkg/controller/deployment/util``: annotation ``deployment.kubernetes.io/desired-replicas``.
    """
    wanted = whole_number(owner.metadata.annotation(DESIRED_REPLICAS))
    if wanted is None or wanted == replicas:
        return ""
    return f"a rollout is going on: ReplicaSet {owner.metadata.name} has {replicas} of {wanted} replicas"


def _rollout_of_pods(owner: StatefulSet) -> str:
    """Rollout of a StatefulSet: with a partition, pods of both revisions stay.

    Source: Kubernetes, apps/v1, ``StatefulSetStatus``.
    """
    status = owner.status
    if status is None or not status.current_revision or status.current_revision == status.update_revision:
        return ""
    return f"a rollout is going on: StatefulSet {owner.metadata.name} has pods of two revisions"


def _job_facts(owner: Job) -> OwnerFacts:
    return OwnerFacts(
        kind="Job",
        scheduler_name=owner.spec.template.scheduler_name,
        parallelism=1 if owner.spec.parallelism is None else owner.spec.parallelism,
        completions=owner.spec.completions,
        succeeded=(owner.status.succeeded or 0) if owner.status is not None else 0,
        indexed=owner.spec.completion_mode == "Indexed",
        suspended=bool(owner.spec.suspend),
        final=_final(owner.status.conditions if owner.status is not None else None, _JOB_FINAL),
    )


def _volcano_facts(owner: VolcanoJob) -> OwnerFacts:
    tasks = owner.spec.tasks or []
    scheduler = next((task.template.scheduler_name for task in tasks if task.template.scheduler_name), "")
    state = owner.status.state if owner.status is not None else None
    return OwnerFacts(
        kind="VolcanoJob",
        final=state.phase if state is not None and state.phase in _VOLCANO_FINAL else "",
        scheduler_name=owner.spec.scheduler_name or scheduler,
        queue=owner.spec.queue,
        min_count=owner.spec.min_available,
        tasks=tuple(
            TaskFacts(
                task.name or f"default{index}",
                1 if task.replicas is None else task.replicas,
                has_chips=task.template.has_chips,
            )
            for index, task in enumerate(tasks)
        ),
    )


def _ascend_facts(owner: AscendJob) -> OwnerFacts:
    specs = owner.spec.replica_specs or {}
    policy = owner.spec.run_policy
    wishes = policy.scheduling_policy if policy is not None else None
    known = [kind for kind in REPLICA_TYPES if kind in specs]
    kinds = [*known, *sorted(kind for kind in specs if kind not in REPLICA_TYPES)]
    scheduler = next((specs[kind].template.scheduler_name for kind in kinds if specs[kind].template.scheduler_name), "")
    return OwnerFacts(
        kind="AscendJob",
        final=_final(owner.status.conditions if owner.status is not None else None, _ASCEND_FINAL),
        scheduler_name=owner.spec.scheduler_name or scheduler,
        queue=wishes.queue if wishes is not None else "",
        min_count=wishes.min_available if wishes is not None else None,
        suspended=bool(policy.suspend) if policy is not None else False,
        tasks=tuple(
            TaskFacts(kind.lower(), _or_one(specs[kind].replicas), has_chips=specs[kind].template.has_chips)
            for kind in kinds
        ),
    )


def _job_set_facts(owner: JobSet) -> OwnerFacts:
    """Jobs that start after others are not part of the gang, which consists of the jobs before the first of them.

    Likewise all pods but the first of a job that has a topology domain of its own: they are refused until that pod has
    a node, and then they must go to its domain.

    Source: JobSet 0.12.0, ``pkg/webhooks/pod_webhook.go``.
    """
    jobs = owner.spec.replicated_jobs or []
    policy = owner.spec.startup_policy
    one_by_one = policy is not None and policy.startup_policy_order == "InOrder"
    tasks = tuple(
        TaskFacts(
            job.name,
            _or_one(job.replicas) * job.template.spec.width,
            job.template.spec.width,
            job.template.spec.template.has_chips,
        )
        for job in jobs
    )
    pairs = list(zip(tasks, jobs, strict=True))
    first = pairs[:1] if one_by_one else [(task, job) for task, job in pairs if not job.depends_on]
    schedulers = (job.template.spec.template.scheduler_name for job in jobs)
    return OwnerFacts(
        kind="JobSet",
        final=_final(owner.status.conditions if owner.status is not None else None, _JOB_SET_FINAL),
        scheduler_name=next((name for name in schedulers if name), ""),
        suspended=bool(owner.spec.suspend),
        min_count=sum(_or_one(job.replicas) if _leads(owner, job) else task.pods for task, job in first),
        tasks=tasks,
    )


def _leads(owner: JobSet, job: ReplicatedJob) -> bool:
    """Whether the first pod of each of these jobs gets a node before the others are created."""
    layers = [owner.metadata.annotations or {}, job.template.metadata.annotations or {}]
    return any(EXCLUSIVE_TOPOLOGY in layer for layer in layers) and not any(NODE_SELECTOR in layer for layer in layers)


def _workload_facts(owner: Workload, name: str) -> OwnerFacts:
    groups = [*(owner.spec.pod_groups or ()), *(owner.spec.pod_group_templates or ())]
    found = next((group for group in groups if group.name == name), None)
    policy = None if found is None else found.policy or found.scheduling_policy
    return OwnerFacts(kind="Workload", min_count=_native_minimum(policy))


def _native_minimum(policy: NativePolicy | None) -> int:
    gang = policy.gang if policy is not None else None
    return _or_one(gang.min_count) if gang is not None else 1


def _final(conditions: Iterable[OwnerCondition] | None, final: frozenset[str]) -> str:
    """The first true condition that is final; empty without one."""
    return next((one.type for one in conditions or () if one.status == "True" and one.type in final), "")


def _or_one(number: int | None) -> int:
    return 1 if number is None else number
