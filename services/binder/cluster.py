"""The cluster as the binder sees it: a port, and its adapter to a simulated cluster.

The types of the port are its own. The messages of the simulated cluster are known to its adapter alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from berth.core.state.holdings.moves import merged_placement
from berth.runtime.bus.port import Bus
from berth.runtime.errors import PoisonError, TransientError
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import MembersSeen, PodsSeen, RankFailure
from berth.schemas.message import Message
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.simulation import BindGang, EvictGang, GangBound, GangEvicted
from berth.schemas.units import UnixMs
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen
from berth.services.binder.work import Attempt, AttemptKey, Clearing

_MS: Final = 1000
HELD_RETRY_S: Final = 5.0
"""Pause before a pod that a disruption budget holds back is evicted again."""
M = TypeVar("M", bound=Message)
Manner: TypeAlias = Literal["none", "plain", "grace", "force", "evict", "evict-late"]
"""How pods are deleted. ``none``: not at all, their attempt ends when they do; ``plain``: with their own grace period;
``grace``: likewise, and their conditions and an Event say so first; ``force``: at once. ``evict``: by evictions, which
budgets may refuse; ``evict-late``: likewise, and those that end already are deleted at once."""
Shapes: TypeAlias = Sequence[tuple[int, Shape]]
Wake: TypeAlias = Callable[[list[AttemptKey]], None]
"""Called with attempts for which something has changed."""


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt to run a gang: the properties that the cluster needs.

    Attributes:
        run_ms: Declared run time; 0 when unknown.
        gone: Ranks that were released, ascending; they are not touched.
        step: Newest step of its recovery; 0 for none.
        steps: Step that gave each rank its place, by rank; ranks with their first place are not in it.
        todo: Ranks to bind, ascending; None for all that were not released.
        recovers: The gang was bound, and others of it run: each rank is bound, or fails, on its own.
        ledger: Record that gave it its newest places, as its pods name it; empty if it is not known.
        shapes: What the pods of each task select and tolerate, with their number; empty if that is not known.
        backups: Backup pods (uid) by rank: those to bind in place of the pods of their ranks, which run on; with
            ``todo`` None all that may be bound.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    run_ms: int = 0
    gone: tuple[int, ...] = ()
    step: int = 0
    steps: Mapping[int, int] = field(default_factory=dict)
    todo: tuple[int, ...] | None = None
    recovers: bool = False
    backups: Mapping[int, str] = field(default_factory=dict)
    ledger: str = ""
    shapes: Shapes = ()

    @property
    def key(self) -> AttemptKey:
        """Identity of the decision."""
        return (self.uid, self.attempt)

    def shape_of(self, rank: int) -> Shape | None:
        """What the pod of a rank selects and tolerates; None if it is not known."""
        for pods, shape in self.shapes:
            if rank < pods:
                return shape
            rank -= pods
        return None

    def ranks(self) -> list[int]:
        """Ranks to bind."""
        if self.todo is not None:
            return list(self.todo)
        gone = set(self.gone)
        return [rank for rank in range(self.placement.pods()) if rank not in gone]


@dataclass(frozen=True, slots=True)
class Leave:
    """How the pod of a rank leaves.

    Attributes:
        step: Pods that were bound for earlier steps leave.
        node: Node of the pod; empty if it has ended, so that only the pod that members name is looked at.
        at_once: It has no grace period.
        reason: Why, as a sentence.
        evicts: Disruption budgets are asked first.
    """

    step: int
    node: str
    at_once: bool
    reason: str
    evicts: bool = False

    @property
    def manner(self) -> Manner:
        """How the pod is deleted."""
        if self.evicts:
            return "evict-late" if self.at_once else "evict"
        return "force" if self.at_once else "grace"


@dataclass(frozen=True, slots=True)
class BindResult:
    """Result of binding a gang.

    Attributes:
        bound: Pods that are bound, or may be.
        failures: Ranks that cannot be bound, and the reasons.
        waiting: Ranks of a recovery whose pods are not there yet, or wait; the others do not wait for them.
        given_back: Some nodes do not take their pods any more: their ranks are among the failures.
    """

    bound: int
    failures: list[RankFailure] = field(default_factory=list)
    waiting: tuple[int, ...] = ()
    given_back: bool = False


class NotYetError(TransientError):
    """No failure: the cluster waits for an expected change, at most for ``retry_after_s`` seconds."""


class HeldBackError(NotYetError):
    """Disruption budgets hold pods back; all others were deleted.

    Attributes:
        held: Ranks of these pods, and the reasons.
    """

    def __init__(self, held: Sequence[RankFailure]) -> None:
        first = held[0]
        more = f", and {len(held) - 1} more" if len(held) > 1 else ""
        super().__init__(f"pod of rank {first.rank}: {first.reason}{more}", retry_after_s=HELD_RETRY_S)
        self.held = list(held)


def gang_of(attempt: Attempt, run_ms: int = 0, *, to_bind: Sequence[int] | None = None, shapes: Shapes = ()) -> Gang:
    """An attempt in the form of the cluster port.

    A backup pod that is to be bound has the place that is reserved for it, beside the pod that its rank has.

    Args:
        attempt: The attempt.
        run_ms: Declared run time; 0 when unknown.
        to_bind: Ranks that are to be bound; None for all that were not released, and their backup pods.
        shapes: What the pods of each task select and tolerate, with their number.
    """
    placement, steps = attempt.placement, dict(attempt.holding.steps)
    moves = attempt.holding.backups()
    if to_bind is not None:
        moves = {rank: move for rank, move in attempt.unbound_backups().items() if rank in to_bind}
        places = {
            rank: (move.placement, move.ranks.index(rank)) for rank, move in moves.items() if move.placement is not None
        }
        placement = merged_placement(placement, places) if places else placement
        steps |= {rank: move.step for rank, move in moves.items()}
    return Gang(
        attempt.namespace,
        attempt.name,
        attempt.uid,
        attempt.attempt,
        placement,
        run_ms,
        tuple(attempt.gone),
        step=attempt.holding.step,
        steps=steps,
        todo=None if to_bind is None else tuple(to_bind),
        recovers=attempt.recovers,
        backups={rank: move.backup_of(rank) for rank, move in moves.items()},
        ledger=attempt.ledger,
        shapes=shapes,
    )


class Cluster(Protocol):
    """The cluster whose pods are bound. Binding and evicting are idempotent.

    Attributes:
        fact_kinds: Kinds of facts that it takes besides outcomes: ``member``, ``pod``, ``claim``, ``unbound``.
    """

    @property
    def fact_kinds(self) -> tuple[str, ...]:
        """See above."""

    def take_members(self, fact: MembersSeen) -> None:
        """Take a fact of members.

        Raises:
            ValueError: It is damaged; the previous fact stays in force.
        """

    def take_pods(self, fact: PodsSeen) -> None:
        """Take a fact of pods.

        Raises:
            ValueError: It is damaged; the previous fact stays in force.
            IndexError: Likewise.
        """

    def take_claim(self, fact: ClaimSeen) -> None:
        """Take a fact of a claim."""

    def take_unbound(self, fact: UnboundSeen) -> None:
        """Take a fact about a claim that could not be bound, of this or an earlier run."""

    def unbound_due(self) -> list[UnboundSeen]:
        """Facts about claims that could not be bound, as far as they differ from those published."""

    def note_unbound(self, fact: UnboundSeen) -> None:
        """Note that such a fact was published."""

    def forget(self, key: AttemptKey) -> None:
        """An attempt has ended."""

    async def begin(self, gangs: Sequence[Gang], *, after_ms: UnixMs, wake: Wake) -> None:
        """Read the actions of an earlier run; called before the first :meth:`bind`, again after an error.

        Args:
            gangs: All live attempts of Berth.
            after_ms: The latest time that the earlier run may have written.
            wake: Called from now on with attempts whose awaited change has happened.

        Raises:
            TransientError: The cluster did not answer.
        """

    async def bind(self, gang: Gang) -> BindResult:
        """Bind the pods of a gang according to its placement; a pod that is bound there already counts.

        Raises:
            NotYetError: Not all can be bound yet; the cluster wakes the attempt when that changes.
            TransientError: The cluster did not answer, or cannot do it yet; the result is unknown.
            PoisonError: The cluster rejects it permanently.
        """

    async def take_back(self, gang: Gang) -> None:
        """Take back what was written for a gang of which no pod will be bound; what is done already counts.

        Called before its outcome is published: with that its nodes and volumes may be given to others.

        Raises:
            TransientError: The cluster did not answer; the result is unknown.
        """

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        """Evict the pods of a gang; pods that are gone already count.

        Raises:
            HeldBackError: Disruption budgets hold some pods back.
            TransientError: The cluster did not answer; the result is unknown.
            PoisonError: The cluster rejects it permanently.
        """

    async def remove(self, gang: Gang, leaves: Mapping[int, Leave]) -> None:
        """Delete the pods of some ranks; those of later steps stay, and pods that are gone already count.

        Raises:
            HeldBackError: Disruption budgets hold some pods back.
            TransientError: The cluster did not answer, or does not report some of the pods yet.
            PoisonError: The cluster rejects it permanently.
        """

    async def clear(self, clearing: Clearing) -> None:
        """Delete ended pods of earlier attempts of a job.

        Raises:
            TransientError: The cluster did not answer.
            PoisonError: The cluster rejects it permanently.
        """

    async def mark(self, gang: Gang, ranks: Sequence[int], kind: str) -> None:
        """Mark the pods of some ranks as faulty; pods that are gone already count.

        Raises:
            TransientError: The cluster did not answer.
            PoisonError: The cluster rejects it permanently.
        """

    async def request_checkpoint(self, gang: Gang, since_ms: UnixMs) -> None:
        """Request a checkpoint from the agents of a job; called before any of its pods is deleted.

        Args:
            gang: The attempt.
            since_ms: Time of the first step of the recovery.

        Raises:
            TransientError: The cluster did not answer: no pod may be deleted yet.
        """


class FactlessCluster:
    """Base of clusters that use no facts and need no recovery."""

    @property
    def fact_kinds(self) -> tuple[str, ...]:
        """None."""
        return ()

    def take_members(self, fact: MembersSeen) -> None:
        """Ignore it."""

    def take_pods(self, fact: PodsSeen) -> None:
        """Ignore it."""

    def take_claim(self, fact: ClaimSeen) -> None:
        """Ignore it."""

    def take_unbound(self, fact: UnboundSeen) -> None:
        """Ignore it."""

    def unbound_due(self) -> list[UnboundSeen]:
        """None."""
        return []

    def note_unbound(self, fact: UnboundSeen) -> None:
        """Ignore it."""

    async def take_back(self, gang: Gang) -> None:
        """Nothing is written beside pods."""

    async def remove(self, gang: Gang, leaves: Mapping[int, Leave]) -> None:
        """It deletes whole gangs alone: the pods stay until their gang ends."""

    async def clear(self, clearing: Clearing) -> None:
        """Ended pods are gone."""

    async def mark(self, gang: Gang, ranks: Sequence[int], kind: str) -> None:
        """Nobody reads marks."""

    async def request_checkpoint(self, gang: Gang, since_ms: UnixMs) -> None:
        """There are no agents."""

    def forget(self, key: AttemptKey) -> None:
        """No state to drop."""

    async def begin(self, gangs: Sequence[Gang], *, after_ms: UnixMs, wake: Wake) -> None:
        """No recovery."""


class SimCluster(FactlessCluster):
    """A simulated cluster, called over the bus.

    Args:
        bus: The bus it listens on.
        answer_timeout_s: Timeout of an answer.
    """

    def __init__(self, bus: Bus, *, answer_timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = answer_timeout_s

    async def bind(self, gang: Gang) -> BindResult:
        """See :meth:`Cluster.bind`.

        Raises:
            TransientError: As there.
            PoisonError: The answer is unreadable.
        """
        request = BindGang(gang.namespace, gang.name, gang.uid, gang.attempt, gang.placement, gang.run_ms)
        bound = _answer(await self._ask("bind", request), GangBound)
        if bound.retry_after_ms:
            raise TransientError("pods of another attempt have the name", retry_after_s=bound.retry_after_ms / _MS)
        return BindResult(bound.bound, bound.failures)

    async def evict(self, gang: Gang, *, reason: str, manner: Manner = "plain") -> None:
        """See :meth:`Cluster.evict`; its pods know no grace period."""
        del manner
        request = EvictGang(gang.namespace, gang.name, gang.uid, gang.attempt, reason)
        _answer(await self._ask("evict", request), GangEvicted)

    async def _ask(self, verb: str, request: Message) -> bytes:
        return await self._bus.request(self._bus.subjects.sim(verb), encode(request), timeout_s=self._timeout_s)


def _answer(data: bytes, kind: type[M]) -> M:
    """Answer of a kind.

    Raises:
        PoisonError: The bytes are not such an answer.
    """
    try:
        return decode(data, kind)
    except DecodeError as error:
        raise PoisonError(f"answer of the cluster is unreadable: {error}") from error
