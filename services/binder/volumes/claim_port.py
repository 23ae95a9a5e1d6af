"""The part of the port of the cluster that is about claims, on Kubernetes."""

from berth.runtime.clock import Clock
from berth.schemas.volume_facts import ClaimSeen, UnboundSeen
from berth.services.binder.cluster import Gang, Wake
from berth.services.binder.volumes.gang_claims import GangClaims
from berth.services.binder.work import AttemptKey


def ignore_wake(_keys: list[AttemptKey]) -> None:
    """Wake nothing."""


class ClaimPort:
    """Base of a cluster that binds claims.

    Args:
        claims: Claims of the gangs that are being bound.
        clock: Source of time.

    Attributes:
        wake: Called with attempts for which something has changed.
    """

    def __init__(self, claims: GangClaims, clock: Clock) -> None:
        self._claims = claims
        self._clock = clock
        self.wake: Wake = ignore_wake

    def take_claim(self, fact: ClaimSeen) -> None:
        """Take a fact of a claim."""
        self.wake(self._claims.take_claim(fact))

    def take_unbound(self, fact: UnboundSeen) -> None:
        """Take a fact about a claim that could not be bound."""
        self._claims.failures.take(fact)

    def unbound_due(self) -> list[UnboundSeen]:
        """See :meth:`berth.services.binder.cluster.Cluster.unbound_due`."""
        return self._claims.failures.due(self._clock.now_ms())

    def note_unbound(self, fact: UnboundSeen) -> None:
        """Note that a fact about a claim was published."""
        self._claims.failures.note_published(fact)

    async def take_back(self, gang: Gang) -> None:
        """See :meth:`berth.services.binder.cluster.Cluster.take_back`.

        Raises:
            TransientError: The API server did not answer.
        """
        await self._claims.take_back(gang)
