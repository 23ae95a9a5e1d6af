"""Volcano jobs.

Source: docs/reference/kubernetes.md, "Volcano PodGroups"; Volcano, ``batch.volcano.sh/v1alpha1`` Job.
"""

from typing import Final

from berth.formats.manifests.gang_request import PodGroup, gang_request, read_replicas
from berth.formats.manifests.pod_template import read_template
from berth.formats.yaml_tree import Tree
from berth.schemas.intake import JobRequest

API_VERSION: Final = "batch.volcano.sh/v1alpha1"
KIND: Final = "Job"


def read_volcano_job(document: Tree) -> JobRequest:
    """Job request of a Volcano job.

    Ranks follow the order of ``spec.tasks``. A task without a name is ``default<index>``, as in Volcano.
    ``schedulerName``, plug-ins, policies, volumes, and ``minAvailable`` of a single task are not read.

    Raises:
        DocumentError: A field is missing or wrong.
    """
    spec = document.need("spec", "a Volcano job's spec")
    tasks = spec.need("tasks", "a list of tasks")
    groups = [
        PodGroup(
            name=name.dns_label() if (name := task.find("name")) is not None else f"default{index}",
            replicas=read_replicas(task, "replicas", default=1),
            pod=read_template(task.need("template", "a pod template")),
            place=task,
        )
        for index, task in enumerate(tasks.items())
    ]
    if not groups:
        raise tasks.wrong("at least one task")
    return gang_request(
        document,
        groups,
        origin="volcano-job",
        queue=spec.find("queue"),
        priority_class=spec.find("priorityClassName"),
        min_available=read_replicas(spec, "minAvailable", default=0),
    )
