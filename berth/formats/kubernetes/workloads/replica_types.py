"""Jobs of replica types, as MindCluster's and Kubeflow's operators have them: a master, workers, and so on."""

from collections.abc import Sequence
from typing import Final

from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.pod_spec import Template
from berth.formats.kubernetes.workloads.facts import OwnerFacts, TaskFacts
from berth.formats.kubernetes.workloads.pod_labels import index_in_task, label_or_annotation
from berth.formats.kubernetes.workloads.port import Place, PodReading
from berth.formats.kubernetes.workloads.specs import first_named, or_one
from berth.formats.whole_numbers import Int32

REPLICA_TYPE: Final = "training.kubeflow.org/replica-type"
REPLICA_INDEX: Final = "training.kubeflow.org/replica-index"
JOB_FINAL: Final = frozenset({"Succeeded", "Failed"})
"""Conditions of a job that has ended."""


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


def replica_facts(
    specs: dict[str, ReplicaSpec],
    first: Sequence[str],
    policy: RunPolicy | None,
    scheduler_name: str = "",
    *,
    final: str,
) -> OwnerFacts:
    """Facts of a job of replica types.

    Args:
        specs: Its replica types.
        first: Replica types that come first, in order of rank; the others follow by name.
        policy: How it runs.
        scheduler_name: Scheduler of all pods, whatever their templates say; empty if the job names none.
        final: State in which it has ended; empty if it has not.
    """
    wishes = policy.scheduling_policy if policy is not None else None
    kinds = [*(name for name in first if name in specs), *sorted(name for name in specs if name not in first)]
    schedulers = {name: scheduler_name or specs[name].template.scheduler_name for name in kinds}
    return OwnerFacts(
        scheduler_name=first_named(schedulers.values()),
        queue=wishes.queue if wishes is not None else "",
        min_count=wishes.min_available if wishes is not None else None,
        suspended=bool(policy.suspend) if policy is not None else False,
        final=final,
        tasks=tuple(
            TaskFacts(
                name.lower(),
                or_one(specs[name].replicas),
                has_chips=specs[name].template.has_chips,
                scheduler_name=schedulers[name],
            )
            for name in kinds
        ),
    )


def _task(pod: Pod) -> str:
    return label_or_annotation(pod, REPLICA_TYPE)


def _place(pod: Pod) -> Place | None:
    index = index_in_task(pod, REPLICA_INDEX)
    return Place(local=index) if index is not None else None


REPLICA_PODS: Final = PodReading(task=_task, place=_place, own_labels=frozenset({REPLICA_INDEX}))
"""Pods of a replica type say which, and their index in it."""
