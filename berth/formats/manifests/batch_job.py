"""Kubernetes Jobs.

Source: docs/reference/kubernetes.md, "Volcano PodGroups" and "Resolution of the gang"; Kubernetes, ``batch/v1`` Job.
"""

from typing import Final

from berth.formats.gang_keys import GROUP_MIN_MEMBER, QUEUE_NAME, REPLICAS_MAX
from berth.formats.kubernetes.workloads import COMPLETION_INDEX
from berth.formats.manifests.gang_request import Metadata, PodGroup, gang_request, read_metadata, read_replicas
from berth.formats.manifests.pod_template import PodTemplate, read_template
from berth.formats.yaml_tree import Tree
from berth.products.model import MIN_AVAILABLE
from berth.schemas.intake import JobRequest

API_VERSION: Final = "batch/v1"
KIND: Final = "Job"
TASK: Final = "worker"
"""Name of the only task."""


def read_batch_job(document: Tree) -> JobRequest:
    """Job request of a Kubernetes Job: its first pods, as many as may run at a time.

    Pods that must start together: annotation ``huawei.com/schedule_minAvailable``, otherwise
    ``scheduling.volcano.sh/group-min-member``, otherwise all pods of an indexed job, otherwise one.

    Raises:
        DocumentError: A field is missing or wrong; the job is suspended; or it has more completions than pods at a
            time: a gang runs once.
    """
    spec = document.need("spec", "a Job's spec")
    suspend = spec.find("suspend")
    if suspend is not None and suspend.flag():
        raise suspend.wrong("false: a suspended job has no pods to place")
    parallelism = read_replicas(spec, "parallelism", default=1)
    completions = spec.find("completions")
    replicas = parallelism
    if completions is not None:
        replicas = completions.whole(least=1, most=REPLICAS_MAX)
        if replicas > parallelism:
            raise completions.wrong(f"at most spec.parallelism, {parallelism}: the pods of a gang run at the same time")
    if not replicas:
        raise spec.need("parallelism", "").wrong("at least one pod in the job")
    mode = spec.find("completionMode")
    indexed = mode is not None and mode.choice(("Indexed", "NonIndexed")) == "Indexed"
    if indexed and completions is None:
        spec.need("completions", "the number of completions, which an indexed job must give")
    meta = read_metadata(document)
    pod = read_template(
        spec.need("template", "a pod template"),
        namespace=meta.namespace,
        replicas=replicas,
        labels_of=lambda index: pod_labels(meta, index if indexed else None),
    )
    return gang_request(
        document,
        [PodGroup(name=TASK, replicas=replicas, pod=pod, place=spec)],
        origin="batch-job",
        queue=_annotation(document, pod, QUEUE_NAME),
        min_available=_min_available(document, pod, 0 if indexed else 1),
    )


def pod_labels(job: Metadata, index: int | None) -> dict[str, str]:
    """Labels that the server and the controller of Jobs give a pod.

    Source: Kubernetes, Job, labels of pods.

    Args:
        job: Metadata of the job; without a uid, the labels with it are left out.
        index: Completion index of the pod; None for a job without.
    """
    found = {"batch.kubernetes.io/job-name": job.name, "job-name": job.name}
    if job.uid:
        found |= {"batch.kubernetes.io/controller-uid": job.uid, "controller-uid": job.uid}
    return found | ({COMPLETION_INDEX: str(index)} if index is not None else {})


def _annotation(document: Tree, pod: PodTemplate, key: str) -> Tree | None:
    """Annotation of the job, otherwise of its pods."""
    own = document.dig("metadata", "annotations", key)
    if own is not None or key not in pod.annotations:
        return own
    return document.dig("spec", "template", "metadata", "annotations", key)


def _min_available(document: Tree, pod: PodTemplate, default: int) -> int:
    for key in (MIN_AVAILABLE, GROUP_MIN_MEMBER):
        place = _annotation(document, pod, key)
        if place is not None:
            text = str(place.value)
            if not (text.isascii() and text.isdigit() and int(text[:10]) <= REPLICAS_MAX):
                raise place.wrong(f"a whole number from 0 to {REPLICAS_MAX} in quotes")
            return int(text)
    return default
