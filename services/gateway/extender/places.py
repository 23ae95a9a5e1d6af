"""Answers about pods, from what Berth has decided: on which node a pod is to be, or why on none. Pure."""

from typing import Final, NamedTuple

from berth.core.explain.refusal_text import within
from berth.schemas.columns import unpack
from berth.schemas.facts import MembersSeen, OutcomeSeen
from berth.schemas.placement import Placement
from berth.schemas.status import JobStatus

_RANK_BYTES: Final = 4
_PLACED: Final = frozenset({"placed", "bound", "running"})
_OVER: Final = frozenset({"ending", "succeeded", "failed", "cancelled"})
_NO_REASON: Final = "Berth has not decided yet"
_UNKNOWN: Final = (
    "not requested through Berth: no job request is known for this pod, and pods with chips are placed by Berth alone"
)


class Rank(NamedTuple):
    """Rank of a pod.

    Attributes:
        namespace: Of the job request.
        job: Its name.
        uid: Its uid; empty while no request is made.
        rank: The rank.
        is_backup: The pod is made beside that of the rank.
        hold: Why no request is made; empty if one is.
    """

    namespace: str
    job: str
    uid: str
    rank: int
    is_backup: bool
    hold: str


class Outcome(NamedTuple):
    """What the binder has done.

    Attributes:
        uid: Uid of the job request.
        attempt: The attempt.
        is_bound: Its pods are bound, but for ``left``.
        left: Ranks that could not be bound, or are to be bound anew.
    """

    uid: str
    attempt: int
    is_bound: bool
    left: frozenset[int]


class Place(NamedTuple):
    """Answer about a pod.

    Attributes:
        node: Node on which Berth has placed it; empty without one.
        reason: Why on no other node, or on none.
        is_bound: The binder has bound it there.
        result: The same in a word, for metrics: ``placed``, ``bound``, ``waiting`` or ``unknown``.
    """

    node: str
    reason: str
    is_bound: bool
    result: str


class Pods:
    """Ranks of all pods, and what the binder has done with them."""

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        """By uid of the pod."""
        self._uids: dict[tuple[str, str], tuple[str, ...]] = {}
        """Uids of the pods of each job."""
        self._outcomes: dict[tuple[str, str], Outcome] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def clear(self) -> None:
        """Forget everything: all that there is follows."""
        self._ranks.clear()
        self._uids.clear()
        self._outcomes.clear()

    def take_members(self, fact: MembersSeen) -> None:
        """Take the pods of a job in place of those that it had.

        Raises:
            ValueError: The columns do not fit together; the earlier ones stay.
        """
        ranks = unpack(fact.rank, _RANK_BYTES)
        rows = list(zip(ranks, fact.pod_uids, strict=True))
        job = (fact.namespace, fact.job)
        for uid in self._uids.pop(job, ()):
            if self._ranks[uid][:2] == job:
                del self._ranks[uid]
        found = {
            uid: Rank(*job, fact.uid, rank, is_backup=is_backup, hold=fact.hold)
            for is_backup, pods in ((True, [(one.rank, one.uid) for one in fact.backups]), (False, rows))
            for rank, uid in pods
            if uid
        }
        self._ranks |= found
        if found:
            self._uids[job] = tuple(found)
        else:
            self._outcomes.pop(job, None)

    def take_outcome(self, fact: OutcomeSeen) -> None:
        """Take what the binder has done with a job; of one without pods nothing is kept."""
        if (fact.namespace, fact.name) not in self._uids:
            return
        left = frozenset([*(one.rank for one in fact.failures), *fact.open])
        self._outcomes[fact.namespace, fact.name] = Outcome(fact.uid, fact.attempt, fact.state == "bound", left)

    def rank_of(self, namespace: str, uid: str) -> Rank | None:
        """Rank of a pod; None if it has none, or is said to be in another namespace."""
        found = self._ranks.get(uid)
        return found if found is not None and found.namespace == namespace else None

    def place_of(self, rank: Rank, status: JobStatus | None) -> Place:
        """Where a pod with a rank is to be.

        Args:
            rank: The rank.
            status: Status of its job; None without one.
        """
        if status is None or not rank.uid or status.uid != rank.uid:
            return _waits(f"waits: {rank.hold or _NO_REASON}")
        placement = status.placement
        if placement is None or status.phase not in _PLACED:
            return _waits(_why_unplaced(rank, status))
        if why := _why_without_place(rank, status, placement):
            return _waits(why)
        node = placement.names()[rank.rank]
        reason = f"Berth has placed this pod on node {node}"
        if self._is_bound(rank, status):
            return Place(node, reason, is_bound=True, result="bound")
        if placement.claims:
            return _waits(f"waits: the binder of Berth binds its claims and then this pod, on node {node}")
        return Place(node, reason, is_bound=False, result="placed")

    def _is_bound(self, rank: Rank, status: JobStatus) -> bool:
        outcome = self._outcomes.get((rank.namespace, rank.job))
        recovery = status.recovery
        is_open = recovery is not None and recovery.attempt == status.attempt and rank.rank in recovery.open
        return (
            outcome is not None
            and (outcome.uid, outcome.attempt) == (status.uid, status.attempt)
            and outcome.is_bound
            and rank.rank not in outcome.left
            and not is_open
        )


def _why_unplaced(rank: Rank, status: JobStatus) -> str:
    """Why no pod of a job is to be anywhere."""
    if status.phase == "rejected":
        return f"rejected: {status.sentence}"
    if status.phase in _OVER:
        return f"job {rank.job} is {status.phase}"
    return f"waits: {within(status.sentence, status.refusal, status.namespace) or _NO_REASON}"


def _why_without_place(rank: Rank, status: JobStatus, placement: Placement) -> str:
    """Why a rank of a placed job is to be nowhere; empty if it has a place."""
    recovery = status.recovery
    if rank.is_backup:
        return "waits: the binder of Berth binds this backup pod beside the pod of its rank"
    if rank.rank >= placement.pods():
        return f"waits: rank {rank.rank} of job {rank.job} has no place"
    if recovery is not None and recovery.attempt == status.attempt and rank.rank in recovery.unplaced:
        return f"waits: {recovery.refusal or _NO_REASON}"
    return ""


def _waits(reason: str) -> Place:
    return Place("", reason, is_bound=False, result="waiting")


def not_known() -> Place:
    """Answer about a pod without a rank."""
    return Place("", _UNKNOWN, is_bound=False, result="unknown")


def bind_error(place: Place, node: str) -> str:
    """Why a pod cannot be confirmed to be bound to a node; empty if it is bound there."""
    if not place.node:
        return place.reason
    if place.node != node:
        return f"node is {node}, expected {place.node}: {place.reason}"
    return "" if place.is_bound else f"the binder of Berth has not bound this pod to node {node} yet"
