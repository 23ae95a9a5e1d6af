"""Jobs of Kubeflow: those of its training operator, of one form under several names.

They are kubeflow.org/v1 and, for MPIJob, kubeflow.org/v2beta1.

Source: docs/reference/kubernetes.md, "Gangs of other systems" and "Pods that are deleted".
"""

from typing import Any, Final

import msgspec

from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.port import MakesAnew, OwnerObject, WorkloadKind
from berth.formats.kubernetes.workloads.replica_types import (
    JOB_FINAL,
    REPLICA_PODS,
    ReplicaSpec,
    RunPolicy,
    replica_facts,
)
from berth.formats.kubernetes.workloads.specs import ConditionsStatus, first_final
from berth.formats.whole_numbers import Int32

_LAUNCHER: Final = "Launcher"
_AFTER_WORKERS: Final = "WaitForWorkersReady"
_RESTARTS: Final = frozenset({"", "Always", "OnFailure"})
"""Restart policies with which the replicas of some kinds start again after a deletion; the default does."""


class ElasticPolicy(Lean, frozen=True):
    """Bounds between which a job changes its number of workers."""

    min_replicas: Int32 | None = None


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


class KubeflowJob(OwnerObject, frozen=True):
    """A job of Kubeflow."""

    spec: KubeflowJobSpec = KubeflowJobSpec()
    status: ConditionsStatus | None = None


def _facts(owner: KubeflowJob, _: str) -> OwnerFacts:
    """An elastic job starts with its fewest workers. A launcher waits for the workers, so it comes after them.

    The bounds of the elastic policy are those of the autoscaler, which scales the workers.
    """
    spec = owner.spec
    final = first_final(owner.status.conditions if owner.status is not None else None, JOB_FINAL)
    facts = replica_facts(spec.replica_specs, (_LAUNCHER, *REPLICA_TYPES), spec.run_policy, final=final)
    first = 1 if spec.run_launcher_as_worker else 0  # the launcher has index 0 then
    tasks = tuple(
        msgspec.structs.replace(task, is_later=True)
        if task.name == _LAUNCHER.lower()
        else msgspec.structs.replace(task, first_index=first)
        for task in facts.tasks
    )
    least, name = facts.min_count, facts.min_name
    elastic = spec.elastic_policy
    if least is None and elastic is not None and elastic.min_replicas is not None:
        others = sum(task.pods for task in tasks if task.name != "worker")
        least, name = elastic.min_replicas + others, "elasticPolicy.minReplicas"
    return msgspec.structs.replace(
        facts,
        min_count=least,
        min_name=name,
        group_has_later=spec.launcher_creation_policy != _AFTER_WORKERS,
        tasks=tasks,
    )


def _why_not_anew(owner: KubeflowJob, name: str) -> str:
    replicas, run_policy = owner.spec.replica_specs, owner.spec.run_policy
    if not replicas:
        return f"it is not known whether {name} makes a deleted pod anew"
    if run_policy is not None and run_policy.backoff_limit is not None:
        return f"{name} counts a deleted pod (backoffLimit {run_policy.backoff_limit})"
    wrong = sorted(key for key, one in replicas.items() if one.restart_policy not in _RESTARTS)
    return f"{name} does not restart {wrong[0]} pods ({replicas[wrong[0]].restart_policy})" if wrong else ""


def _kind(name: str, **more: Any) -> WorkloadKind[KubeflowJob]:  # noqa: ANN401 - whatever a kind may have
    stated: dict[str, Any] = {"versions": ("kubeflow.org/v1",), "is_said_by_group": True} | more
    return WorkloadKind(
        name=name,
        plural=f"{name.lower()}s",
        only_known_versions=True,
        struct=KubeflowJob,
        facts=_facts,
        pods=REPLICA_PODS,
        **stated,
    )


_BY_POLICY: Final = MakesAnew(KubeflowJob, _why_not_anew)
KUBEFLOW_JOBS: Final = (
    _kind("PyTorchJob", makes_anew=_BY_POLICY),
    _kind("TFJob", counts_deleted=True),
    _kind("MPIJob", versions=("kubeflow.org/v2beta1", "kubeflow.org/v1"), is_said_by_group=False),
    _kind("XGBoostJob", counts_deleted=True),
    _kind("MXJob", counts_deleted=True),
    _kind("PaddleJob", makes_anew=_BY_POLICY),
    _kind("JAXJob"),
)
