"""Ascend jobs.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; MindCluster, ``mindxdl.gitee.com/v1`` AscendJob.
"""

from typing import Final

from berth.formats.ascend.pod_annotations import OPERATOR_NAME
from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.kubernetes.workloads import REPLICA_INDEX, REPLICA_TYPE
from berth.formats.manifests.gang_request import Metadata, PodGroup, gang_request, read_metadata, read_replicas
from berth.formats.manifests.pod_template import read_template
from berth.formats.yaml_tree import Tree
from berth.schemas.intake import JobRequest

API_VERSION: Final = "mindxdl.gitee.com/v1"
KIND: Final = "AscendJob"
JOB_NAME: Final = "training.kubeflow.org/job-name"
OPERATOR: Final = "ascendjob-controller"
MASTERS: Final = frozenset({"Scheduler", "Master", "Chief"})
"""Replica types whose pods have the role of the master."""


def read_ascend_job(document: Tree) -> JobRequest:
    """Job request of an Ascend job.

    Tasks are named after the replica types in lower case and follow :data:`~berth.formats.gang_keys.REPLICA_TYPES`,
    in any case of letters; labels and annotations of the job are copied, as its operator copies them to the PodGroup.

    Raises:
        DocumentError: A field is missing or wrong, or a replica type is unknown.
    """
    spec = document.need("spec", "an AscendJob's spec")
    replicas = spec.need("replicaSpecs", f"a mapping with some of {', '.join(REPLICA_TYPES)}")
    replicas.only(REPLICA_TYPES)
    found = dict(replicas.fields())
    if not found:
        raise replicas.wrong(f"a mapping with some of {', '.join(REPLICA_TYPES)}")
    meta = read_metadata(document)
    groups = [_group(found[kind], kind, meta) for kind in REPLICA_TYPES if kind in found]
    policy = spec.dig("runPolicy", "schedulingPolicy")
    return gang_request(
        document,
        groups,
        origin="ascend-job",
        queue=policy.find("queue") if policy is not None else None,
        priority_class=policy.find("priorityClass") if policy is not None else None,
        min_available=read_replicas(policy, "minAvailable", default=0) if policy is not None else 0,
    )


def _group(place: Tree, kind: str, job: Metadata) -> PodGroup:
    replicas = read_replicas(place, "replicas", default=1)
    template = place.need("template", "a pod template")
    pod = read_template(
        template, namespace=job.namespace, replicas=replicas, labels_of=lambda index: pod_labels(job, kind, index)
    )
    return PodGroup(name=kind.lower(), replicas=replicas, pod=pod, place=place)


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
