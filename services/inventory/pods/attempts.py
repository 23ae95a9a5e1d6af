"""Bound pods of jobs by attempt: the state of :class:`~berth.services.inventory.pods.collection.Pods`."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from berth.schemas.facts import PodsSeen
from berth.schemas.units import UnixMs
from berth.services.inventory.pod_rows import PodRow
from berth.services.inventory.pods.facts import RankState

AttemptKey: TypeAlias = tuple[str, int]
"""(uid of the job request, attempt)"""


class NameHolder(NamedTuple):
    """Job that uses a name, its number of pods, and what they request.

    Attributes:
        uid: Uid of its request.
        pods: Number of its pods; None when unknown.
        sizes: Pods, thousandths of a CPU and mebibytes of its tasks, in their order; empty when unknown.
    """

    uid: str
    pods: int | None
    sizes: tuple[tuple[int, int, int], ...] = ()

    def beyond(self, row: PodRow) -> tuple[int, int]:
        """CPU and memory of a pod of the job beyond what its rank requests: it was resized.

        A pod that was made smaller has the amounts of its request still.
        """
        if row.identity is None or row.identity.uid != self.uid:
            return (0, 0)
        rank = row.identity.rank
        for pods, cpu_milli, memory_mib in self.sizes:
            if rank < pods:
                return (max(row.cpu_milli - cpu_milli, 0), max(row.memory_mib - memory_mib, 0))
            rank -= pods
        return (0, 0)


class LatestAttempt(NamedTuple):
    """Attempt that a status reports."""

    uid: str
    attempt: int
    is_over: bool


class Attempt:
    """Pods of one attempt: existing ones by rank and uid, and the last state of ranks without a pod."""

    def __init__(self) -> None:
        self.pods: dict[int, dict[str, PodRow]] = {}
        self.gone: dict[int, RankState] = {}

    def rows(self) -> Iterator[PodRow]:
        """All existing pods."""
        return (row for pods in self.pods.values() for row in pods.values())

    def others(self, row: PodRow) -> list[PodRow]:
        """Other pods of the rank of a pod."""
        pods = self.pods.get(row.identity.rank, {}) if row.identity is not None else {}
        return [other for other in pods.values() if other is not row]

    def is_copy(self, row: PodRow) -> bool:
        """Whether a pod has the rank and the step of an older one that lives: somebody made it from its text."""
        alike = (other for other in self.others(row) if other.is_live and other.step == row.step)
        return row.is_live and any(_turn(other) < _turn(row) for other in alike)

    def knows(self, rank: int) -> bool:
        """Whether a pod of a rank is or was there."""
        return rank in self.pods or rank in self.gone

    @property
    def is_live(self) -> bool:
        """Whether a pod lives."""
        return any(row.is_live for row in self.rows())


class JobPods:
    """Attempts of a job with pods, the published fact, and the time before which no other is published."""

    def __init__(self) -> None:
        self.attempts: dict[AttemptKey, Attempt] = {}
        self.published: PodsSeen | None = None
        self.next_ms: UnixMs = 0

    def published_of(self, attempt: AttemptKey) -> PodsSeen | None:
        """The published fact, if it is of an attempt."""
        found = self.published
        return found if found is not None and (found.uid, found.attempt) == attempt else None

    def newest(self, owned: Collection[AttemptKey], job: NameHolder | None) -> AttemptKey:
        """The newest of some attempts; those of the job that has the name count as newer.

        Args:
            owned: The attempts; at least one.
            job: That job; None without one.
        """

        def age(found: AttemptKey) -> tuple[bool, str, int, str]:
            created = max((row.created for row in self.attempts[found].rows()), default="")
            return (job is not None and job.uid == found[0], created, found[1], found[0])

        return max(owned, key=age)


def heaviest(pods: Mapping[str, PodRow]) -> PodRow:
    """The pod that counts for a rank.

    Of living ones that of the first step (its backup pod has a later one), and of those the oldest; else that of the
    newest step, the youngest.
    """
    if len(pods) == 1:
        return next(iter(pods.values()))
    live = [row for row in pods.values() if row.is_live]
    return min(live, key=_turn) if live else max(pods.values(), key=_turn)


def _turn(row: PodRow) -> tuple[int, str, str]:
    """Sort key among pods of one rank: the step for which a pod was made, and its age."""
    return (row.step, row.created, row.uid)
