"""Gangs as the queue, a round and topologies use them."""

import itertools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from berth.schemas.intake import rank_of
from berth.schemas.offers import Demand, Shape
from berth.schemas.placement import Run, Share
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.refusal import Refusal

ClassKey = tuple[tuple[Shape, int], ...]
"""Request class: the shapes and the number of pods of each. Equal classes have equal placements and refusals."""


class WaitKey(NamedTuple):
    """What gangs have in common that sleep and wake together while they wait."""

    request_class: ClassKey
    line: str = ""
    """Queue whose turn they wait for; empty where queues order nothing."""


QueueOrder = tuple[int, int, str]
"""Sort key of a waiting job: priority and whether it is fragile, sequence of its place in the queue, uid."""


class Gang(msgspec.Struct, gc=False):
    """A job request that waits for its placement."""

    namespace: str
    name: str
    uid: str
    attempt: int
    priority: int
    accepted_seq: int
    request_class: ClassKey
    tasks: list[str]
    runs: list[Run]
    """Pods of each task, parallel to ``request_class``."""
    pods: int
    resource: str
    form: str
    form_because: str
    framework: str = ""
    """Label of that name; empty if it is missing."""
    labels: Mapping[str, str] = {}
    """Labels of the job."""
    beside: str = ""
    """Name of the job of its namespace near whose pods with chips it is placed; empty without."""
    invalid: Refusal | None = None
    """Refusal of a request that the settings of this epoch do not allow."""
    fresh: bool = True
    """It has no verdict in this epoch yet."""
    profiles: tuple[PodProfile, ...] = ()
    """Labels and constraints of the pods of each task; empty while constraints are off."""
    run_ms: int = 0
    """Declared run time in milliseconds; 0 if none is declared."""
    avoided: tuple[str, ...] = ()
    """Nodes that failed for the attempt before, or that rejected pods of its owner, sorted: used only if it is not
    placed otherwise."""
    is_fragile: bool = False
    """Its gang runs with too few pods: it comes before others of its priority."""
    bytes_in_record: int = 0
    """Approximate size of its placement in a record."""
    queue: str = ""
    """Queue to which it is charged; empty where queues do nothing."""
    line: str = ""
    """Queue whose turn it waits for; empty where queues order nothing."""
    charge: Mapping[str, int] = {}
    """What it counts for in its queue, by dimension; empty where queues do nothing."""

    @property
    def wait_key(self) -> WaitKey:
        """What it waits as."""
        return WaitKey(self.request_class, self.line)

    @property
    def demand(self) -> Demand | None:
        """What its pods with chips demand of a topology; None if each gets its best node."""
        return next((shape.demand for shape, _ in self.request_class if shape.demand is not None), None)

    @property
    def share(self) -> Share | None:
        """Quota of each of its soft-share pods; None if it has none."""
        return next((shape.share for shape, _ in self.request_class if shape.share is not None), None)

    def pods_in_order(self) -> list[PodProfile]:
        """Labels and constraints of each pod, by rank; empty while constraints are off."""
        pods = zip(self.profiles, self.runs, strict=bool(self.profiles))
        return [profile for profile, run in pods for _ in range(run.pods)]

    @property
    def is_plain(self) -> bool:
        """Whether none of its pods has chips."""
        return has_no_chips(self.request_class)

    @property
    def namespaced_name(self) -> str:
        """Name in refusals, logs and reports: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def order(self) -> QueueOrder:
        """Sort key in the queue."""
        return (rank_of(self.priority, is_fragile=self.is_fragile), self.accepted_seq, self.uid)


def chips_of(request_class: ClassKey) -> int:
    """Chips of a gang of a class, without chips that its pods share."""
    return sum(shape.chips * pods for shape, pods in request_class if shape.share is None)


def has_no_chips(request_class: ClassKey) -> bool:
    """Whether no pod of a class has chips; false for the class of a request that is invalid."""
    return bool(request_class) and not any(shape.chips for shape, _ in request_class)


def placing_order(request_class: ClassKey) -> list[int]:
    """Tasks of a class, by index, in the order in which their pods get nodes.

    Planned pods come first: the other pods must leave them their cpu and memory. Pods without chips come last, for they
    are placed near the others (decision plain-pods).
    """

    def stage(index: int) -> int:
        shape, _ = request_class[index]
        return 0 if shape.is_planned else 1 if shape.chips else 2

    return sorted(range(len(request_class)), key=stage)


def tasks_in_order(gang: Gang) -> Iterator[tuple[int, range]]:
    """Tasks with the ranks of their pods, in the order in which they get their nodes."""
    starts = list(itertools.accumulate((pods for _, pods in gang.request_class), initial=0))
    for index in placing_order(gang.request_class):
        yield index, range(starts[index], starts[index + 1])


def first_planned(gang: Gang) -> int:
    """Index of the first task whose pods are planned together."""
    return next(index for index, (shape, _) in enumerate(gang.request_class) if shape.is_planned)


def planned_shapes(gang: Gang) -> list[Shape]:
    """Distinct shapes of the pods that are planned together."""
    return list(dict.fromkeys(shape for shape, _ in gang.request_class if shape.is_planned))
