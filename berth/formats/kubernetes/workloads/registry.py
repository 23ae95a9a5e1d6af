"""All kinds of workloads, and what is looked up among them: a new kind is its module and a line here."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.paths import api_path
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.kinds.ascend_job import ASCEND_JOB
from berth.formats.kubernetes.workloads.kinds.batch_job import BATCH_JOB
from berth.formats.kubernetes.workloads.kinds.coscheduling import CO_POD_GROUP
from berth.formats.kubernetes.workloads.kinds.job_set import JOB_SET
from berth.formats.kubernetes.workloads.kinds.kubeflow import KUBEFLOW_JOBS
from berth.formats.kubernetes.workloads.kinds.leader_worker_set import LEADER_WORKER_SET
from berth.formats.kubernetes.workloads.kinds.native_groups import NATIVE_POD_GROUP, NATIVE_WORKLOAD
from berth.formats.kubernetes.workloads.kinds.ray_cluster import RAY_CLUSTER
from berth.formats.kubernetes.workloads.kinds.replica_set import REPLICA_SET
from berth.formats.kubernetes.workloads.kinds.stateful_set import STATEFUL_SET
from berth.formats.kubernetes.workloads.kinds.volcano_job import VOLCANO_JOB
from berth.formats.kubernetes.workloads.port import (
    Claim,
    OwnerKey,
    OwnerKind,
    OwnerObject,
    Place,
    PodReading,
    WorkloadKind,
)

PODGROUP: Final = "podgroup"
"""Word of the gangs of Volcano's PodGroups, which are watched and not read on demand."""
AnswerT = TypeVar("AnswerT")


class Kinds:
    """Some kinds of workloads.

    Args:
        kinds: The kinds, outer before inner ones: pods of an outer object also have the labels of the inner one. The
            outermost that a pod names gives its gang and its place, the innermost its task.

    Attributes:
        named: Each kind by its name.

    Raises:
        ValueError: Two have one name or word.
    """

    def __init__(self, kinds: Sequence[WorkloadKind[Any]]) -> None:
        self.named: Final[dict[OwnerKind, WorkloadKind[Any]]] = {kind.name: kind for kind in kinds}
        self._by_word = {kind.gang_word: kind for kind in kinds}
        if min(len(self.named), len(self._by_word)) < len(kinds):
            raise ValueError(f"kinds have a name or word twice: {[(kind.name, kind.gang_word) for kind in kinds]}")
        self._controllers = {kind.api_kind: kind for kind in self.named.values() if kind.controls_pods}
        readings = list(dict.fromkeys(kind.pods for kind in self.named.values()))
        self._size_keys = [one.size_key for one in readings if one.size_key]
        self._by_spec = _those(readings, lambda one: one.gang_of_spec)
        self._by_labels = _those(readings, lambda one: one.gang_of_labels)
        self._tasks = _those(reversed(readings), lambda one: one.task)
        self._places = _those(readings, lambda one: one.place)
        self.own_labels: Final = frozenset(label for one in readings for label in one.own_labels)
        """Labels that differ between the pods of one gang, or between two creations of an object."""

    def of_controller(self, api_version: str, kind: str) -> WorkloadKind[Any] | None:
        """Kind of a controller that can be read; None for any other, and for a version of an API that is not read."""
        found = self._controllers.get((api_version.rpartition("/")[0], kind))
        is_read = found is None or not found.only_known_versions or api_version in found.versions
        return found if is_read else None

    def of_word(self, word: str) -> WorkloadKind[Any] | None:
        """Kind of the gangs whose keys and names begin with a word; None for Volcano's PodGroups and unknown ones."""
        return self._by_word.get(word)

    def word_of(self, api_version: str, kind: str) -> str:
        """Word for the gangs of a controller, known or not."""
        found = self._controllers.get((api_version.rpartition("/")[0], kind))
        return found.gang_word if found is not None else kind.lower()

    def has_uid(self, word: str) -> bool:
        """Whether a uid in the keys of a word is that of the object that makes the pods a gang."""
        found = self._by_word.get(word)
        return not self.is_group(word) and (found is None or found.key_has_uid)

    def is_group(self, word: str) -> bool:
        """Whether the pods of gangs of a word name a group, but not its uid."""
        found = self._by_word.get(word)
        return word == PODGROUP or (found is not None and not found.controls_pods)

    def as_kube_scheduler(self, word: str) -> bool:
        """Whether the gangs of a word are decided as kube-scheduler does."""
        found = self._by_word.get(word)
        return found is not None and found.as_kube_scheduler

    def gang_of_spec(self, pod: Pod) -> Claim | None:
        """Gang that a field of a pod's spec names."""
        return _first(self._by_spec, pod)

    def gang_of_labels(self, pod: Pod) -> Claim | None:
        """Gang that labels and annotations of a pod name."""
        return _first(self._by_labels, pod)

    def size_key(self, pod: Pod) -> str:
        """Annotation with which a pod states the size of its gang; empty without one."""
        return next((key for key in self._size_keys if pod.metadata.annotation(key)), "")

    def task_of(self, pod: Pod) -> str:
        """Task that a pod names; empty without one."""
        return _first(self._tasks, pod) or ""

    def place_of(self, pod: Pod) -> Place:
        """Place of a pod in its gang, as far as it is known."""
        return _first(self._places, pod) or Place()


def _those(
    readings: Iterable[PodReading], part: Callable[[PodReading], Callable[[Pod], AnswerT | None] | None]
) -> tuple[Callable[[Pod], AnswerT | None], ...]:
    """A part of each reading that has it."""
    return tuple(found for one in readings if (found := part(one)) is not None)


def _first(readings: Iterable[Callable[[Pod], AnswerT | None]], pod: Pod) -> AnswerT | None:
    """The first answer that says something; None without one."""
    for read in readings:
        if found := read(pod):
            return found
    return None


_KINDS = Kinds(
    (
        NATIVE_POD_GROUP,
        NATIVE_WORKLOAD,
        LEADER_WORKER_SET,
        RAY_CLUSTER,
        JOB_SET,
        CO_POD_GROUP,
        STATEFUL_SET,
        *KUBEFLOW_JOBS,
        ASCEND_JOB,
        VOLCANO_JOB,
        BATCH_JOB,
        REPLICA_SET,
    )
)


def kinds() -> Kinds:
    """All kinds."""
    return _KINDS


def owner_facts(key: OwnerKey, owner: OwnerObject) -> OwnerFacts:
    """Numbers of the object that was read for ``key``."""
    meta = owner.metadata
    return msgspec.structs.replace(
        kinds().named[key.kind].facts(owner, key.part),
        kind=key.kind,
        name=meta.name,
        uid=meta.uid,
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        is_ending=meta.deletion_timestamp is not None,
    )


def paths(key: OwnerKey) -> tuple[str, ...]:
    """Paths of an object, in the order in which they are tried."""
    kind = kinds().named[key.kind]
    return tuple(api_path(version, "namespaces", key.namespace, kind.plural, key.name) for version in kind.versions)
