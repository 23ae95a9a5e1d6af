"""Fields of job requests by the names that they have in the manifest of the user."""

import re
from typing import Final

from berth.formats.gang_keys import REPLICA_TYPES
from berth.formats.yaml_tree import DocumentError, Tree

_TASK: Final = re.compile(r"tasks\[(\d+)\]\.?(.*)")
_MINIMUM: Final = {
    "volcano-job": "spec.minAvailable",
    "ascend-job": "spec.runPolicy.schedulingPolicy.minAvailable",
    "batch-job": "spec.parallelism",
}


def field_in(document: Tree, origin: str, resource: str, field: str) -> str:
    """Path of a field in a manifest that was read without an error.

    Args:
        document: The manifest.
        origin: Its kind (``JobRequest.origin``).
        resource: Resource name of the chips.
        field: The field of the request, such as ``tasks[0].chips`` or ``annotations.sp-block``.

    Returns:
        The path, such as ``spec.chips``; the field as it is if the manifest has no such path.
    """
    try:
        return _path(document, origin, resource, field)
    except DocumentError:
        return field


def _path(document: Tree, origin: str, resource: str, field: str) -> str:
    tasks = _tasks(document, origin)
    head, _, key = field.partition(".")
    if head in {"labels", "annotations"}:
        return _of_metadata([document, *_templates(tasks)], head, key)
    if field == "min_available":
        return _MINIMUM.get(origin, "spec.minAvailable")
    match = _TASK.fullmatch(field)
    if match is None or int(match[1]) >= len(tasks):
        return tasks[0].path.partition("[")[0] if field == "tasks" and origin == "berth" else field
    task, part = tasks[int(match[1])], match[2]
    if part == "chips" and origin != "berth":
        return _of_chips(task, resource)
    name = "parallelism" if origin == "batch-job" and part == "replicas" else part
    return f"{task.path}.{name}" if name else task.path


def _templates(tasks: list[Tree]) -> list[Tree]:
    return [found for task in tasks if (found := task.find("template")) is not None]


def _of_metadata(places: list[Tree], head: str, key: str) -> str:
    if not key:
        return f"metadata.{head}"
    tables = [found for place in places if (found := place.dig("metadata", head)) is not None]
    owner = next((table for table in tables if table.find(key) is not None), None)
    return (owner or Tree(None, f"metadata.{head}", 0, places[0].error)).child(key, None).path


def _of_chips(task: Tree, resource: str) -> str:
    for container in (task.dig("template", "spec") or task).items_of("containers"):
        for amounts in ("limits", "requests"):
            found = container.dig("resources", amounts, resource)
            if found is not None:
                return found.path
    return f"{task.path}.template.spec.containers"


def _tasks(document: Tree, origin: str) -> list[Tree]:
    """Where each task of the request is described; tasks without pods are left out."""
    spec = document.need("spec", "")
    match origin:
        case "volcano-job":
            tasks = spec.items_of("tasks")
        case "ascend-job":
            replicas = spec.need("replicaSpecs", "")
            tasks = [found for kind in REPLICA_TYPES if (found := replicas.find(kind)) is not None]
        case "batch-job":
            return [spec]
        case _:
            return spec.items_of("tasks") or [spec]
    return [task for task in tasks if (found := task.find("replicas")) is None or found.value]
