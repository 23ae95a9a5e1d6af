"""How a user's manifest of a kind is read: its tasks, and where it states what a request has."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from berth.formats.gang_keys import REPLICAS_MAX
from berth.formats.yaml_tree import Tree
from berth.schemas.intake import TASKS, UID
from berth.schemas.subjects import is_plain

_GIVEN_UID: Final = re.compile(r"intake-[0-9]+")
"""Uids that jobs without one get; see :func:`berth.core.state.admission.uid_from`."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Metadata of an object, as far as it is read."""

    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class GangTerms:
    """What a manifest says of the whole gang.

    Attributes:
        queue: Name of its queue.
        priority_class: Name of its priority class.
        min_available: Pods that must start together; 0 for all.
    """

    queue: Tree | None
    priority_class: Tree | None = None
    min_available: int = 0


class AddTask(Protocol):
    """Reads the pods of a task, which is next in order of rank.

    Args:
        place: Where the task is described; it has the pod template as ``template``.
        name: Its name.
        replicas: Number of its pods.
        labels_of: Labels that the controller gives a pod, by its index.

    Raises:
        DocumentError: The template is wrong.
    """

    def __call__(self, place: Tree, name: str, replicas: int, labels_of: Callable[[int], Mapping[str, str]]) -> None:
        """Add the task."""
        ...


def _listed_tasks(spec: Tree) -> list[Tree]:
    """Tasks of a spec that lists them under ``tasks``; the spec itself if it does not."""
    return spec.items_of("tasks") or [spec]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPlaces:
    """Where a manifest that was read states what its request has. Paths are below ``spec``.

    Attributes:
        tasks_of: Where the tasks are described in a spec, in order.
        tasks_field: Field with all of them.
        names_tasks: A task has a field with its name.
        replicas: Fields of a task with the number of its pods; the first that exists counts.
        queue: Path of the queue; None if an annotation names it.
        minimum: Path of the minimum; None if an annotation states it.
    """

    tasks_of: Callable[[Tree], list[Tree]] = _listed_tasks
    tasks_field: str = "tasks"
    names_tasks: bool = True
    replicas: tuple[str, ...] = ("replicas",)
    queue: tuple[str, ...] | None = ("queue",)
    minimum: tuple[str, ...] | None = ("minAvailable",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestForm:
    """Form of a user's manifest of a kind.

    Attributes:
        origin: ``JobRequest.origin`` of its requests.
        read: Adds the tasks of a manifest in order, and returns what it says of the gang. May raise DocumentError.
        places: Where it states what.
    """

    origin: str
    read: Callable[[Tree, AddTask], GangTerms]
    places: ManifestPlaces = ManifestPlaces()


def read_metadata(document: Tree) -> Metadata:
    """Metadata of a document; the namespace is ``default`` if it is missing.

    Raises:
        DocumentError: It is missing, a name is not RFC 1123, or the uid is too long or has a form that is reserved.
    """
    metadata = document.need("metadata", "metadata with a name")
    uid = metadata.find("uid")
    return Metadata(
        namespace=namespace_of(document),
        name=metadata.need("name", "a name that identifies the job").dns_name(),
        uid="" if uid is None else _uid(uid),
        labels=metadata.strings_of("labels"),
        annotations=metadata.strings_of("annotations"),
    )


def namespace_of(document: Tree) -> str:
    """Namespace of a document that has metadata; ``default`` if it is missing.

    Raises:
        DocumentError: It is not RFC 1123.
    """
    namespace = document.dig("metadata", "namespace")
    return "default" if namespace is None else namespace.dns_label()


def _uid(place: Tree) -> str:
    """Uid of a job that its manifest sets.

    Raises:
        DocumentError: It is too long, cannot be printed, or has the form of those that are given to jobs without one.
    """
    uid = place.text()
    if not is_plain(uid):  # it is a header, and several times in what is stored about the job
        raise place.wrong(f"text of at most {UID.most} characters that can be printed, without spaces around it")
    if _GIVEN_UID.fullmatch(uid):
        raise place.wrong("another uid: intake-<number> is given to jobs without one")
    return uid


def read_tasks(place: Tree) -> list[Tree]:
    """Entries of a list of tasks.

    Raises:
        DocumentError: It is not a list, or has too many.
    """
    found = place.items()
    if len(found) > TASKS.most:
        raise place.wrong(TASKS.expected)
    return found


def read_replicas(owner: Tree, key: str, *, default: int) -> int:
    """Number of pods in field ``key``.

    Raises:
        DocumentError: It is not a whole number within bounds.
    """
    found = owner.find(key)
    return default if found is None else found.whole(least=0, most=REPLICAS_MAX)
