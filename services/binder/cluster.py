"""The cluster as the binder sees it: a port, and its adapter to a simulated cluster.

The types of the port are its own. The messages of the simulated cluster are known to its adapter alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from berth.runtime.bus.port import Bus
from berth.runtime.errors import PoisonError, TransientError
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.facts import MembersSeen, PodsSeen, RankFailure
from berth.schemas.message import Message
from berth.schemas.placement import Placement
from berth.schemas.simulation import BindGang, EvictGang, GangBound, GangEvicted
from berth.schemas.units import UnixMs
from berth.services.binder.work import AttemptKey

_MS: Final = 1000
M = TypeVar("M", bound=Message)
Wake: TypeAlias = Callable[[list[AttemptKey]], None]
"""Called with attempts for which something has changed."""


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt to run a gang: what the cluster needs of it.

    Attributes:
        run_ms: Declared run time; 0 when unknown.
        gone: Ranks that were released, ascending; they are left alone.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    run_ms: int = 0
    gone: tuple[int, ...] = ()

    @property
    def key(self) -> AttemptKey:
        """Identity of the decision."""
        return (self.uid, self.attempt)


@dataclass(frozen=True, slots=True)
class BindResult:
    """What came of binding a gang.

    Attributes:
        bound: Pods that are bound, or may be.
        failures: Ranks that cannot be bound, and why.
    """

    bound: int
    failures: list[RankFailure] = field(default_factory=list)


class NotYetError(TransientError):
    """Nothing failed: the cluster waits for something that is on its way, at most for ``retry_after_s`` seconds."""


class Cluster(Protocol):
    """Where pods are bound. Binding and evicting are harmless when repeated.

    Attributes:
        fact_kinds: Kinds of facts that it takes besides outcomes: ``member``, ``pod``.
        uses_run_time: Whether :attr:`Gang.run_ms` means something to it; asking for that costs a request to the bus.
    """

    @property
    def fact_kinds(self) -> tuple[str, ...]:
        """See above."""

    @property
    def uses_run_time(self) -> bool:
        """See above."""

    def take_members(self, fact: MembersSeen) -> None:
        """Take a fact of members.

        Raises:
            ValueError: It is damaged; what was known before holds.
        """

    def take_pods(self, fact: PodsSeen) -> None:
        """Take a fact of pods.

        Raises:
            ValueError: It is damaged; what was known before holds.
            IndexError: Likewise.
        """

    def forget(self, key: AttemptKey) -> None:
        """An attempt is over."""

    async def begin(self, gangs: Sequence[Gang], *, after_ms: UnixMs, wake: Wake) -> None:
        """Learn what an earlier run did; called before the first :meth:`bind`, again after an error.

        Args:
            gangs: All live attempts of our own.
            after_ms: The latest moment that the earlier run may have named.
            wake: Called from now on with attempts that wait for a change which came.

        Raises:
            TransientError: The cluster did not answer.
        """

    async def bind(self, gang: Gang) -> BindResult:
        """Make the pods of a gang run where its placement says; a pod that is bound there already counts.

        Raises:
            NotYetError: Not all can be bound yet; the cluster wakes the attempt when that changes.
            TransientError: The cluster did not answer, or cannot do it yet; nothing is known of the result.
            PoisonError: The cluster will never do it.
        """

    async def evict(self, gang: Gang, *, reason: str) -> None:
        """Make the pods of a gang end; pods that are gone already count.

        Raises:
            TransientError: The cluster did not answer; nothing is known of the result.
            PoisonError: The cluster will never do it.
        """


class FactlessCluster:
    """The part of the port for a cluster that keeps no facts and has nothing to recover; the base of such a one."""

    @property
    def fact_kinds(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def uses_run_time(self) -> bool:
        """No."""
        return False

    def take_members(self, fact: MembersSeen) -> None:
        """Ignore it."""

    def take_pods(self, fact: PodsSeen) -> None:
        """Ignore it."""

    def forget(self, key: AttemptKey) -> None:
        """Nothing is remembered."""

    async def begin(self, gangs: Sequence[Gang], *, after_ms: UnixMs, wake: Wake) -> None:
        """Nothing is to be learned."""


class SimCluster(FactlessCluster):
    """A simulated cluster, asked over the bus.

    Args:
        bus: The bus it listens on.
        answer_timeout_s: How long it may take to answer.
    """

    def __init__(self, bus: Bus, *, answer_timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = answer_timeout_s

    @property
    def uses_run_time(self) -> bool:
        """Its pods end by themselves after that time."""
        return True

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

    async def evict(self, gang: Gang, *, reason: str) -> None:
        """See :meth:`Cluster.evict`."""
        request = EvictGang(gang.namespace, gang.name, gang.uid, gang.attempt, reason)
        _answer(await self._ask("evict", request), GangEvicted)

    async def _ask(self, verb: str, request: Message) -> bytes:
        return await self._bus.request(self._bus.subjects.sim(verb), encode(request), timeout_s=self._timeout_s)


def _answer(data: bytes, kind: type[M]) -> M:
    """Answer of a kind.

    Raises:
        PoisonError: The bytes are something else.
    """
    try:
        return decode(data, kind)
    except DecodeError as error:
        raise PoisonError(f"answer of the cluster is unreadable: {error}") from error
