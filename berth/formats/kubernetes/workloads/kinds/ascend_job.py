"""Jobs of the Ascend operator.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; MindCluster, ``mindxdl.gitee.com/v1`` AscendJob.
"""

from functools import partial
from typing import Final

from berth.formats.ascend.pod_annotations import OPERATOR_NAME
from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.lean import Lean
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.manifest_form import (
    AddTask,
    GangTerms,
    ManifestForm,
    ManifestPlaces,
    Metadata,
    read_metadata,
    read_replicas,
)
from berth.formats.kubernetes.workloads.port import ALWAYS_ANEW, OwnerObject, WorkloadKind
from berth.formats.kubernetes.workloads.replica_types import (
    JOB_FINAL,
    REPLICA_INDEX,
    REPLICA_PODS,
    REPLICA_TYPE,
    ReplicaSpec,
    RunPolicy,
    replica_facts,
)
from berth.formats.kubernetes.workloads.specs import ConditionsStatus, first_final
from berth.formats.yaml_tree import Tree

JOB_NAME: Final = "training.kubeflow.org/job-name"
OPERATOR: Final = "ascendjob-controller"
_TYPES: Final = f"a mapping with some of {', '.join(REPLICA_TYPES)}"
MASTERS: Final = frozenset({"Scheduler", "Master", "Chief"})
"""Replica types whose pods have the role of the master."""


class AscendJobSpec(Lean, frozen=True):
    """Spec of an Ascend job."""

    scheduler_name: str = ""
    run_policy: RunPolicy | None = None
    replica_specs: dict[str, ReplicaSpec] | None = None


class AscendJob(OwnerObject, frozen=True):
    """An Ascend job."""

    spec: AscendJobSpec = AscendJobSpec()
    status: ConditionsStatus | None = None


def _facts(owner: AscendJob, _: str) -> OwnerFacts:
    spec = owner.spec
    return replica_facts(
        spec.replica_specs or {},
        REPLICA_TYPES,
        spec.run_policy,
        spec.scheduler_name,
        final=first_final(owner.status.conditions if owner.status is not None else None, JOB_FINAL),
    )


def _tasks_of(spec: Tree) -> list[Tree]:
    replicas = spec.need("replicaSpecs", _TYPES)
    return [found for kind in REPLICA_TYPES if (found := replicas.find(kind)) is not None]


def _read(document: Tree, add: AddTask) -> GangTerms:
    """Tasks are named after the replica types in lower case and follow their order, in any case of letters.

    Labels and annotations of the job are copied, as its operator copies them to the PodGroup.
    """
    spec = document.need("spec", "an AscendJob's spec")
    replicas = spec.need("replicaSpecs", _TYPES)
    replicas.only(REPLICA_TYPES)
    found = dict(replicas.fields())
    if not found:
        raise replicas.wrong(_TYPES)
    job = read_metadata(document)
    for kind in REPLICA_TYPES:
        if kind in found:
            count = read_replicas(found[kind], "replicas", default=1)
            add(found[kind], kind.lower(), count, partial(pod_labels, job, kind))
    policy = spec.dig("runPolicy", "schedulingPolicy")
    if policy is None:
        return GangTerms(None)
    return GangTerms(
        policy.find("queue"), policy.find("priorityClass"), read_replicas(policy, "minAvailable", default=0)
    )


def pod_labels(job: Metadata, kind: str, index: int) -> dict[str, str]:
    """Labels that the Ascend operator gives a pod.

    Args:
        job: Metadata of the job.
        kind: Replica type.
        index: Index of the pod in its type.
    """
    found = {
        JOB_NAME: job.name,
        REPLICA_TYPE: kind.lower(),
        REPLICA_INDEX: str(index),
        OPERATOR_NAME: OPERATOR,
    }
    return found | ({"training.kubeflow.org/job-role": "master"} if kind in MASTERS else {})


ASCEND_JOB: Final = WorkloadKind(
    name="AscendJob",
    word="acjob",
    versions=("mindxdl.gitee.com/v1",),
    plural="ascendjobs",
    struct=AscendJob,
    facts=_facts,
    pods=REPLICA_PODS,
    makes_anew=ALWAYS_ANEW,
    manifest=ManifestForm(
        origin="ascend-job",
        read=_read,
        places=ManifestPlaces(
            tasks_of=_tasks_of,
            tasks_field="replicaSpecs",
            names_tasks=False,
            queue=("runPolicy", "schedulingPolicy", "queue"),
            minimum=("runPolicy", "schedulingPolicy", "minAvailable"),
        ),
    ),
)
