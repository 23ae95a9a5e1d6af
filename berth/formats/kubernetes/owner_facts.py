"""Numbers of the owner of a gang, read from each kind of owner.

Longer than 400 lines because each kind has its own form, and all give the same facts.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

from collections.abc import Iterable, Sequence
from typing import Final, assert_never

import msgspec

from berth.formats.gang_keys import DESIRED_REPLICAS, REPLICA_TYPES
from berth.formats.kubernetes.gang_facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.operator_jobs import (
    AscendJob,
    KubeflowJob,
    OwnerCondition,
    RayCluster,
    ReplicaSpec,
    RunPolicy,
)
from berth.formats.kubernetes.owners import (
    CoPodGroup,
    Job,
    JobSet,
    JobSetStatus,
    LeaderWorkerSet,
    NativePodGroup,
    NativePolicy,
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
_VOLCANO_SUSPENDED: Final = frozenset({"Aborting", "Aborted"})
"""Its pods are deleted, and made again when it is resumed: an aborted job has not ended."""
_JOB_FINAL: Final = frozenset({"Complete", "Failed"})
EXCLUSIVE_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""Annotation of a JobSet, or of jobs of it: each job has a domain of its own; the value is a label of nodes."""
NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotation beside it: nodes are labelled with their job beforehand, so that its pods need not wait."""
_ASCEND_FINAL: Final = frozenset({"Succeeded", "Failed"})
_JOB_SET_FINAL: Final = frozenset({"Completed", "Failed"})
_LAUNCHER: Final = "Launcher"
_AFTER_WORKERS: Final = "WaitForWorkersReady"
_RAY_HEAD: Final = "headgroup"
"""Label ``ray.io/group`` of the head."""


def owner_facts(key: OwnerKey, owner: OwnerObject) -> OwnerFacts:
    """Numbers of the object that was read for ``key``."""
    match owner:
        case ReplicaSet() | StatefulSet():
            facts = _set_facts(owner)
        case Job():
            facts = _job_facts(owner)
        case VolcanoJob():
            facts = _volcano_facts(owner)
        case AscendJob() | KubeflowJob() | RayCluster():
            facts = _operator_facts(key, owner)
        case JobSet():
            facts = _job_set_facts(owner)
        case Workload():
            facts = _workload_facts(owner, key.part)
        case LeaderWorkerSet():
            facts = _leader_worker_facts(owner)
        case NativePodGroup():
            facts = _native_facts(owner)
        case CoPodGroup():
            facts = OwnerFacts(kind=key.kind, min_count=owner.spec.min_member)
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


def _native_facts(owner: NativePodGroup) -> OwnerFacts:
    """Its priority counts for all of its pods.

    Source: Kubernetes, scheduling.k8s.io, ``PodGroupSpec``.
    """
    spec = owner.spec
    found = [
        (f"schedulingConstraints.{kind}[{index}].key", one.key)
        for kind, constraints in (spec.scheduling_constraints or {}).items()
        for index, one in enumerate(constraints or ())
    ]
    if spec.parent_composite_pod_group_name:
        found.append(("parentCompositePodGroupName", spec.parent_composite_pod_group_name))
    refused = next(
        (
            f"PodGroup {owner.metadata.name} has spec.{field} {value}: expected none, it is not held"
            for field, value in found
        ),
        "",
    )
    return OwnerFacts(
        kind="NativePodGroup",
        min_count=_native_minimum(spec.scheduling_policy),
        priority=spec.priority,
        priority_class=spec.priority_class_name,
        preemption_policy=spec.preemption_policy,
        refused=refused,
    )


def _leader_worker_facts(owner: LeaderWorkerSet) -> OwnerFacts:
    """With start-up policy ``LeaderReady`` the workers of a group are made when its leader is ready."""
    group = owner.spec.leader_worker_template
    size = _or_one(group.size)
    workers = group.worker_template
    leader = group.leader_template or workers
    is_later = owner.spec.startup_policy == "LeaderReady"
    tasks = (
        TaskFacts("leader", 1, has_chips=leader.has_chips, scheduler_name=leader.scheduler_name),
        TaskFacts(
            "worker",
            size - 1,
            has_chips=workers.has_chips,
            is_later=is_later,
            scheduler_name=workers.scheduler_name,
        ),
    )
    return OwnerFacts(kind="LeaderWorkerSet", min_count=size, tasks=tasks)


def _set_facts(owner: ReplicaSet | StatefulSet) -> OwnerFacts:
    is_stateful = isinstance(owner, StatefulSet)
    replicas = _or_one(owner.spec.replicas)
    return OwnerFacts(
        kind="StatefulSet" if is_stateful else "ReplicaSet",
        scheduler_name=owner.spec.template.scheduler_name,
        replicas=replicas,
        first_index=owner.spec.ordinals.start if is_stateful and owner.spec.ordinals is not None else 0,
        ordered=is_stateful and owner.spec.pod_management_policy != "Parallel",
        rollout=_rollout_of_pods(owner) if isinstance(owner, StatefulSet) else _rollout_of_replicas(owner, replicas),
    )


def _rollout_of_replicas(owner: ReplicaSet, replicas: int) -> str:
    """Rollout of the Deployment of a ReplicaSet: it has another number of replicas than the Deployment wants."""
    texts = (owner.metadata.annotation(key) for key in DESIRED_REPLICAS)
    wanted = whole_number(next(filter(None, texts), ""))
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
    status = owner.status
    ended = (status.succeeded or 0) + _indexes_in(status.failed_indexes or "") if status is not None else 0
    return OwnerFacts(
        kind="Job",
        scheduler_name=owner.spec.template.scheduler_name,
        parallelism=1 if owner.spec.parallelism is None else owner.spec.parallelism,
        completions=owner.spec.completions,
        ended=ended,
        indexed=owner.spec.completion_mode == "Indexed",
        suspended=bool(owner.spec.suspend),
        final=_final(status.conditions if status is not None else None, _JOB_FINAL),
    )


def _indexes_in(text: str) -> int:
    """Number of the indexes in a list such as ``1,3-5``; what is none counts as none.

    Source: Kubernetes, batch/v1, ``JobStatus.failedIndexes``.
    """
    ends = [(part.partition("-")[0], part.rpartition("-")[2]) for part in text.split(",")]
    numbers = [(whole_number(first), whole_number(last)) for first, last in ends]
    return sum(max(last - first + 1, 0) for first, last in numbers if first is not None and last is not None)


def _volcano_facts(owner: VolcanoJob) -> OwnerFacts:
    tasks = owner.spec.tasks or []
    scheduler = next((task.template.scheduler_name for task in tasks if task.template.scheduler_name), "")
    phase = owner.status.state.phase if owner.status is not None and owner.status.state is not None else ""
    return OwnerFacts(
        kind="VolcanoJob",
        suspended=phase in _VOLCANO_SUSPENDED,
        final=phase if phase in _VOLCANO_FINAL else "",
        scheduler_name=owner.spec.scheduler_name or scheduler,
        queue=owner.spec.queue,
        min_count=owner.spec.min_available,
        tasks=tuple(
            TaskFacts(
                task.name or f"default{index}",
                _or_one(task.replicas),
                has_chips=task.template.has_chips,
                is_later=task.depends_on is not None and bool(task.depends_on.name),
            )
            for index, task in enumerate(tasks)
        ),
    )


def _operator_facts(key: OwnerKey, owner: AscendJob | KubeflowJob | RayCluster) -> OwnerFacts:
    match owner:
        case AscendJob():
            return _ascend_facts(owner)
        case KubeflowJob():
            return _kubeflow_facts(key.kind, owner)
        case RayCluster():
            return _ray_facts(owner)


def _ascend_facts(owner: AscendJob) -> OwnerFacts:
    specs = owner.spec.replica_specs or {}
    known = [kind for kind in REPLICA_TYPES if kind in specs]
    facts = _replica_facts("AscendJob", specs, known, owner.spec.run_policy, owner.spec.scheduler_name)
    final = _final(owner.status.conditions if owner.status is not None else None, _ASCEND_FINAL)
    return msgspec.structs.replace(facts, final=final)


def _kubeflow_facts(kind: str, owner: KubeflowJob) -> OwnerFacts:
    """An elastic job starts with its fewest workers. A launcher waits for the workers, so it comes after them.

    The bounds of the elastic policy are those of the autoscaler, which scales the workers.

    Source: docs/reference/kubernetes.md, "Gangs of other systems".
    """
    specs = owner.spec.replica_specs
    known = [name for name in (_LAUNCHER, *REPLICA_TYPES) if name in specs]
    facts = _replica_facts(kind, specs, known, owner.spec.run_policy)
    first = 1 if owner.spec.run_launcher_as_worker else 0  # the launcher has index 0 then
    tasks = tuple(
        msgspec.structs.replace(task, is_later=True)
        if task.name == _LAUNCHER.lower()
        else msgspec.structs.replace(task, first_index=first)
        for task in facts.tasks
    )
    least, name = facts.min_count, facts.min_name
    elastic = owner.spec.elastic_policy
    if least is None and elastic is not None and elastic.min_replicas is not None:
        others = sum(task.pods for task in tasks if task.name != "worker")
        least, name = elastic.min_replicas + others, "elasticPolicy.minReplicas"
    return msgspec.structs.replace(
        facts,
        final=_final(owner.status.conditions if owner.status is not None else None, _ASCEND_FINAL),
        min_count=least,
        min_name=name,
        group_has_later=owner.spec.launcher_creation_policy != _AFTER_WORKERS,
        tasks=tasks,
    )


def _replica_facts(
    kind: str,
    specs: dict[str, ReplicaSpec],
    known: Sequence[str],
    policy: RunPolicy | None,
    scheduler_name: str = "",
) -> OwnerFacts:
    """Facts of a job of replica types.

    Args:
        kind: Kind of the job.
        specs: Its replica types.
        known: Those of them that come first, in order of rank; the others follow by name.
        policy: How it runs.
        scheduler_name: Scheduler of all pods, whatever their templates say; empty if the job names none.
    """
    wishes = policy.scheduling_policy if policy is not None else None
    kinds = [*known, *sorted(name for name in specs if name not in known)]
    schedulers = {name: scheduler_name or specs[name].template.scheduler_name for name in kinds}
    return OwnerFacts(
        kind=kind,
        scheduler_name=next((name for name in schedulers.values() if name), ""),
        queue=wishes.queue if wishes is not None else "",
        min_count=wishes.min_available if wishes is not None else None,
        suspended=bool(policy.suspend) if policy is not None else False,
        tasks=tuple(
            TaskFacts(
                name.lower(),
                _or_one(specs[name].replicas),
                has_chips=specs[name].template.has_chips,
                scheduler_name=schedulers[name],
            )
            for name in kinds
        ),
    )


def _ray_facts(owner: RayCluster) -> OwnerFacts:
    """A Ray cluster starts with its head and all workers; with autoscaling, with the fewest workers.

    Source: docs/reference/kubernetes.md, "Gangs of other systems".
    """
    spec = owner.spec
    groups = spec.worker_group_specs or []
    head = spec.head_group_spec.template
    return OwnerFacts(
        kind="RayCluster",
        scheduler_name=next(
            (one.scheduler_name for one in (head, *(group.template for group in groups)) if one.scheduler_name), ""
        ),
        suspended=bool(spec.suspend),
        min_count=1 + sum(group.least for group in groups) if spec.enable_in_tree_autoscaling else None,
        min_name="minReplicas",
        tasks=(
            TaskFacts(_RAY_HEAD, 1, has_chips=head.has_chips, scheduler_name=head.scheduler_name),
            *(
                TaskFacts(
                    group.group_name,
                    group.pods,
                    has_chips=group.template.has_chips,
                    scheduler_name=group.template.scheduler_name,
                )
                for group in groups
            ),
        ),
    )


def _job_set_facts(owner: JobSet) -> OwnerFacts:
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
            _or_one(job.replicas) * job.template.spec.width,
            job.template.spec.width,
            job.template.spec.template.has_chips,
            is_later=bool(job.depends_on) or (one_by_one and place > 0),
            scheduler_name=job.template.spec.template.scheduler_name,
        )
        for place, job in enumerate(jobs)
    )
    schedulers = (job.template.spec.template.scheduler_name for job in jobs)
    status = owner.status or JobSetStatus()
    succeeded = {one.name: one.succeeded or 0 for one in status.replicated_jobs_status or ()}
    return OwnerFacts(
        kind="JobSet",
        ended=sum(succeeded.get(task.name, 0) * task.width for task in tasks if not task.is_later),
        final=_final(status.conditions, _JOB_SET_FINAL),
        scheduler_name=next((name for name in schedulers if name), ""),
        suspended=bool(owner.spec.suspend),
        min_count=sum(
            _or_one(job.replicas) if _leads(owner, job) else task.pods
            for task, job in zip(tasks, jobs, strict=True)
            if not task.is_later
        ),
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


__all__ = ["OwnerFacts", "TaskFacts", "owner_facts"]
