"""Jobs and clusters of training operators as lean structs: AscendJob, the jobs of Kubeflow, RayCluster.

Those of Kubeflow are kubeflow.org/v1 and, for MPIJob, kubeflow.org/v2beta1; Ray's is ray.io/v1.

Source: docs/reference/kubernetes.md, "Gangs of other systems"; MindCluster, mindxdl.gitee.com/v1.
"""

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.whole_numbers import Int32


class OwnerCondition(Lean, frozen=True):
    """Condition of an owner, as far as it is read."""

    type: str = ""
    status: str = ""


class ConditionsStatus(Lean, frozen=True):
    """Status of an owner of which only the conditions are read."""

    conditions: list[OwnerCondition] | None = None


class ReplicaSpec(Lean, frozen=True):
    """A replica type of a job."""

    replicas: Int32 | None = None
    restart_policy: str = ""
    template: Template = Template()


class SchedulingPolicy(Lean, frozen=True):
    """Scheduling policy of a job."""

    min_available: Int32 | None = None
    queue: str = ""


class RunPolicy(Lean, frozen=True):
    """Run policy of a job."""

    scheduling_policy: SchedulingPolicy | None = None
    suspend: bool | None = None
    backoff_limit: Int32 | None = None


class ElasticPolicy(Lean, frozen=True):
    """Bounds between which a job changes its number of workers."""

    min_replicas: Int32 | None = None


class AscendJobSpec(Lean, frozen=True):
    """Spec of an Ascend job."""

    scheduler_name: str = ""
    run_policy: RunPolicy | None = None
    replica_specs: dict[str, ReplicaSpec] | None = None


class AscendJob(Lean, frozen=True):
    """An Ascend job."""

    metadata: Meta = Meta()
    spec: AscendJobSpec = AscendJobSpec()
    status: ConditionsStatus | None = None


class KubeflowJobSpec(Lean, frozen=True):
    """Spec of a job of Kubeflow. Each kind has its own name for the replica types."""

    run_policy: RunPolicy | None = None
    elastic_policy: ElasticPolicy | None = None
    run_launcher_as_worker: bool | None = None
    launcher_creation_policy: str = ""
    pytorch_replica_specs: dict[str, ReplicaSpec] | None = None
    tf_replica_specs: dict[str, ReplicaSpec] | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] | None = None
    xgb_replica_specs: dict[str, ReplicaSpec] | None = None
    mx_replica_specs: dict[str, ReplicaSpec] | None = None
    paddle_replica_specs: dict[str, ReplicaSpec] | None = None
    jax_replica_specs: dict[str, ReplicaSpec] | None = None

    @property
    def replica_specs(self) -> dict[str, ReplicaSpec]:
        """The replica types, under the name of whichever kind it is."""
        named = (
            self.pytorch_replica_specs,
            self.tf_replica_specs,
            self.mpi_replica_specs,
            self.xgb_replica_specs,
            self.mx_replica_specs,
            self.paddle_replica_specs,
            self.jax_replica_specs,
        )
        return next((specs for specs in named if specs), {})


class KubeflowJob(Lean, frozen=True):
    """A job of Kubeflow."""

    metadata: Meta = Meta()
    spec: KubeflowJobSpec = KubeflowJobSpec()
    status: ConditionsStatus | None = None


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
        """Pods that the operator keeps, between the bounds of the group; the upper bound comes first.

        Source: docs/reference/kubernetes.md, "Gangs of other systems".
        """
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


class RayCluster(Lean, frozen=True):
    """A Ray cluster."""

    metadata: Meta = Meta()
    spec: RayClusterSpec = RayClusterSpec()
