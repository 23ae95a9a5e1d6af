"""The cluster as the binder sees it: a port, and its adapter to a simulated cluster."""

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from berth.runtime.bus.port import Bus
from berth.runtime.errors import PoisonError, TransientError
from berth.schemas.envelope import DecodeError, decode, encode
from berth.schemas.message import Message
from berth.schemas.placement import Placement
from berth.schemas.simulation import BindGang, EvictGang, GangBound, GangEvicted

_MS: Final = 1000
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Gang:
    """An attempt to run a gang: what the cluster must know of it.

    Attributes:
        run_ms: Declared run time; 0 when unknown.
        gone: Ranks that were released: nobody's business any more, ascending.
    """

    namespace: str
    name: str
    uid: str
    attempt: int
    placement: Placement
    run_ms: int = 0
    gone: tuple[int, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the decision."""
        return (self.uid, self.attempt)


class NotYetError(TransientError):
    """Nothing failed: the cluster waits for something that is on its way, at most for ``retry_after_s`` seconds."""


class Cluster(Protocol):
    """Where pods are bound. Both verbs are harmless when repeated."""

    async def bind(self, gang: Gang) -> GangBound:
        """Make the pods of a gang run where its placement says; pods that are bound there already count.

        Raises:
            NotYetError: Not all can be bound yet; whoever knows of the change wakes the attempt.
            TransientError: The cluster did not answer, or cannot do it yet; nothing is known of the result.
            PoisonError: The cluster will never do it.
        """

    async def evict(self, gang: Gang, *, reason: str) -> None:
        """Make the pods of a gang end; pods that are gone already count.

        Raises:
            TransientError: The cluster did not answer; nothing is known of the result.
            PoisonError: The cluster will never do it.
        """


class SimCluster:
    """A simulated cluster, asked over the bus.

    Args:
        bus: The bus it listens on.
        answer_timeout_s: How long it may take to answer.
    """

    def __init__(self, bus: Bus, *, answer_timeout_s: float) -> None:
        self._bus = bus
        self._timeout_s = answer_timeout_s

    async def bind(self, gang: Gang) -> GangBound:
        """See :meth:`Cluster.bind`.

        Raises:
            TransientError: As there.
            PoisonError: The answer is unreadable.
        """
        wish = BindGang(gang.namespace, gang.name, gang.uid, gang.attempt, gang.placement, gang.run_ms)
        bound = _answer(await self._ask("bind", wish), GangBound)
        if bound.retry_after_ms:
            raise TransientError("pods of another attempt have the name", retry_after_s=bound.retry_after_ms / _MS)
        return bound

    async def evict(self, gang: Gang, *, reason: str) -> None:
        """See :meth:`Cluster.evict`."""
        wish = EvictGang(gang.namespace, gang.name, gang.uid, gang.attempt, reason)
        _answer(await self._ask("evict", wish), GangEvicted)

    async def _ask(self, verb: str, wish: Message) -> bytes:
        return await self._bus.request(self._bus.subjects.sim(verb), encode(wish), timeout_s=self._timeout_s)


def _answer(data: bytes, kind: type[M]) -> M:
    """Answer of a kind.

    Raises:
        PoisonError: The bytes are something else.
    """
    try:
        return decode(data, kind)
    except DecodeError as error:
        raise PoisonError(f"answer of the cluster is unreadable: {error}") from error
