"""Groups of Kubernetes itself: PodGroups (1.36 and later), and the groups of a Workload (1.35).

Source: docs/reference/kubernetes.md, "Gangs of plain Kubernetes"; Kubernetes, scheduling.k8s.io.
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.pod_labels import JOB_NAME, JOBSET_NAME, label_or_annotation
from berth.formats.kubernetes.workloads.port import Claim, GangKey, OwnerKey, OwnerObject, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import or_one
from berth.formats.whole_numbers import Int32

_VERSIONS: Final = tuple(
    f"scheduling.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha3", "v1alpha2", "v1alpha1")
)
_GROUP: Final = "NativePodGroup"
_GROUP_WORD: Final = "native"
_WORKLOAD: Final = "Workload"
_WORKLOAD_WORD: Final = "workload"
_MIN_NAME: Final = "minCount"


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


class NativePodGroup(OwnerObject, frozen=True):
    """PodGroup of ``scheduling.k8s.io``, of any version."""

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


class Workload(OwnerObject, frozen=True):
    """Workload of ``scheduling.k8s.io``, of any version."""

    spec: WorkloadSpec = WorkloadSpec()


def _group_facts(owner: NativePodGroup, _: str) -> OwnerFacts:
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
        min_count=_minimum(spec.scheduling_policy),
        min_name=_MIN_NAME,
        priority=spec.priority,
        priority_class=spec.priority_class_name,
        preemption_policy=spec.preemption_policy,
        refused=refused,
    )


def _workload_facts(owner: Workload, name: str) -> OwnerFacts:
    groups = [*(owner.spec.pod_groups or ()), *(owner.spec.pod_group_templates or ())]
    found = next((group for group in groups if group.name == name), None)
    policy = None if found is None else found.policy or found.scheduling_policy
    return OwnerFacts(min_count=_minimum(policy), min_name=_MIN_NAME)


def _minimum(policy: NativePolicy | None) -> int:
    gang = policy.gang if policy is not None else None
    return or_one(gang.min_count) if gang is not None else 1


def _group(pod: Pod) -> Claim | None:
    group, namespace = pod.spec.scheduling_group, pod.metadata.namespace
    name = group.pod_group_name if group is not None else ""
    if not name or _is_part(pod, name):
        return None
    return Claim(GangKey(_GROUP_WORD, namespace, name), OwnerKey(_GROUP, namespace, name))


def _is_part(pod: Pod, group: str) -> bool:
    """Whether a native PodGroup is that of one Job of a JobSet, whose Jobs are a gang together.

    The controller of Jobs makes it where the gate WorkloadWithJob is on, and begins its name with that of the Job.

    Source: Kubernetes 1.36, ``pkg/controller/job/job_scheduling_manager.go``.
    """
    job = pod.metadata.label(JOB_NAME)
    return bool(job and label_or_annotation(pod, JOBSET_NAME)) and group.startswith(f"{job}-")


def _workload(pod: Pod) -> Claim | None:
    ref, namespace = pod.spec.workload_ref, pod.metadata.namespace
    if ref is None or not ref.name:
        return None
    name = ".".join(filter(None, (ref.name, ref.pod_group, ref.pod_group_replica_key)))
    return Claim(GangKey(_WORKLOAD_WORD, namespace, name), OwnerKey(_WORKLOAD, namespace, ref.name, ref.pod_group))


NATIVE_POD_GROUP: Final = WorkloadKind(
    name=_GROUP,
    kind="PodGroup",
    word=_GROUP_WORD,
    versions=_VERSIONS,
    plural="podgroups",
    controls_pods=False,
    struct=NativePodGroup,
    facts=_group_facts,
    pods=PodReading(gang_of_spec=_group),
    as_kube_scheduler=True,
)
NATIVE_WORKLOAD: Final = WorkloadKind(
    name=_WORKLOAD,
    word=_WORKLOAD_WORD,
    versions=_VERSIONS,
    plural="workloads",
    controls_pods=False,
    struct=Workload,
    facts=_workload_facts,
    pods=PodReading(gang_of_spec=_workload),
)
