"""Ascend jobs.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; MindCluster, ``mindxdl.gitee.com/v1`` AscendJob.
"""

from typing import Final

from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.manifests.gang_request import PodGroup, gang_request, read_replicas
from berth.formats.manifests.pod_template import read_template
from berth.formats.yaml_tree import Tree
from berth.schemas.intake import JobRequest

API_VERSION: Final = "mindxdl.gitee.com/v1"
KIND: Final = "AscendJob"


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
    groups = [
        PodGroup(
            name=kind.lower(),
            replicas=read_replicas(found[kind], "replicas", default=1),
            pod=read_template(found[kind].need("template", "a pod template")),
            place=found[kind],
        )
        for kind in REPLICA_TYPES
        if kind in found
    ]
    policy = spec.dig("runPolicy", "schedulingPolicy")
    return gang_request(
        document,
        groups,
        origin="ascend-job",
        queue=policy.find("queue") if policy is not None else None,
        priority_class=policy.find("priorityClass") if policy is not None else None,
        min_available=read_replicas(policy, "minAvailable", default=0) if policy is not None else 0,
    )
