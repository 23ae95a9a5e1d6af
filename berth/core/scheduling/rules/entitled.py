"""Room for the entitled: a gang that its queue is entitled to, and that finds no room, is not delayed by borrowers.

The first such gang has a reservation, as the first large gang has under ``easy``, whatever its size and whatever the
other rules are. Gangs with which their queue would borrow start only where they delay it by nothing; without that a
stream of small borrowers could take each chip that becomes free.
"""

from typing import Final

from berth.core.gangs import Gang
from berth.core.placement.rules import Entry, RuleRound
from berth.core.queues.amounts import judged
from berth.core.queues.shares import Shares
from berth.core.scheduling.rules.backfill import Backfill, BackfillRound, Memory, Terms
from berth.core.scheduling.rules.port import RoundStart
from berth.schemas.placement import Placement
from berth.schemas.refusal import Refusal

ENTITLED: Final = "entitled"
_TERMS: Final = Terms(chips=1, depth=1, is_deep=False)


class Entitled(Backfill):
    """``entitled``."""

    def __init__(self) -> None:
        super().__init__(_TERMS)

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round; None without a tree."""
        shares = start.state.queues.shares()
        return None if shares is None else EntitledRound(self.name, start, self._memory, shares)


class EntitledRound(BackfillRound):
    """The rule in one round.

    Args:
        name: Name of the rule.
        start: What the round begins with.
        memory: Cache that the rule keeps between rounds.
        shares: Entitlements.
    """

    def __init__(self, name: str, start: RoundStart, memory: Memory, shares: Shares) -> None:
        super().__init__(name, start, _TERMS, memory)
        self._shares = shares
        self._usage = start.state.queues.usage(shares.tree).fork()

    def admit(self, entry: Entry) -> Refusal | None:
        """A borrower is refused if it runs at least as long as one of its class that was refused."""
        return None if self._is_entitled(entry.gang) else super().admit(entry)

    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:
        """Whether the reservation stands when a borrower starts; an entitled gang may take its place."""
        if self._is_entitled(entry.gang):
            return None
        self._pass(None)  # a gang behind a borrower in age may be before it in turns
        return super().allow(entry, placement)

    def started(self, gang: Gang, placement: Placement) -> None:
        """It counts from now on."""
        super().started(gang, placement)
        self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)

    def _may_reserve(self, gang: Gang) -> bool:
        return self._is_entitled(gang) and super()._may_reserve(gang)

    def _is_entitled(self, gang: Gang) -> bool:
        """Whether its queue, and each above but the root, stays within its entitlement with the gang."""
        path = self._shares.tree.paths.get(gang.queue)
        if path is None:
            return False
        charge = gang.charge
        return all(
            self._usage.held(step, dimension) + charge[dimension] <= self._shares.entitlements[step].get(dimension, 0)
            for step in path[:-1]
            for dimension in judged(charge)
        )
