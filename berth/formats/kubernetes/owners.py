"""Owners of pods as lean structs, and their API paths.

Objects are read on demand, one at a time; of what watches show, nothing but the few numbers that are read is decoded.

Longer than 400 lines because it has a struct of every kind.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang"; Kubernetes, apps/v1, batch/v1, scheduling.k8s.io; Volcano, batch.volcano.sh/v1alpha1;
JobSet, jobset.x-k8s.io/v1alpha2; LeaderWorkerSet, leaderworkerset.x-k8s.io/v1; scheduler-plugins,
scheduling.x-k8s.io/v1alpha1.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.operator_jobs import AscendJob, KubeflowJob, OwnerCondition, RayCluster
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.whole_numbers import Int32

OwnerKind: TypeAlias = Literal[
    "ReplicaSet",
    "StatefulSet",
    "Job",
    "VolcanoJob",
    "AscendJob",
    "JobSet",
    "LeaderWorkerSet",
    "NativePodGroup",
    "Workload",
    "CoPodGroup",
    "RayCluster",
    "PyTorchJob",
    "TFJob",
    "MPIJob",
    "XGBoostJob",
    "MXJob",
    "PaddleJob",
    "JAXJob",
]
"""Kinds that can be read; if two APIs have a kind of one name, the entry names the API."""


class OwnerKey(NamedTuple):
    """An object to read."""

    kind: OwnerKind
    namespace: str
    name: str
    part: str = ""
    """Group of a Workload, which has several."""


class Ordinals(Lean, frozen=True):
    """Ordinals of the pods of a StatefulSet."""

    start: Int32 = 0


class SetSpec(Lean, frozen=True):
    """Spec of a ReplicaSet or StatefulSet."""

    replicas: Int32 | None = None
    pod_management_policy: str = ""
    ordinals: Ordinals | None = None
    template: Template = Template()


class ReplicaSet(Lean, frozen=True):
    """A ReplicaSet: one version of a Deployment."""

    metadata: Meta = Meta()
    spec: SetSpec = SetSpec()


class StatefulSetStatus(Lean, frozen=True):
    """Status of a StatefulSet, as far as it is read."""

    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Lean, frozen=True):
    """A StatefulSet."""

    metadata: Meta = Meta()
    spec: SetSpec = SetSpec()
    status: StatefulSetStatus | None = None


class JobSpec(Lean, frozen=True):
    """Spec of a Kubernetes Job."""

    parallelism: Int32 | None = None
    completions: Int32 | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    template: Template = Template()

    @property
    def width(self) -> int:
        """Maximum number of pods that run at a time."""
        parallelism = 1 if self.parallelism is None else self.parallelism
        return parallelism if self.completions is None else min(parallelism, self.completions)


class JobState(Lean, frozen=True):
    """Status of a Job."""

    succeeded: Int32 | None = None
    failed_indexes: str | None = None
    """Indexes that are not tried again, as ``1,3-5``."""
    conditions: list[OwnerCondition] | None = None


class Job(Lean, frozen=True):
    """A Kubernetes Job."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobState | None = None


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


class VolcanoJob(Lean, frozen=True):
    """A Volcano job."""

    metadata: Meta = Meta()
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus | None = None


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


class JobSet(Lean, frozen=True):
    """A JobSet."""

    metadata: Meta = Meta()
    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus | None = None


class LeaderWorkerTemplate(Lean, frozen=True):
    """A leader and its workers; a leader without a template of its own has that of the workers."""

    size: Int32 | None = None
    leader_template: Template | None = None
    worker_template: Template = Template()


class LeaderWorkerSetSpec(Lean, frozen=True):
    """Spec of a LeaderWorkerSet."""

    startup_policy: str = ""
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Lean, frozen=True):
    """A LeaderWorkerSet."""

    metadata: Meta = Meta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class GangPolicy(Lean, frozen=True):
    """Pods that start together."""

    min_count: Int32 | None = None


class TopologyConstraint(Lean, frozen=True):
    """A constraint on the nodes of a native group."""

    key: str = ""


class NativePolicy(Lean, frozen=True):
    """Policy of a native group; without ``gang`` each of its pods starts alone."""

    gang: GangPolicy | None = None


class NativePodGroupSpec(Lean, frozen=True):
    """Spec of a native PodGroup. Of what is not supported only that it is there is read."""

    scheduling_policy: NativePolicy | None = None
    priority: Int32 | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_constraints: dict[str, list[TopologyConstraint] | None] | None = None
    parent_composite_pod_group_name: str = ""


class NativePodGroup(Lean, frozen=True):
    """PodGroup of ``scheduling.k8s.io``, of any version."""

    metadata: Meta = Meta()
    spec: NativePodGroupSpec = NativePodGroupSpec()


class WorkloadGroup(Lean, frozen=True):
    """A group of a native Workload."""

    name: str = ""
    policy: NativePolicy | None = None
    scheduling_policy: NativePolicy | None = None


class WorkloadSpec(Lean, frozen=True):
    """Spec of a native Workload."""

    pod_groups: list[WorkloadGroup] | None = None
    pod_group_templates: list[WorkloadGroup] | None = None


class Workload(Lean, frozen=True):
    """Workload of ``scheduling.k8s.io``, of any version."""

    metadata: Meta = Meta()
    spec: WorkloadSpec = WorkloadSpec()


class CoPodGroupSpec(Lean, frozen=True):
    """Spec of a coscheduling PodGroup."""

    min_member: Int32 | None = None


class CoPodGroup(Lean, frozen=True):
    """PodGroup of ``scheduling.x-k8s.io``."""

    metadata: Meta = Meta()
    spec: CoPodGroupSpec = CoPodGroupSpec()


OwnerObject: TypeAlias = (
    ReplicaSet
    | StatefulSet
    | Job
    | VolcanoJob
    | AscendJob
    | JobSet
    | LeaderWorkerSet
    | NativePodGroup
    | Workload
    | CoPodGroup
    | RayCluster
    | KubeflowJob
)

_KUBEFLOW: Final[dict[OwnerKind, str]] = {
    "PyTorchJob": "pytorchjobs",
    "TFJob": "tfjobs",
    "MPIJob": "mpijobs",
    "XGBoostJob": "xgboostjobs",
    "MXJob": "mxjobs",
    "PaddleJob": "paddlejobs",
    "JAXJob": "jaxjobs",
}
"""Jobs of Kubeflow, with their names in paths."""

OWNER_TYPES: Final[dict[OwnerKind, type[OwnerObject]]] = {
    "ReplicaSet": ReplicaSet,
    "StatefulSet": StatefulSet,
    "Job": Job,
    "VolcanoJob": VolcanoJob,
    "AscendJob": AscendJob,
    "JobSet": JobSet,
    "LeaderWorkerSet": LeaderWorkerSet,
    "NativePodGroup": NativePodGroup,
    "Workload": Workload,
    "CoPodGroup": CoPodGroup,
    "RayCluster": RayCluster,
    **dict.fromkeys(_KUBEFLOW, KubeflowJob),
}
"""Struct of each kind."""

_NATIVE: Final = tuple(
    f"scheduling.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
)
_PLACES: Final[dict[OwnerKind, tuple[tuple[str, ...], str]]] = {
    "ReplicaSet": (("apps/v1",), "replicasets"),
    "StatefulSet": (("apps/v1",), "statefulsets"),
    "Job": (("batch/v1",), "jobs"),
    "VolcanoJob": (("batch.volcano.sh/v1alpha1",), "jobs"),
    "AscendJob": (("mindxdl.gitee.com/v1",), "ascendjobs"),
    "JobSet": (("jobset.x-k8s.io/v1alpha2",), "jobsets"),
    "LeaderWorkerSet": (("leaderworkerset.x-k8s.io/v1",), "leaderworkersets"),
    "NativePodGroup": (_NATIVE, "podgroups"),
    "Workload": (_NATIVE, "workloads"),
    "CoPodGroup": (("scheduling.x-k8s.io/v1alpha1",), "podgroups"),
    "RayCluster": (("ray.io/v1", "ray.io/v1alpha1"), "rayclusters"),
    **{kind: (("kubeflow.org/v1",), plural) for kind, plural in _KUBEFLOW.items()},
    "MPIJob": (("kubeflow.org/v2beta1", "kubeflow.org/v1"), "mpijobs"),
}
KINDS: Final[dict[tuple[str, str], OwnerKind]] = {
    ("apps", "ReplicaSet"): "ReplicaSet",
    ("apps", "StatefulSet"): "StatefulSet",
    ("batch", "Job"): "Job",
    ("batch.volcano.sh", "Job"): "VolcanoJob",
    ("mindxdl.gitee.com", "AscendJob"): "AscendJob",
    ("jobset.x-k8s.io", "JobSet"): "JobSet",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "LeaderWorkerSet",
    ("ray.io", "RayCluster"): "RayCluster",
    **{("kubeflow.org", kind): kind for kind in _KUBEFLOW},
}
"""Kinds of controllers by API group and kind."""
HAVE_SIZE: Final = frozenset(KINDS.values()) - {"JobSet", "LeaderWorkerSet"}
"""Controllers that state the size of the gang of their pods; that of the others is in the labels of the pods."""


def paths(key: OwnerKey) -> tuple[str, ...]:
    """Paths of an object, tried in this order: a server serves some of the versions, or none."""
    versions, plural = _PLACES[key.kind]
    return tuple(api_path(version, "namespaces", key.namespace, plural, key.name) for version in versions)


def kind_of(api_version: str, kind: str) -> OwnerKind | None:
    """Kind of a controller that can be read; None for any other, and for a version of an operator's API that is not."""
    group = api_version.rpartition("/")[0]
    found = KINDS.get((group, kind))
    is_read = found is None or group not in {"ray.io", "kubeflow.org"} or api_version in _PLACES[found][0]
    return found if is_read else None
