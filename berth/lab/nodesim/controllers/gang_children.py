"""Objects that controllers of jobs create: PodGroups and pods of a template. Pure.

Source: docs/reference/kubernetes.md, "Pod annotations" and "Volcano PodGroups".
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from berth.formats.ascend.pod_annotations import GROUP_NAME, RESOURCE_PREFIX
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.manifests.gang_request import RUN_FOR
from berth.formats.quantities import QuantityError, cpu_milli, memory_mib, pieces

GROUP_VERSION: Final = "scheduling.volcano.sh/v1beta1"
GROUPS: Final = "podgroups"
PENDING: Final = "Pending"
TASK_SPEC: Final = "volcano.sh/task-spec"
DEFAULT_QUEUE: Final = "default"
Template: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DesiredPod:
    """A pod that a job wants: its task, index and template."""

    name: str
    task: str
    index: int
    template: Template
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Children:
    """Children of a job, and of earlier jobs of its name, that are the controller's: its PodGroup, and pods by name."""

    group: PodGroup | None
    pods: Mapping[str, Pod]

    @property
    def may_have_pods(self) -> bool:
        """Whether the scheduler has admitted the PodGroup."""
        return self.group is not None and self.group.status.phase not in {"", PENDING}

    def own(self, job: Meta) -> list[Pod]:
        """Pods of this job, not of an earlier job of its name."""
        return [pod for pod in self.pods.values() if _uid_of_owner(pod) == job.uid]


@dataclass(frozen=True, slots=True)
class MakeGroup:
    """Create the PodGroup."""

    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class MakePods:
    """Create pods."""

    bodies: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete pods."""

    pods: list[Pod]


@dataclass(frozen=True, slots=True)
class AnnotatePod:
    """Set annotations of a pod; None removes one."""

    pod: Pod
    annotations: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class DeleteGroup:
    """Delete the PodGroup."""

    group: PodGroup


@dataclass(frozen=True, slots=True)
class SetGroupSpec:
    """Change fields of the PodGroup's spec."""

    group: PodGroup
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SetJobStatus:
    """Write the status of the job with this uid."""

    uid: str
    status: dict[str, Any]


Action: TypeAlias = MakeGroup | MakePods | DeletePods | AnnotatePod | DeleteGroup | SetGroupSpec | SetJobStatus


@dataclass(frozen=True, slots=True)
class Counted:
    """Pods by phase; pods that are being deleted count as terminating only."""

    pending: int
    running: int
    succeeded: int
    failed: int
    terminating: int


def owner_of(meta: Meta, *, api_version: str, kind: str) -> dict[str, Any]:
    """Owner reference to a job."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def group_body(
    name: str,
    namespace: str,
    owner: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """PodGroup in phase Pending; empty fields of the spec are left out."""
    return {
        "apiVersion": GROUP_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
            "ownerReferences": [dict(owner)],
        },
        "spec": {key: value for key, value in spec.items() if value not in ("", None, {})},
        "status": {"phase": PENDING},
    }


def pod_body(
    desired_pod: DesiredPod, job: Meta, owner: Mapping[str, Any], group: str, scheduler: str
) -> dict[str, Any]:
    """Body of a desired pod.

    Args:
        desired_pod: The desired pod.
        job: Metadata of the job; its annotation ``berth/run-for`` applies to pods that have none.
        owner: Reference to the job.
        group: Name of its PodGroup.
        scheduler: Scheduler of pods whose template names none; empty for the cluster's default.
    """
    metadata = desired_pod.template.get("metadata") or {}
    spec = dict(desired_pod.template.get("spec") or {})
    if scheduler and not spec.get("schedulerName"):
        spec["schedulerName"] = scheduler
    env = [{"name": name, "value": value} for name, value in desired_pod.env.items()]
    spec["containers"] = [
        {**container, "env": [*(container.get("env") or ()), *env]} for container in spec.get("containers") or ()
    ]
    run_for = {RUN_FOR: job.annotation(RUN_FOR)} if job.annotation(RUN_FOR) else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": desired_pod.name,
            "namespace": job.namespace,
            "labels": {**(metadata.get("labels") or {}), **desired_pod.labels},
            "annotations": {
                **run_for,
                **(metadata.get("annotations") or {}),
                **desired_pod.annotations,
                GROUP_NAME: group,
            },
            "ownerReferences": [dict(owner)],
        },
        "spec": spec,
    }


def min_resources(templates: Iterable[tuple[Template, int]], pods: int) -> dict[str, str]:
    """Sum of the requests of the first ``pods`` pods: CPU, memory and chips.

    Args:
        templates: Template and number of pods of each task, in order.
        pods: Number of pods that count.
    """
    cpu = memory = 0
    chips: dict[str, int] = {}
    for template, count in templates:
        taken = min(count, pods)
        pods -= taken
        for container in (template.get("spec") or {}).get("containers") or ():
            resources = container.get("resources") or {}
            asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            try:
                cpu += taken * cpu_milli(asked.get("cpu", 0))
                memory += taken * memory_mib(asked.get("memory", 0))
                for name in sorted(asked):
                    if name.startswith(RESOURCE_PREFIX):
                        chips[name] = chips.get(name, 0) + taken * pieces(asked[name])
            except QuantityError:
                continue
    found = {"cpu": f"{cpu}m"} if cpu else {}
    if memory:
        found["memory"] = f"{memory}Mi"
    return {**found, **{name: str(count) for name, count in chips.items() if count}}


class DecidedStatuses:
    """Statuses of jobs as last decided, until the API shows them: the observed status may be older."""

    def __init__(self) -> None:
        self._decided: dict[str, dict[str, Any]] = {}

    def current(self, uid: str, observed: dict[str, Any]) -> dict[str, Any]:
        """Status of a job: the decided one, otherwise the observed one."""
        known = self._decided.get(uid, observed)
        if known == observed:
            self._decided.pop(uid, None)
        return known

    def set(self, uid: str, status: dict[str, Any], observed: dict[str, Any]) -> list[Action]:
        """Actions after which the API shows a status."""
        if status == observed:
            return []
        self._decided[uid] = status
        return [SetJobStatus(uid, status)]


class PendingDeletions:
    """Pods to delete, until they are gone: a deletion that failed is requested again."""

    def __init__(self) -> None:
        self._uids: set[str] = set()

    def add(self, pods: Iterable[Pod]) -> None:
        """Add pods to delete."""
        self._uids.update(pod.metadata.uid for pod in pods)

    def has(self, uid: str) -> bool:
        """Whether a pod must be deleted."""
        return uid in self._uids

    def forget(self, uid: str) -> None:
        """Drop a pod that is gone."""
        self._uids.discard(uid)

    def deletions(self, pods: Iterable[Pod]) -> list[Action]:
        """Actions for those among ``pods`` that are not being deleted yet."""
        found = [pod for pod in pods if pod.metadata.uid in self._uids and not is_ending(pod)]
        return [DeletePods(found)] if found else []


def schedulers_of(templates: Iterable[Template], scheduler: str) -> frozenset[str]:
    """Schedulers of the pods of a job.

    Args:
        templates: Template of each task.
        scheduler: Scheduler of pods whose template names none.
    """
    return frozenset((template.get("spec") or {}).get("schedulerName") or scheduler for template in templates)


def counted(pods: Iterable[Pod]) -> Counted:
    """Pods by phase."""
    found = {"Pending": 0, "Running": 0, "Succeeded": 0, "Failed": 0, "Terminating": 0}
    for pod in pods:
        phase = "Terminating" if is_ending(pod) else pod.status.phase or "Pending"
        found[phase] = found.get(phase, 0) + 1
    return Counted(found["Pending"], found["Running"], found["Succeeded"], found["Failed"], found["Terminating"])


def is_ending(pod: Pod) -> bool:
    """Whether a pod is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def is_live(pod: Pod) -> bool:
    """Whether a pod is neither finished nor being deleted."""
    return not is_ending(pod) and pod.status.phase not in {"Succeeded", "Failed"}


def missing(desired_pods: Sequence[DesiredPod], pods: Mapping[str, Pod]) -> list[DesiredPod]:
    """Desired pods without a pod of their name."""
    return [desired_pod for desired_pod in desired_pods if desired_pod.name not in pods]


def stale_pods(children: Children, job: Meta) -> list[Pod]:
    """Pods of an earlier job of the name, without those that are being deleted."""
    return [pod for pod in children.pods.values() if not is_ending(pod) and _uid_of_owner(pod) != job.uid]


def delete_all(children: Children) -> list[Action]:
    """Actions after the deletion of the job: all its children are deleted."""
    actions: list[Action] = []
    pods = [pod for pod in children.pods.values() if not is_ending(pod)]
    if pods:
        actions.append(DeletePods(pods))
    if children.group is not None:
        actions.append(DeleteGroup(children.group))
    return actions


def _uid_of_owner(pod: Pod) -> str:
    owner = pod.metadata.controller
    return "" if owner is None else owner.uid
