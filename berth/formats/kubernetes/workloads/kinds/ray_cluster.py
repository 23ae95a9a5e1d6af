"""Clusters of Ray: a head, and groups of equal workers.

Source: docs/reference/kubernetes.md, "Gangs of other systems".
"""

from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.pod_labels import label_or_annotation
from berth.formats.kubernetes.workloads.port import ALWAYS_ANEW, OwnerObject, PodReading, WorkloadKind
from berth.formats.kubernetes.workloads.specs import first_named
from berth.formats.whole_numbers import Int32

RAY_GROUP: Final = "ray.io/group"
_HEAD: Final = "headgroup"
"""Label ``ray.io/group`` of the head."""


class HeadGroup(Lean, frozen=True):
    """Head of a Ray cluster: one pod."""

    template: Template = Template()


class WorkerGroup(Lean, frozen=True):
    """Equal workers of a Ray cluster; a replica consists of several pods if it has several hosts."""

    group_name: str = ""
    replicas: Int32 | None = None
    min_replicas: Int32 | None = None
    max_replicas: Int32 | None = None
    num_of_hosts: Int32 | None = None
    suspend: bool | None = None
    template: Template = Template()

    @property
    def least(self) -> int:
        """Fewest pods of the group."""
        return 0 if self.suspend else (self.min_replicas or 0) * self._hosts

    @property
    def pods(self) -> int:
        """Pods that the operator keeps, between the bounds of the group; the upper bound comes first."""
        if self.suspend:
            return 0
        wanted = max(self.replicas or 0, self.min_replicas or 0)
        return (wanted if self.max_replicas is None else min(wanted, self.max_replicas)) * self._hosts

    @property
    def _hosts(self) -> int:
        return max(self.num_of_hosts or 1, 1)


class RayClusterSpec(Lean, frozen=True):
    """Spec of a Ray cluster."""

    enable_in_tree_autoscaling: bool | None = None
    suspend: bool | None = None
    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: list[WorkerGroup] | None = None


class RayCluster(OwnerObject, frozen=True):
    """A Ray cluster."""

    spec: RayClusterSpec = RayClusterSpec()


def _facts(owner: RayCluster, _: str) -> OwnerFacts:
    """A Ray cluster starts with its head and all workers; with autoscaling, with the fewest workers."""
    spec = owner.spec
    groups = spec.worker_group_specs or []
    head = spec.head_group_spec.template
    return OwnerFacts(
        scheduler_name=first_named(one.scheduler_name for one in (head, *(group.template for group in groups))),
        suspended=bool(spec.suspend),
        min_count=1 + sum(group.least for group in groups) if spec.enable_in_tree_autoscaling else None,
        min_name="minReplicas",
        tasks=(
            TaskFacts(_HEAD, 1, has_chips=head.has_chips, scheduler_name=head.scheduler_name, least=1),
            *(
                TaskFacts(
                    group.group_name,
                    group.pods,
                    has_chips=group.template.has_chips,
                    scheduler_name=group.template.scheduler_name,
                    least=group.least,
                )
                for group in groups
            ),
        ),
    )


def _task(pod: Pod) -> str:
    return label_or_annotation(pod, RAY_GROUP)


RAY_CLUSTER: Final = WorkloadKind(
    name="RayCluster",
    versions=("ray.io/v1", "ray.io/v1alpha1"),
    plural="rayclusters",
    only_known_versions=True,
    struct=RayCluster,
    facts=_facts,
    pods=PodReading(task=_task),
    is_said_by_group=True,
    makes_anew=ALWAYS_ANEW,
)
