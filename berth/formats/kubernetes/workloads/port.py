"""The interface of a kind of workload: what its objects, its pods and its manifests say about a gang.

A kind is a module of this package with a :class:`WorkloadKind`, and a line in ``registry``. All answers are neutral
unless the kind has its own; none of them does I/O.

Source: docs/reference/kubernetes.md, "Volcano PodGroups", "Gangs of plain Kubernetes", "Gangs of other systems" and
"Resolution of the gang".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from berth.formats.kubernetes.lean import Lean, Meta
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.facts import OwnerFacts
from berth.formats.kubernetes.workloads.manifest_form import ManifestForm
from berth.schemas.facts import Owner

OwnerKind: TypeAlias = str
""":attr:`WorkloadKind.name` of a kind that is registered."""


class OwnerKey(NamedTuple):
    """An object to read."""

    kind: OwnerKind
    namespace: str
    name: str
    part: str = ""
    """Group of a Workload, which has several."""


class GangKey(NamedTuple):
    """Identity of a gang.

    Attributes:
        kind: ``podgroup``, ``pod``, or :attr:`WorkloadKind.word` of the object that makes the pods a gang; of an
            unknown controller its kind in lower case.
        namespace: Namespace of the pods.
        name: Name of the object that makes them a gang.
        uid: Its uid, if the pods have it: a later object of the same name is another gang.
    """

    kind: str
    namespace: str
    name: str
    uid: str = ""


class OwnerObject(Lean, frozen=True):
    """Base of the objects that are read as owners."""

    metadata: Meta = Meta()


class Claim(NamedTuple):
    """Gang that a pod names."""

    key: GangKey
    look: OwnerKey | None
    """Object with the size of the gang; None if the pod has it."""
    owner: Owner | None = None
    """Owner of the gang; None if it is the controller of the pod."""
    maker: OwnerKey | None = None
    """Object that made the pod, and may make those of a gang in turn; None if that is not known."""
    size: int | None = None
    """Pods of the gang, if the pod has the number."""


class Place(NamedTuple):
    """Place of a pod in its gang, as far as its labels and name say. An index that restarts in each task is no rank."""

    child: int = 0
    """Index of the child of the task's owner to which the pod belongs."""
    local: int | None = None
    """Index in the child or task."""
    rank: int | None = None
    """Rank in the whole gang."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PodReading:
    """How the pods of a kind say which gang they are of, and where in it. Several kinds may share one."""

    gang_of_spec: Callable[[Pod], Claim | None] | None = None
    """Gang that a field of the pod's spec names."""
    gang_of_labels: Callable[[Pod], Claim | None] | None = None
    """Gang that its labels and annotations name."""
    size_key: str = ""
    """Annotation with the size of the gang."""
    task: Callable[[Pod], str] | None = None
    """Name of its task; empty if it names none."""
    place: Callable[[Pod], Place | None] | None = None
    """Its place; None if it has none of this kind."""
    own_labels: frozenset[str] = frozenset()
    """Labels that differ between the pods of one gang, or between two creations of an object."""

    @property
    def names_gangs(self) -> bool:
        """Whether pods name their gang without their controller."""
        return self.gang_of_spec is not None or self.gang_of_labels is not None


NO_READING = PodReading()
ObjectT = TypeVar("ObjectT", bound=OwnerObject)
ReadT = TypeVar("ReadT", bound=OwnerObject)


@dataclass(frozen=True, slots=True, eq=False)
class MakesAnew(Generic[ReadT]):
    """A controller makes a pod anew that is deleted, unless its object says otherwise.

    Attributes:
        struct: What is read of the object.
        why_not: Why a deleted pod is more than replaced by another one, as a sentence; empty if it is not. The second
            argument names the object in it.
    """

    struct: type[ReadT]
    why_not: Callable[[ReadT, str], str]


def _never(_: OwnerObject, __: str) -> str:
    return ""


ALWAYS_ANEW = MakesAnew(OwnerObject, _never)
"""Whatever the object says."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WorkloadKind(Generic[ObjectT]):
    """One kind of objects that make pods, or make pods a gang."""

    # Where its objects are, and how pods and requests name them.
    name: OwnerKind
    """Name here: the kind, or with its API in front if two APIs have a kind of one name."""
    versions: tuple[str, ...]
    """Versions of its API, in the order in which they are tried: a server serves some of them, or none."""
    plural: str
    kind: str = ""
    """Kind in objects; empty if that is :attr:`name`."""
    word: str = ""
    """First word of the names of its requests, and kind of its gangs; empty for the kind in lower case."""
    controls_pods: bool = True
    """Pods name it as their controller; otherwise it is a group that pods of any controller name."""
    only_known_versions: bool = False
    """A controller of another version of its API is unknown."""

    # What an object says: size, tasks, minimum, whether it has ended.
    struct: type[ObjectT]
    facts: Callable[[ObjectT, str], OwnerFacts]
    """Numbers of an object; the second argument is :attr:`OwnerKey.part`. Names and metadata are added to them."""

    # What its pods say: gang, task, rank.
    pods: PodReading = NO_READING
    key_has_uid: bool = True
    """A uid in the keys of its gangs is that of the object."""

    # Which of its pods start together.
    starts_together: Callable[[OwnerFacts, bool], bool] | None = None
    """Whether all pods do, by the facts and whether they have chips; None if the object states a minimum.

    Of a kind that has this, Volcano's PodGroups say nothing: they have one member, whatever the size.
    """
    starts_by_parts: bool = False
    """All pods of a part of it start together: it states no minimum."""
    as_kube_scheduler: bool = False
    """kube-scheduler's own group, decided as that does: all pods that are there start, all of them of one scheduler."""
    is_said_by_group: bool = False
    """Its pods are all made at once, and its Volcano PodGroup has the rest: it is not read beside that."""
    waits: str = ""
    """Why it may make no pod beside the only one that is there, as the end of a sentence; empty if it makes all."""
    family: Callable[[str], str] | None = None
    """Name of the object that makes one of these for each version of its pods, by the name of one."""

    # What becomes of a pod that is deleted.
    counts_deleted: bool = False
    """Its controller counts a deleted pod as failed, whatever the object says."""
    makes_anew: MakesAnew[Any] | None = None
    """None if it is not known."""

    # What a user's manifest of it says before there are pods.
    manifest: ManifestForm | None = None
    """None if jobs of this kind cannot be submitted."""

    @property
    def api_kind(self) -> tuple[str, str]:
        """API group and kind."""
        return self.versions[0].rpartition("/")[0], self.kind or self.name

    @property
    def gang_word(self) -> str:
        """:attr:`word`, whether or not it is the kind in lower case."""
        return self.word or self.api_kind[1].lower()
