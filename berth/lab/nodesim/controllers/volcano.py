"""Volcano's controller of Jobs as schedulers see it: a PodGroup, and pods after its admission. Pure.

A restart replaces the PodGroup: another one of the same name comes when the first is gone, and new pods when that one
is admitted, whether or not old pods still end or run on. The end of a job deletes the PodGroup; ended pods stay.

Source: docs/reference/kubernetes.md, "Life of a pod" and "Volcano PodGroups"; Volcano, ``batch.volcano.sh/v1alpha1``.
"""

from typing import Any, Final, NamedTuple

import msgspec

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod
from berth.lab.nodesim.controllers.gang_children import (
    DEFAULT_QUEUE,
    TASK_SPEC,
    Action,
    AnnotatePod,
    Children,
    Counted,
    DecidedStatuses,
    DeleteGroup,
    DeletePods,
    DesiredPod,
    MakeGroup,
    MakePods,
    PendingDeletions,
    SetGroupSpec,
    Template,
    counted,
    delete_all,
    group_body,
    is_ending,
    is_live,
    min_resources,
    missing,
    owner_of,
    pod_body,
    schedulers_of,
    stale_pods,
)
from berth.lab.nodesim.stamps import stamp
from berth.schemas.units import UnixMs

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
KIND: Final = "Job"
JOB_NAME: Final = "volcano.sh/job-name"
MAX_RETRY_DEFAULT: Final = 3
_FINAL: Final = {
    "AbortJob": "Aborted",
    "TerminateJob": "Terminated",
    "CompleteJob": "Completed",
}
_RESTARTS: Final = frozenset({"RestartJob", "RestartTask", "RestartPod", "RestartPartition"})
_OVER: Final = frozenset({"Aborted", "Terminated", "Completed", "Failed"})
_RESTARTING: Final = "Restarting"
_OUT_OF_SYNC: Final = {"volcano.sh/controller-out-of-sync": "true"}
"""Annotation of a pod that is about to be deleted for a policy."""


class Policy(Lean, frozen=True):
    """Action for an event of a pod."""

    event: str = ""
    events: list[str] | None = None
    action: str = ""


class VolcanoTask(Lean, frozen=True):
    """Equal pods of a job."""

    name: str = ""
    replicas: int = 1
    min_available: int | None = None
    template: dict[str, Any] = {}
    policies: list[Policy] | None = None


class VolcanoJobSpec(Lean, frozen=True):
    """Specification of a job."""

    scheduler_name: str = "volcano"
    min_available: int | None = None
    min_success: int | None = None
    tasks: list[VolcanoTask] = []
    policies: list[Policy] | None = None
    queue: str = DEFAULT_QUEUE
    priority_class_name: str = ""
    max_retry: int = MAX_RETRY_DEFAULT


class VolcanoJob(Lean, frozen=True):
    """A Volcano Job."""

    metadata: Meta = Meta()
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: dict[str, Any] = {}


class _PodEvent(NamedTuple):
    """Event of a pod, in Volcano's terms."""

    uid: str
    task: str
    event: str


class VolcanoRules:
    """The controller; it remembers the events that it has handled."""

    group_version: Final = API_VERSION
    plural: Final = "jobs"
    kind: Final = VolcanoJob
    kind_name: Final = KIND
    pod_label: Final = JOB_NAME

    def __init__(self) -> None:
        self._decided = DecidedStatuses()
        self._pending_deletions = PendingDeletions()
        self._handled: set[str] = set()
        """Pods whose failure was handled."""
        self._seen: dict[str, dict[str, str]] = {}
        """Task of each pod that has not succeeded, by uid of the pod, by job."""
        self._replaced: dict[str, str] = {}
        """PodGroup (uid) that a restart replaces, by job."""

    def group_name(self, job: VolcanoJob) -> str:
        """Name of a job's PodGroup."""
        return f"{job.metadata.name}-{job.metadata.uid}"

    def schedulers(self, job: VolcanoJob) -> frozenset[str]:
        """Schedulers of a job's pods."""
        return schedulers_of((task.template for task in job.spec.tasks), job.spec.scheduler_name)

    def reconcile(self, job: VolcanoJob | None, children: Children, now_ms: UnixMs) -> list[Action]:
        """Actions for a job; without a job all its children are deleted."""
        if job is None or job.metadata.deletion_timestamp is not None:
            return delete_all(children)
        observed = job.status
        job = msgspec.structs.replace(job, status=self._decided.current(job.metadata.uid, observed))
        actions: list[Action] = []
        old = stale_pods(children, job.metadata)
        if old:
            actions.append(DeletePods(old))
        phase, retries = _phase(job), int(job.status.get("retryCount", 0))
        own = children.own(job.metadata)
        if phase not in _OVER:
            phase, retries = self._after_pod_events(job, children, phase, retries, actions)
            self._pending_deletions.add(_surplus(job, own))
        actions += self._pending_deletions.deletions(own)
        counts = counted(own)
        if phase not in _OVER:
            is_restarting = any(self._pending_deletions.has(pod.metadata.uid) for pod in own)
            phase = _next_phase(job, counts, phase, is_restarting=is_restarting)
        actions += self._group_actions(job, children, is_over=phase in _OVER)
        wanted = missing(desired_pods_of(job, retries), children.pods)
        if phase not in _OVER and self._is_admitted(job, children) and wanted:
            owner = owner_of(job.metadata, api_version=API_VERSION, kind=KIND)
            group, scheduler = self.group_name(job), job.spec.scheduler_name
            actions.append(
                MakePods([pod_body(desired_pod, job.metadata, owner, group, scheduler) for desired_pod in wanted])
            )
        status = job.status if _phase(job) in _OVER else _status(job, phase, counts, retries, now_ms)
        return [*actions, *self._decided.set(job.metadata.uid, status, observed)]

    def _after_pod_events(
        self, job: VolcanoJob, children: Children, phase: str, retries: int, actions: list[Action]
    ) -> tuple[str, int]:
        """Phase and retries after the policies for pods that failed or vanished since the last call."""
        own = children.own(job.metadata)
        for event in self._pod_events(job, own):
            action = _action(job, event)
            if not action:
                continue
            # The last retry is counted and not made.
            retries += action in _RESTARTS
            if action in _FINAL or retries >= job.spec.max_retry:
                self._pending_deletions.add(pod for pod in own if is_live(pod))
                return _FINAL.get(action, "Failed"), retries
            phase = _RESTARTING
            ended = [pod for pod in own if _is_restarted(pod, event, action)]
            actions += [AnnotatePod(pod, dict(_OUT_OF_SYNC)) for pod in ended if not is_ending(pod)]
            self._pending_deletions.add(ended)
            self._handled.update(pod.metadata.uid for pod in ended)
            if children.group is not None:
                self._replaced[job.metadata.uid] = children.group.metadata.uid
            if action == "RestartJob":
                break
        return phase, retries

    def _group_actions(self, job: VolcanoJob, children: Children, *, is_over: bool) -> list[Action]:
        """Actions after which a job that is not over has the PodGroup that it wants."""
        group, spec = children.group, self._group_spec(job)
        if group is None:
            return [] if is_over else [MakeGroup(self._group(job, spec))]
        if is_over or self._replaced.get(job.metadata.uid) == group.metadata.uid:
            return [DeleteGroup(group)]
        found = group.spec
        known = (found.min_member, found.min_task_member, found.min_resources)
        if known == (spec["minMember"], spec["minTaskMember"], spec["minResources"]):
            return []
        return [SetGroupSpec(group, {key: spec[key] for key in ("minMember", "minTaskMember", "minResources")})]

    def _is_admitted(self, job: VolcanoJob, children: Children) -> bool:
        """Whether the scheduler has admitted the PodGroup, and no restart replaces it."""
        group = children.group
        is_replaced = group is not None and self._replaced.get(job.metadata.uid) == group.metadata.uid
        return children.may_have_pods and not is_replaced

    def _pod_events(self, job: VolcanoJob, own: list[Pod]) -> list[_PodEvent]:
        """Pods that failed, or that were deleted by others before they finished; each once."""
        seen = self._seen.setdefault(job.metadata.uid, {})
        present = {pod.metadata.uid for pod in own}
        found: list[_PodEvent] = []
        for uid in [uid for uid in seen if uid not in present]:
            task = seen.pop(uid)
            if not (self._pending_deletions.has(uid) or uid in self._handled):
                found.append(_PodEvent(uid, task, "PodEvicted"))
            self._pending_deletions.forget(uid)
            self._handled.discard(uid)
        for pod in own:
            uid, task = pod.metadata.uid, pod.metadata.annotation(TASK_SPEC)
            if pod.status.phase == "Succeeded":
                seen.pop(uid, None)
                continue
            seen[uid] = task
            if pod.status.phase == "Failed" and uid not in self._handled:
                self._handled.add(uid)
                found.append(_PodEvent(uid, task, "PodFailed"))
        return found

    def _group_spec(self, job: VolcanoJob) -> dict[str, Any]:
        least = min_available(job)
        return {
            "minMember": least,
            "minTaskMember": {
                task_name(job, index): task.replicas if task.min_available is None else task.min_available
                for index, task in enumerate(job.spec.tasks)
            },
            "queue": job.spec.queue,
            "priorityClassName": job.spec.priority_class_name,
            "minResources": min_resources(templates_of(job), least),
        }

    def _group(self, job: VolcanoJob, spec: dict[str, Any]) -> dict[str, Any]:
        """The PodGroup: the scheduler is the first to write a phase."""
        owner = owner_of(job.metadata, api_version=API_VERSION, kind=KIND)
        meta = job.metadata
        body = group_body(
            self.group_name(job), meta.namespace, owner, spec, labels=meta.labels, annotations=meta.annotations
        )
        return {**body, "status": {}}


def task_name(job: VolcanoJob, index: int) -> str:
    """Name of a task; the default is ``default<index>``."""
    return job.spec.tasks[index].name or f"default{index}"


def min_available(job: VolcanoJob) -> int:
    """Pods that must start together."""
    found = job.spec.min_available
    return sum(task.replicas for task in job.spec.tasks) if found is None else found


def templates_of(job: VolcanoJob) -> list[tuple[Template, int]]:
    """Template and number of pods of each task."""
    return [(task.template, task.replicas) for task in job.spec.tasks]


def desired_pods_of(job: VolcanoJob, retries: int = 0) -> list[DesiredPod]:
    """All pods of a job that has been restarted some times, tasks in order."""
    meta = job.metadata
    desired_pods = []
    for position, task in enumerate(job.spec.tasks):
        name = task_name(job, position)
        for index in range(task.replicas):
            common = {
                JOB_NAME: meta.name,
                "volcano.sh/queue-name": job.spec.queue,
                TASK_SPEC: name,
                "volcano.sh/task-index": str(index),
            }
            desired_pods.append(
                DesiredPod(
                    name=f"{meta.name}-{name}-{index}",
                    task=name,
                    index=index,
                    template=task.template,
                    labels={**common, "volcano.sh/job-namespace": meta.namespace},
                    annotations={
                        **common,
                        "volcano.sh/job-version": "0",
                        "volcano.sh/job-retry-count": str(retries),
                        "volcano.sh/template-uid": f"{meta.name}-{name}",
                    },
                    env={"VC_TASK_INDEX": str(index), "VK_TASK_INDEX": str(index)},
                )
            )
    return desired_pods


def _phase(job: VolcanoJob) -> str:
    state = job.status.get("state")
    return str(state.get("phase", "")) if isinstance(state, dict) else ""


def _action(job: VolcanoJob, event: _PodEvent) -> str:
    """Action by the policies of the pod's task, then of the job; empty for none."""
    tasks = job.spec.tasks
    own = next((item for index, item in enumerate(tasks) if task_name(job, index) == event.task), None)
    for policy in [*((own.policies if own else None) or ()), *(job.spec.policies or ())]:
        if {policy.event, *(policy.events or ())} & {event.event, "*"}:
            return policy.action if policy.action in _FINAL or policy.action in _RESTARTS else ""
    return ""


def _is_restarted(pod: Pod, event: _PodEvent, action: str) -> bool:
    """Whether an action for an event of a pod ends another pod of its job, or that one."""
    if action == "RestartPod":
        return pod.metadata.uid == event.uid
    return action == "RestartJob" or pod.metadata.annotation(TASK_SPEC) == event.task


def _surplus(job: VolcanoJob, own: list[Pod]) -> list[Pod]:
    """Pods of a job that it wants no more, since it was made smaller."""
    wanted = {desired_pod.name for desired_pod in desired_pods_of(job)}
    return [pod for pod in own if pod.metadata.name not in wanted and is_live(pod)]


def _next_phase(job: VolcanoJob, counts: Counted, phase: str, *, is_restarting: bool) -> str:
    total = sum(task.replicas for task in job.spec.tasks)
    least = min_available(job)
    ended = counts.succeeded + counts.failed
    if is_restarting and phase == _RESTARTING:
        return phase
    if total and ended >= total:
        enough = job.spec.min_success if job.spec.min_success is not None else least
        return "Completed" if counts.succeeded >= enough else "Failed"
    if counts.running + ended >= least and counts.running:
        return "Running"
    return "Pending" if phase in {"", _RESTARTING} else phase


def _status(job: VolcanoJob, phase: str, counts: Counted, retries: int, now_ms: UnixMs) -> dict[str, Any]:
    same = phase == _phase(job)
    state = job.status["state"] if same else {"phase": phase, "lastTransitionTime": stamp(now_ms)}
    found: dict[str, Any] = {**job.status, "state": state, "minAvailable": min_available(job)}
    numbers = {
        "pending": counts.pending,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "terminating": counts.terminating,
        "retryCount": retries,
    }
    return {**found, **numbers}
