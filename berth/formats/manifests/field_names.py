"""Fields of job requests by the names that they have in the manifest of the user."""

import re
from collections.abc import Sequence
from typing import Final

from berth.formats.gang_keys import GROUP_MIN_MEMBER, QUEUE_NAME
from berth.formats.kubernetes.workloads.manifest_form import ManifestPlaces
from berth.formats.kubernetes.workloads.registry import kinds
from berth.formats.manifests.pod_template import request_for
from berth.formats.yaml_tree import DocumentError, Tree
from berth.products.model import ANNOTATION_POLICY, MIN_AVAILABLE

_TASK: Final = re.compile(r"tasks\[(\d+)\]\.?(.*)")
_OF_CONSTRAINTS: Final = {
    "ports": "containers",
    "resources": "containers",
    "claims": "volumes",
    "spread": "topologySpreadConstraints",
    "preferred_spread": "topologySpreadConstraints",
}
"""Fields of a pod's spec from which constraints are read; the others are from ``affinity``."""


def field_in(document: Tree, origin: str, resource: str, field: str) -> str:
    """Path of a field in a manifest that was read without an error.

    Args:
        document: The manifest.
        origin: Its kind (``JobRequest.origin``).
        resource: Resource name of the chips.
        field: The field of the request, such as ``tasks[0].chips`` or ``annotations.sp-block``.

    Returns:
        The path, such as ``spec.chips``; of a field that the manifest does not have, the path that it would have there;
        what is no field of a request, such as a setting, as it is.
    """
    try:
        found = _Manifest(document, origin, resource).place(field)
    except DocumentError:
        found = None
    return field if found is None else found.path


class _Manifest:
    """A manifest, and the places in it that describe the tasks of the request."""

    def __init__(self, document: Tree, origin: str, resource: str) -> None:
        self._document, self._resource = document, resource
        self._spec = document.need("spec", "")
        forms = (kind.manifest for kind in kinds().named.values() if kind.manifest is not None)
        form = next((one for one in forms if one.origin == origin), None)
        self._is_own = form is None
        self._places = form.places if form is not None else ManifestPlaces()
        tasks, count = self._places.tasks_of(self._spec), self._places.replicas[0]
        self._tasks = [task for task in tasks if (found := task.find(count)) is None or found.value]
        """Where each task of the request is described; tasks without pods are left out."""
        self._pods = [task if self._is_own else _at(task, "template", "spec") for task in self._tasks]
        """What describes the pods of each task."""

    def place(self, field: str) -> Tree | None:
        """Place of a field; None of what is none."""
        task = _TASK.fullmatch(field)
        if task is not None:
            return self._of_task(int(task[1]), task[2]) if int(task[1]) < len(self._tasks) else None
        head, _, key = field.partition(".")
        found: Tree | None
        match head:
            case "" | "job":
                found = self._document
            case "name" | "namespace" | "uid":
                found = _at(self._document, "metadata", head)
            case "labels" | "annotations":
                found = self._of_metadata(head, key)
            case "node_selector":
                own = [self._spec] if self._is_own else []
                found = _entry([_at(one, "nodeSelector") for one in (*own, *self._pods)], key)
            case "near":
                found = _at(self._spec, "near") if self._is_own else _at(self._pods[0], "affinity")
            case "resource":
                found = self._of_resource()
            case "tasks":
                found = self._spec.find(self._places.tasks_field) or self._spec
            case "queue" | "min_available":
                found = self._of_group(head)
            case _:
                found = None
        return found

    def _of_task(self, index: int, field: str) -> Tree:
        task, pod = self._tasks[index], self._pods[index]
        head, _, key = field.partition(".")
        head = head.partition("[")[0]
        match head:
            case "chips" if not self._is_own:
                found = self._of_chips(pod)
            case "replicas":
                *others, last = self._places.replicas
                found = next((one for key in others if (one := task.find(key)) is not None), _at(task, last))
            case "name" | "chips":
                found = task if head == "name" and not self._places.names_tasks else _at(task, head)
            case "labels":
                found = _entry([_at(task, "template", "metadata", "labels")], key)
            case "node_selector":
                found = _entry([_at(pod, "nodeSelector")], key)
            case "constraints":
                found = _at(pod, _OF_CONSTRAINTS.get(re.split(r"[.\[]", key)[0], "affinity"))
            case _:
                found = _at(pod, head) if head else task
        return found

    def _of_metadata(self, table: str, key: str) -> Tree:
        owners = [self._document, *(_at(task, "template") for task in self._tasks if not self._is_own)]
        found = _entry([_at(owner, "metadata", table) for owner in owners], key)
        if self._is_own and table == "annotations" and key == ANNOTATION_POLICY and found.value is None:
            return _at(self._spec, "policy")
        return found

    def _of_group(self, field: str) -> Tree:
        """Place of the queue or the minimum of the whole gang."""
        path = self._places.queue if field == "queue" else self._places.minimum
        if path is not None:
            return _at(self._spec, *path)
        if field == "queue":
            return self._of_metadata("annotations", QUEUE_NAME)
        named = [self._of_metadata("annotations", name) for name in (MIN_AVAILABLE, GROUP_MIN_MEMBER)]
        return next((one for one in named if one.value is not None), _at(self._spec, self._places.replicas[-1]))

    def _of_resource(self) -> Tree:
        if self._is_own:
            return _first([_at(self._spec, "resource"), _at(self._spec, "product")])
        return _first([self._of_chips(pod) for pod in self._pods])

    def _of_chips(self, pod: Tree) -> Tree:
        found = request_for(pod, self._resource)
        return _at(pod, "containers") if found is pod else found


def _at(place: Tree, *keys: str) -> Tree:
    """A field below a place; without a value if it does not exist."""
    for key in keys:
        found = place.find(key) if place.value is not None else None
        place = place.child(key, None) if found is None else found
    return place


def _first(places: Sequence[Tree]) -> Tree:
    """The first place that exists, or else the first one."""
    return next((one for one in places if one.value is not None), places[0])


def _entry(tables: Sequence[Tree], key: str) -> Tree:
    """Entry of the first table that has it, or else of the first table; without a key the longest table.

    What follows the name of an entry is a place in its text.
    """
    if not key:
        return max(tables, key=_length)
    for table in tables:
        names = [name for name in _rows(table) if f"{key}.".startswith((f"{name}.", f"{name}["))]
        if names:
            name = max(names, key=len)
            return table.child(name, _rows(table)[name])
    return _first(tables).child(key, None)


def _rows(table: Tree) -> dict[str, object]:
    return {} if table.value is None else table.mapping()


def _length(table: Tree) -> int:
    """Characters of a table; more than 0 if it exists."""
    return len(str(_rows(table))) if table.value is not None else 0
