"""Volcano jobs.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; Volcano, ``batch.volcano.sh/v1alpha1`` Job.
"""

from typing import Final

from berth.formats.kubernetes.workloads import TASK_INDEX, TASK_SPEC
from berth.formats.manifests.gang_request import (
    Metadata,
    PodGroup,
    gang_request,
    read_metadata,
    read_replicas,
    read_tasks,
)
from berth.formats.manifests.pod_template import read_template
from berth.formats.yaml_tree import Tree
from berth.schemas.intake import JobRequest

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
KIND: Final = "Job"
JOB_NAME: Final = "volcano.sh/job-name"


def read_volcano_job(document: Tree) -> JobRequest:
    """Job request of a Volcano job.

    Ranks follow the order of ``spec.tasks``. A task without a name is ``default<index>``, as in Volcano.
    ``schedulerName``, plug-ins, policies, volumes, and ``minAvailable`` of a single task are not read.

    Raises:
        DocumentError: A field is missing or wrong.
    """
    spec = document.need("spec", "a Volcano job's spec")
    tasks = spec.need("tasks", "a list of tasks")
    meta, queue = read_metadata(document), spec.find("queue")
    queue_name = "default" if queue is None else queue.dns_name()
    groups = [_group(task, index, meta, queue_name) for index, task in enumerate(read_tasks(tasks))]
    if not groups:
        raise tasks.wrong("at least one task")
    return gang_request(
        document,
        groups,
        origin="volcano-job",
        queue=queue,
        priority_class=spec.find("priorityClassName"),
        min_available=read_replicas(spec, "minAvailable", default=0),
    )


def _group(task: Tree, index: int, job: Metadata, queue: str) -> PodGroup:
    name = found.dns_label() if (found := task.find("name")) is not None else f"default{index}"
    replicas = read_replicas(task, "replicas", default=1)
    template = task.need("template", "a pod template")

    def labels_of(pod: int) -> dict[str, str]:
        return pod_labels(job, task=name, index=pod, queue=queue)

    pod = read_template(template, namespace=job.namespace, replicas=replicas, labels_of=labels_of)
    return PodGroup(name=name, replicas=replicas, pod=pod, place=task)


def pod_labels(job: Metadata, *, task: str, index: int, queue: str) -> dict[str, str]:
    """Labels that Volcano's controller gives a pod.

    Source: Volcano, ``createJobPod``.

    Args:
        job: Metadata of the job.
        task: Name of the task.
        index: Index of the pod in the task.
        queue: Name of the queue.
    """
    return {
        JOB_NAME: job.name,
        "volcano.sh/job-namespace": job.namespace,
        "volcano.sh/queue-name": queue,
        TASK_SPEC: task,
        TASK_INDEX: str(index),
    }
