"""The Ascend operator as schedulers see it: a PodGroup, and pods with ranks after its admission. Pure.

Source: docs/reference/kubernetes.md, "Life of a pod" and "Volcano PodGroups"; MindCluster, ``mindxdl.gitee.com/v1``.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from berth.formats.ascend.fault_counters import job_key
from berth.formats.ascend.pod_annotations import OPERATOR_NAME, RANK_INDEX, RESOURCE_PREFIX
from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod
from berth.lab.nodesim.controllers.gang_children import (
    TASK_SPEC,
    Action,
    Children,
    Counted,
    DecidedStatuses,
    DeletePods,
    DesiredPod,
    MakeGroup,
    MakePods,
    PendingDeletions,
    Template,
    counted,
    delete_all,
    group_body,
    is_live,
    min_resources,
    missing,
    owner_of,
    pod_body,
    schedulers_of,
    stale_pods,
)
from berth.lab.nodesim.controllers.hot_switch import switch_actions, without_backed_up
from berth.lab.nodesim.stamps import stamp
from berth.schemas.units import UnixMs

API_VERSION: Final = "mindxdl.gitee.com/v1"
KIND: Final = "AscendJob"
JOB_NAME: Final = "training.kubeflow.org/job-name"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
OPERATOR: Final = "ascendjob-controller"
RETRY_TIMES: Final = "fault-retry-times"
"""Label of a job: how often failed pods are recreated, where ``backoffLimit`` is not set."""
_RESTARTING: Final = frozenset({"Always", "OnFailure", "ExitCode"})
_OVER: Final = frozenset({"Succeeded", "Failed"})


class SchedulingPolicy(Lean, frozen=True):
    """Scheduling policy of the pods."""

    min_available: int | None = None
    queue: str = ""
    priority_class: str = ""
    min_resources: dict[str, str | int | float] | None = None


class RunPolicy(Lean, frozen=True):
    """Run policy of the job."""

    backoff_limit: int | None = None
    clean_pod_policy: str = "Running"
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()


class ReplicaSpec(Lean, frozen=True):
    """Equal pods of a job."""

    replicas: int = 1
    restart_policy: str = "Never"
    template: dict[str, Any] = {}


class AscendJobSpec(Lean, frozen=True):
    """Specification of a job."""

    scheduler_name: str = ""
    run_policy: RunPolicy = RunPolicy()
    replica_specs: dict[str, ReplicaSpec] = {}


class AscendJob(Lean, frozen=True):
    """An AscendJob."""

    metadata: Meta = Meta()
    spec: AscendJobSpec = AscendJobSpec()
    status: dict[str, Any] = {}


class AscendRules:
    """The operator; it remembers the failures that it has handled.

    Args:
        retries: How often failed pods may still restart a job, by ``<namespace>/<name>-<uid>``, as the scheduler says;
            None: the operator counts, and makes failed pods anew by itself.
    """

    group_version: Final = API_VERSION
    plural: Final = "ascendjobs"
    kind: Final = AscendJob
    kind_name: Final = KIND
    pod_label: Final = JOB_NAME

    def __init__(self, retries: Callable[[str], int] | None = None) -> None:
        self._retries = retries
        self._decided = DecidedStatuses()
        self._pending_deletions = PendingDeletions()
        self._handled: dict[str, set[str]] = {}

    def group_name(self, job: AscendJob) -> str:
        """Name of a job's PodGroup."""
        return f"{job.metadata.name}-{job.metadata.uid}"

    def schedulers(self, job: AscendJob) -> frozenset[str]:
        """Schedulers of a job's pods."""
        return schedulers_of((spec.template for spec in job.spec.replica_specs.values()), job.spec.scheduler_name)

    def reconcile(self, job: AscendJob | None, children: Children, now_ms: UnixMs) -> list[Action]:
        """Actions for a job; without a job all its children are deleted."""
        if job is None or job.metadata.deletion_timestamp is not None:
            return delete_all(children)
        observed = job.status
        job = msgspec.structs.replace(job, status=self._decided.current(job.metadata.uid, observed))
        actions: list[Action] = []
        old = stale_pods(children, job.metadata)
        if old:
            actions.append(DeletePods(old))
        state = _state(job)
        own = children.own(job.metadata)
        desired_pods = desired_pods_of(job)
        if state not in _OVER:
            if children.group is None:
                actions.append(MakeGroup(self._group(job)))
            state = _next_state(self._after_failures(job, own, state), len(desired_pods), counted(own))
            if state == "Failed" and job.spec.run_policy.clean_pod_policy in {"Running", "All"}:
                self._pending_deletions.add(pod for pod in own if is_live(pod))
        actions += self._pending_deletions.deletions(own)
        if state not in _OVER and children.may_have_pods:
            actions += self._pods(job, desired_pods, children, own)
        status = job.status if _state(job) in _OVER else _status(job, own, state, now_ms)
        return [*actions, *self._decided.set(job.metadata.uid, status, observed)]

    def _pods(self, job: AscendJob, desired_pods: list[DesiredPod], children: Children, own: list[Pod]) -> list[Action]:
        """Pods to make: missing ones, and backups of a hot switch."""
        owner = owner_of(job.metadata, api_version=API_VERSION, kind=KIND)
        group, scheduler = self.group_name(job), job.spec.scheduler_name
        bodies = {one.name: pod_body(one, job.metadata, owner, group, scheduler) for one in desired_pods}
        wanted = without_backed_up(missing(desired_pods, children.pods), own)
        makes: list[Action] = [MakePods([bodies[one.name] for one in wanted])] if wanted else []
        return [*makes, *switch_actions(own, bodies)]

    def _after_failures(self, job: AscendJob, own: list[Pod], state: str) -> str:
        """State after pods that failed since the last call."""
        handled = self._handled.setdefault(job.metadata.uid, set())
        failed = [pod for pod in own if pod.status.phase == "Failed" and pod.metadata.uid not in handled]
        if self._retries is not None and job.metadata.label(RETRY_TIMES) not in {"", "0"}:
            handled.update(pod.metadata.uid for pod in failed)  # the scheduler deletes them
            key = job_key(job.metadata.namespace, self.group_name(job))
            return state if not failed else "Restarting" if self._retries(key) >= 1 else "Failed"
        for pod in failed:
            if not _may_restart(job, pod, len(handled)):
                return "Failed"
            handled.add(pod.metadata.uid)
            self._pending_deletions.add([pod])
        return "Restarting" if failed else state

    def _group(self, job: AscendJob) -> dict[str, Any]:
        policy = job.spec.run_policy.scheduling_policy
        specs = ordered(job)
        total = sum(spec.replicas for _, spec in specs)
        least = total if policy.min_available is None else policy.min_available
        templates: list[tuple[Template, int]] = [(spec.template, spec.replicas) for _, spec in specs]
        meta = job.metadata
        labels = dict(meta.labels or {})
        if "recover-strategy" in (meta.annotations or {}):
            labels["process-recover-enable"] = "on"
        return group_body(
            self.group_name(job),
            meta.namespace,
            owner_of(meta, api_version=API_VERSION, kind=KIND),
            {
                "minMember": least,
                "minTaskMember": {kind.lower(): spec.replicas for kind, spec in specs},
                "queue": policy.queue,
                "priorityClassName": policy.priority_class,
                "minResources": policy.min_resources or min_resources(templates, least),
            },
            labels=labels,
            annotations=meta.annotations,
        )


def ordered(job: AscendJob) -> list[tuple[str, ReplicaSpec]]:
    """Replica types in order of rank; unknown ones come last, by name."""
    specs = job.spec.replica_specs
    rest = sorted(kind for kind in specs if kind not in REPLICA_TYPES)
    return [(kind, specs[kind]) for kind in (*REPLICA_TYPES, *rest) if kind in specs]


def desired_pods_of(job: AscendJob) -> list[DesiredPod]:
    """All pods of a job in order of rank. Pods without chips have no rank: they are not in the rank table."""
    meta = job.metadata
    desired_pods: list[DesiredPod] = []
    rank = 0
    for kind, spec in ordered(job):
        word = kind.lower()
        has_chips = _has_chips(spec.template)
        for index in range(spec.replicas):
            annotations = {TASK_SPEC: word}
            if has_chips:
                annotations[RANK_INDEX] = str(rank)
                rank += 1
            labels = {
                JOB_NAME: meta.name,
                REPLICA_TYPE: word,
                REPLICA_INDEX: str(index),
                OPERATOR_NAME: OPERATOR,
            }
            if kind in {"Master", "Chief", "Scheduler"}:
                labels["training.kubeflow.org/job-role"] = "master"
            desired_pods.append(
                DesiredPod(f"{meta.name}-{word}-{index}", word, index, spec.template, labels, annotations)
            )
    return desired_pods


def _has_chips(template: Template) -> bool:
    for container in (template.get("spec") or {}).get("containers") or ():
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        if any(name.startswith(RESOURCE_PREFIX) for name in asked):
            return True
    return False


def _may_restart(job: AscendJob, pod: Pod, restarts: int) -> bool:
    """Whether a failed pod is recreated: by its type or the job's label, up to the limit."""
    word = pod.metadata.label(REPLICA_TYPE)
    spec = next((spec for kind, spec in ordered(job) if kind.lower() == word), ReplicaSpec())
    times = job.metadata.label(RETRY_TIMES)
    limit = int(times) if times.isascii() and times.isdigit() else None
    if spec.restart_policy not in _RESTARTING and not limit:
        return False
    most = job.spec.run_policy.backoff_limit if limit is None else limit
    return most is None or restarts < most


def _next_state(state: str, desired_pods: int, counts: Counted) -> str:
    if state in _OVER or not desired_pods:
        return state
    if counts.succeeded >= desired_pods:
        return "Succeeded"
    return "Running" if counts.running and counts.running + counts.succeeded >= desired_pods else state


def _state(job: AscendJob) -> str:
    """Type of the newest true condition; empty without one."""
    found = [item for item in job.status.get("conditions") or () if item.get("status") == "True"]
    return str(found[-1].get("type", "")) if found else ""


def _status(job: AscendJob, own: list[Pod], state: str, now_ms: UnixMs) -> dict[str, Any]:
    conditions = list(job.status.get("conditions") or ())
    state = state or "Created"
    if state != _state(job):
        at = stamp(now_ms)
        conditions = [
            *(
                {**item, "status": "False"} if item["type"] != "Created" else item
                for item in conditions
                if item["type"] != state
            ),
            {"type": state, "status": "True", "lastTransitionTime": at, "lastUpdateTime": at, "reason": f"Job{state}"},
        ]
    replicas = {}
    for kind, _ in ordered(job):
        pods = [pod for pod in own if pod.metadata.label(REPLICA_TYPE) == kind.lower()]
        counts = counted(pods)
        replicas[kind] = {"active": counts.running, "succeeded": counts.succeeded, "failed": counts.failed}
    found: dict[str, Any] = {**job.status, "conditions": conditions, "replicaStatuses": replicas}
    if state in _OVER:
        found.setdefault("completionTime", stamp(now_ms))
    return found
