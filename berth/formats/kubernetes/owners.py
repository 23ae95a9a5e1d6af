"""Owners of pods as lean structs, and their API paths.

Every kind is read on demand, one object at a time: watching all of them costs too much for the few numbers that are
read.

Longer than 400 lines because every kind of owner has its own fields, and all of them are read in one way.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang"; Kubernetes, apps/v1, batch/v1, scheduling.k8s.io; Volcano, batch.volcano.sh/v1alpha1;
MindCluster, mindxdl.gitee.com/v1; JobSet, jobset.x-k8s.io/v1alpha2; LeaderWorkerSet, leaderworkerset.x-k8s.io/v1;
scheduler-plugins, scheduling.x-k8s.io/v1alpha1.
"""

from typing import Final, Literal, NamedTuple, TypeAlias

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.pod_spec import Container, Requirements
from berth.formats.whole_numbers import Int32
from berth.products.resources import is_npu

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
]
"""Kinds that can be read; if two APIs have a kind of one name, the entry names the API."""


class OwnerKey(NamedTuple):
    """An object to read."""

    kind: OwnerKind
    namespace: str
    name: str
    part: str = ""
    """Group of a Workload, which has several."""


class TemplateSpec(Lean, frozen=True):
    """Spec of a pod template."""

    scheduler_name: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class Template(Lean, frozen=True):
    """A pod template."""

    spec: TemplateSpec | None = None

    @property
    def scheduler_name(self) -> str:
        """Scheduler of the pods; empty if not set."""
        return self.spec.scheduler_name if self.spec is not None else ""

    @property
    def has_chips(self) -> bool | None:
        """Whether the pods ask for chips; None if it has no containers."""
        if self.spec is None or not self.spec.containers:
            return None
        containers = (*self.spec.containers, *(self.spec.init_containers or ()))
        asked = (container.resources or Requirements() for container in containers)
        amounts = ((one.limits or {}) | (one.requests or {}) for one in asked)
        return any(is_npu(key) and value not in {0, "0"} for one in amounts for key, value in one.items())


class SetSpec(Lean, frozen=True):
    """Spec of a ReplicaSet or StatefulSet."""

    replicas: Int32 | None = None
    pod_management_policy: str = ""
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


class OwnerCondition(Lean, frozen=True):
    """Condition of an owner, as far as it is read."""

    type: str = ""
    status: str = ""


class JobState(Lean, frozen=True):
    """Status of a Job."""

    succeeded: Int32 | None = None
    conditions: list[OwnerCondition] | None = None


class Job(Lean, frozen=True):
    """A Kubernetes Job."""

    metadata: Meta = Meta()
    spec: JobSpec = JobSpec()
    status: JobState | None = None


class VolcanoTask(Lean, frozen=True):
    """A task of a Volcano job."""

    name: str = ""
    replicas: Int32 | None = None
    template: Template = Template()


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


class ReplicaSpec(Lean, frozen=True):
    """A replica type of an Ascend job."""

    replicas: Int32 | None = None
    template: Template = Template()


class SchedulingPolicy(Lean, frozen=True):
    """Scheduling policy of an Ascend job."""

    min_available: Int32 | None = None
    queue: str = ""


class RunPolicy(Lean, frozen=True):
    """Run policy of an Ascend job."""

    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = None


class AscendJobSpec(Lean, frozen=True):
    """Spec of an Ascend job."""

    scheduler_name: str = ""
    run_policy: RunPolicy | None = None
    replica_specs: dict[str, ReplicaSpec] | None = None


class ConditionsStatus(Lean, frozen=True):
    """Status of an owner of which only the conditions are read."""

    conditions: list[OwnerCondition] | None = None


class AscendJob(Lean, frozen=True):
    """An Ascend job."""

    metadata: Meta = Meta()
    spec: AscendJobSpec = AscendJobSpec()
    status: ConditionsStatus | None = None


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


class JobSet(Lean, frozen=True):
    """A JobSet."""

    metadata: Meta = Meta()
    spec: JobSetSpec = JobSetSpec()
    status: ConditionsStatus | None = None


class LeaderWorkerTemplate(Lean, frozen=True):
    """A leader and its workers."""

    size: Int32 | None = None


class LeaderWorkerSetSpec(Lean, frozen=True):
    """Spec of a LeaderWorkerSet."""

    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(Lean, frozen=True):
    """A LeaderWorkerSet."""

    metadata: Meta = Meta()
    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


class GangPolicy(Lean, frozen=True):
    """Pods that start together."""

    min_count: Int32 | None = None


class NativePolicy(Lean, frozen=True):
    """Policy of a native group; without ``gang`` each of its pods starts alone."""

    gang: GangPolicy | None = None


class NativePodGroupSpec(Lean, frozen=True):
    """Spec of a native PodGroup."""

    scheduling_policy: NativePolicy | None = None


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
)

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
}
KINDS: Final[dict[tuple[str, str], OwnerKind]] = {
    ("apps", "ReplicaSet"): "ReplicaSet",
    ("apps", "StatefulSet"): "StatefulSet",
    ("batch", "Job"): "Job",
    ("batch.volcano.sh", "Job"): "VolcanoJob",
    ("mindxdl.gitee.com", "AscendJob"): "AscendJob",
    ("jobset.x-k8s.io", "JobSet"): "JobSet",
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "LeaderWorkerSet",
}
"""Kinds of controllers by API group and kind."""


def paths(key: OwnerKey) -> tuple[str, ...]:
    """Paths of an object, tried in this order: a server serves some of the versions, or none."""
    versions, plural = _PLACES[key.kind]
    return tuple(api_path(version, "namespaces", key.namespace, plural, key.name) for version in versions)


def kind_of(api_version: str, kind: str) -> OwnerKind | None:
    """Kind of a controller that can be read; None for any other."""
    group = api_version.rpartition("/")[0]
    return KINDS.get((group, kind))
