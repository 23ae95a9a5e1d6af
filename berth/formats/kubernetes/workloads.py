"""Gang of a pod, and the place of the pod in it.

Annotations, labels and the controller of a pod name its gang. The size of the gang is often only in another object;
then that object is named, and the caller reads it.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of other systems" and "Resolution of the gang";
docs/reference/nodes-and-chips.md, "Pod annotations of chips".
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from berth.formats.ascend.pod_annotations import GROUP_NAME, RANK_INDEX
from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.lean import OwnerReference
from berth.formats.kubernetes.objects import Pod, PodGroup
from berth.formats.kubernetes.owners import KINDS, OwnerKey, OwnerKind, kind_of
from berth.formats.shortened import shortened
from berth.schemas.facts import Owner

LWS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
LWS_GROUP_KEY: Final = "leaderworkerset.sigs.k8s.io/group-key"
LWS_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
JOBSET_NAME: Final = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID: Final = "jobset.sigs.k8s.io/jobset-uid"
JOBSET_TASK: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
CO_GROUP: Final = "scheduling.x-k8s.io/pod-group"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_INDEX: Final = "apps.kubernetes.io/pod-index"
REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
RAY_GROUP: Final = "ray.io/group"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
TASK_SPEC: Final = "volcano.sh/task-spec"
TASK_INDEX: Final = "volcano.sh/task-index"
TASK_INDEX_VARIABLE: Final = "VC_TASK_INDEX"
WORKER: Final = "worker"
"""Task of pods without a task name."""

_SHORT: Final = {
    ("batch.volcano.sh", "Job"): "vcjob",
    ("mindxdl.gitee.com", "AscendJob"): "acjob",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "lws",
}
"""Kinds whose name here is not their own in lower case."""
KIND_BY_WORD: Final[dict[str, OwnerKind]] = {
    _SHORT.get(named) or named[1].lower(): kind for named, kind in KINDS.items()
}
"""Kinds of controllers that can be read, by the first word of the names of their requests."""
_SAID_BY_GROUP: Final[frozenset[OwnerKind]] = frozenset(
    {"RayCluster", "PyTorchJob", "TFJob", "XGBoostJob", "MXJob", "PaddleJob", "JAXJob"}
)
"""Controllers whose pods are all made at once, and whose PodGroup has the rest."""
_BASE_LENGTH_MAX: Final = 253 - 1 - 16
"""The name of a request has at most 253 characters; the suffix of a part needs 17."""
_DIGITS: Final = re.compile(r"[0-9]{1,9}")
_LAST_NUMBER: Final = re.compile(r"^(.*?)([0-9]{1,9})$")
_HEADS: Final = ("launcher", "leader", "headgroup", *(kind.lower() for kind in REPLICA_TYPES if kind != "Worker"))
_ROLES: Final = {role: place for place, role in enumerate(_HEADS)}
"""Tasks to which the others report, in order of rank."""


class GangKey(NamedTuple):
    """Identity of a gang.

    Attributes:
        kind: ``podgroup``, ``native``, ``workload``, ``lws``, ``jobset``, ``cosched``, ``pod``, or the kind of the
            controller.
        namespace: Namespace of the pods.
        name: Name of the object that makes them a gang.
        uid: Its uid, if the pods have it: a later object of the same name is another gang.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""


class Membership(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Gang of a pod, and the place of the pod in it."""

    key: GangKey
    owner: Owner = Owner()
    look: OwnerKey | None = None
    """Object with the size of the gang; None if pods or PodGroup have it."""
    beneath: OwnerKey | None = None
    """Object that made the pods of a PodGroup, a StatefulSet or one that labels name: it may make them in turn."""
    size: int | None = None
    """Pods of the gang, if the pod has the number."""
    task: str = WORKER
    rank: int | None = None
    """Rank in the whole gang, if the pod has it."""
    index: int | None = None
    """Likewise, from its name and labels alone, without the annotation for the rank."""
    child: int = 0
    """Index of the child of the task's owner to which the pod belongs."""
    local: int | None = None
    """Index in the child or task, if the pod has it."""
    wrong: str = ""
    """Why the pod belongs to no gang, as the end of a sentence that begins with the pod; empty when it does."""

    @property
    def source(self) -> str:
        """Identity of the place of the pod: a pod with the same replaces it; empty if any pod of the task does."""
        return str(self.rank) if self.rank is not None else self.own_source

    @property
    def own_source(self) -> str:
        """:attr:`source` without the annotation for the rank, which the scheduler may have written."""
        if self.index is not None:
            return str(self.index)
        return f"{self.child}.{self.local}" if self.local is not None else ""


def membership(pod: Pod) -> Membership:
    """Gang of a pod, and the place of the pod in it.

    The first that applies: PodGroup annotation, native group, LeaderWorkerSet, JobSet, coscheduling label, controller,
    the pod alone.
    """
    found = _group(pod)
    rank = number(pod.metadata.annotation(RANK_INDEX))
    child, local, absolute = _place(pod)
    return msgspec.structs.replace(
        found,
        task=_task(pod),
        rank=rank if rank is not None else absolute,
        index=absolute,
        child=child,
        local=local,
        wrong=_claimed_twice(pod) or _wrong_rank(pod),
    )


def group_of(pod: Pod) -> GangKey | None:
    """Gang that a field, annotation or label of a pod names; None for a pod that only its controller has."""
    found = _declared(pod, Owner()) or _labelled(pod, Owner())
    return found.key if found is not None else None


def _claimed_twice(pod: Pod) -> str:
    """Which two PodGroups a pod names; empty when it names one at most. One name in two places is one PodGroup."""
    group = pod.spec.scheduling_group
    claims = {
        f"annotation {GROUP_NAME}": pod.metadata.annotation(GROUP_NAME),
        "spec.schedulingGroup.podGroupName": group.pod_group_name if group is not None else "",
        f"label {CO_GROUP}": pod.metadata.label(CO_GROUP),
    }
    named = [(name, place) for place, name in claims.items() if name]
    other = next(((name, place) for name, place in named[1:] if name != named[0][0]), None)
    if other is None:
        return ""
    return f"names two PodGroups, {named[0][0]} ({named[0][1]}) and {other[0]} ({other[1]}); name one"


def _wrong_rank(pod: Pod) -> str:
    """That the rank that a pod states is none: nobody would ever complete the rank table of its job; empty if it is."""
    stated = (pod.metadata.annotations or {}).get(RANK_INDEX)
    is_rank = stated is None or number(stated) is not None
    return "" if is_rank else f"has {RANK_INDEX} {shortened(stated)}: expected a whole number, the rank of the pod"


def _group(pod: Pod) -> Membership:
    meta = pod.metadata
    controller = meta.controller
    owner = Owner(controller.kind, controller.name, controller.uid) if controller is not None else Owner()
    found = _declared(pod, owner) or _labelled(pod, owner)
    if found is not None:
        return found
    if controller is None:
        return Membership(key=GangKey("pod", meta.namespace, meta.name, meta.uid))
    kind = kind_of(controller.api_version, controller.kind)
    return Membership(
        key=GangKey(short_kind(controller), meta.namespace, controller.name, controller.uid),
        owner=owner,
        look=OwnerKey(kind, meta.namespace, controller.name) if kind is not None else None,
    )


def _declared(pod: Pod, owner: Owner) -> Membership | None:
    """Gang named by a field or annotation of a scheduler."""
    namespace, spec = pod.metadata.namespace, pod.spec
    if name := pod.metadata.annotation(GROUP_NAME):
        beneath = _beneath(_labelled(pod, owner), pod)
        return Membership(key=GangKey("podgroup", namespace, name), owner=owner, beneath=beneath)
    if spec.scheduling_group is not None and (name := spec.scheduling_group.pod_group_name) and not _is_part(pod, name):
        native = OwnerKey("NativePodGroup", namespace, name)
        return Membership(key=GangKey("native", namespace, name), owner=owner, look=native)
    ref = spec.workload_ref
    if ref is None or not ref.name:
        return None
    name = ".".join(filter(None, (ref.name, ref.pod_group, ref.pod_group_replica_key)))
    workload = OwnerKey("Workload", namespace, ref.name, ref.pod_group)
    return Membership(key=GangKey("workload", namespace, name), owner=owner, look=workload)


def _is_part(pod: Pod, group: str) -> bool:
    """Whether a native PodGroup is that of one Job of a JobSet, whose Jobs are a gang together.

    The controller of Jobs makes it where the gate WorkloadWithJob is on, and begins its name with that of the Job.

    Source: Kubernetes 1.36, ``pkg/controller/job/job_scheduling_manager.go``.
    """
    job = pod.metadata.label(JOB_NAME)
    return bool(job and _label_or_annotation(pod, JOBSET_NAME)) and group.startswith(f"{job}-")


def _beneath(found: Membership | None, pod: Pod) -> OwnerKey | None:
    """Object that made a pod of a PodGroup and may make its pods in turn: by labels of a job system, or a StatefulSet.

    Args:
        found: Gang that the labels of the pod name, if they name one.
        pod: The pod.
    """
    if found is not None and found.key.kind == "lws":
        return OwnerKey("LeaderWorkerSet", found.key.namespace, found.owner.name)
    if found is not None:
        return found.look if found.key.kind == "jobset" else None
    controller = pod.metadata.controller
    if controller is None or kind_of(controller.api_version, controller.kind) != "StatefulSet":
        return None
    return OwnerKey("StatefulSet", pod.metadata.namespace, controller.name)


def _labelled(pod: Pod, owner: Owner) -> Membership | None:
    """Gang named by the labels of a job system."""
    meta = pod.metadata
    namespace = meta.namespace
    if (name := meta.label(LWS_NAME)) and (group_key := meta.label(LWS_GROUP_KEY)):
        size = number(meta.annotation(LWS_SIZE))
        key = GangKey("lws", namespace, f"{name}-{meta.label(LWS_GROUP_INDEX, '0')}", group_key)
        look = OwnerKey("LeaderWorkerSet", namespace, name) if size is None else None
        return Membership(key=key, owner=Owner("LeaderWorkerSet", name), look=look, size=size)
    if name := _label_or_annotation(pod, JOBSET_NAME):
        uid = _label_or_annotation(pod, JOBSET_UID)
        job_set = OwnerKey("JobSet", namespace, name)
        return Membership(key=GangKey("jobset", namespace, name, uid), owner=Owner("JobSet", name, uid), look=job_set)
    if name := meta.label(CO_GROUP):
        group = OwnerKey("CoPodGroup", namespace, name)
        return Membership(key=GangKey("cosched", namespace, name), owner=owner, look=group)
    return None


def short_kind(owner: OwnerReference) -> str:
    """Short name of the kind of a controller, for names of requests."""
    group = owner.api_version.rpartition("/")[0]
    return _SHORT.get((group, owner.kind)) or owner.kind.lower()


def group_owner(group: PodGroup) -> OwnerKey | None:
    """Controller of a Volcano PodGroup, if it can be read and says more than its operator wrote into the PodGroup."""
    owner = group.metadata.controller
    kind = kind_of(owner.api_version, owner.kind) if owner is not None else None
    if owner is None or kind is None or kind in _SAID_BY_GROUP:
        return None
    return OwnerKey(kind, group.metadata.namespace, owner.name)


def base_name(key: GangKey, group: PodGroup | None) -> str:
    """Name of the first request of a gang; the names of its other parts begin with it."""
    kind, name = key.kind, key.name
    owner = group.metadata.controller if group is not None else None
    if owner is not None:
        kind, name = short_kind(owner), owner.name
    base = f"{kind}.{name}"
    return base if len(base) <= _BASE_LENGTH_MAX else f"{base[: _BASE_LENGTH_MAX - 9]}-{digest([base], 8)}"


def digest(parts: Iterable[str], length: int) -> str:
    """Hexadecimal digits derived from texts; equal texts have equal digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:length]


def number(text: str) -> int | None:
    """Whole number of at most nine digits; None for any other text."""
    return int(text) if _DIGITS.fullmatch(text) else None


def _label_or_annotation(pod: Pod, key: str) -> str:
    return pod.metadata.label(key) or pod.metadata.annotation(key)


def _task(pod: Pod) -> str:
    """Task of a pod within its gang."""
    for key in (TASK_SPEC, REPLICA_TYPE, JOBSET_TASK, RAY_GROUP):
        if name := _label_or_annotation(pod, key):
            return name.lower()
    if pod.metadata.label(LWS_NAME) and pod.metadata.label(LWS_WORKER_INDEX) == "0":
        return "leader"
    return WORKER


def _place(pod: Pod) -> tuple[int, int | None, int | None]:
    """Child, index in its task, and rank in the gang, from the labels of the pod.

    Indexes that restart in each task or child are not ranks. Labels of an outer object come first, because its pods
    also carry those of the inner one.
    """
    meta = pod.metadata
    if (rank := number(meta.label(LWS_WORKER_INDEX))) is not None:
        return 0, None, rank
    completion = number(_label_or_annotation(pod, COMPLETION_INDEX))
    if _label_or_annotation(pod, JOBSET_NAME):
        return number(_label_or_annotation(pod, JOBSET_JOB_INDEX)) or 0, completion, None
    controller = meta.controller
    if controller is not None and controller.kind == "StatefulSet":
        ordinal = number(meta.label(POD_INDEX))
        return 0, None, ordinal if ordinal is not None else number(meta.name.rpartition("-")[2])
    local = _task_index(pod)
    return (0, local, None) if local is not None else (0, None, completion)


def _task_index(pod: Pod) -> int | None:
    """Index of a pod in its task: from the variable of Volcano, or from labels and annotations of the operators."""
    boxes = pod.spec.containers or ()
    variables = (item.value for box in boxes for item in box.env or () if item.name == TASK_INDEX_VARIABLE)
    texts = (next(variables, ""), _label_or_annotation(pod, REPLICA_INDEX), _label_or_annotation(pod, TASK_INDEX))
    return next((index for text in texts if (index := number(text)) is not None), None)


def natural(name: str) -> tuple[str, int]:
    """Sort key for names that end in a number: by that number."""
    match = _LAST_NUMBER.match(name)
    return (match[1], int(match[2])) if match else (name, -1)


def task_order(task: str, tasks: Mapping[str, int]) -> tuple[int, int, str]:
    """Place of a task: in the order of its owner, or masters first, then by name.

    Args:
        task: Name of the task.
        tasks: Tasks of the owner and their places; empty when unknown.
    """
    return (tasks.get(task, len(tasks)), _ROLES.get(task, len(_ROLES)), task)
