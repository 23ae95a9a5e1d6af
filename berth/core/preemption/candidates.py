"""Who may go for a preemptor: its candidates, each with what it gives up and how dear that is.

A gang that is not elastic is one candidate. An elastic one is two: the ranks beyond its minimum, and all of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.preemption.model import Candidate, Preemptor, RunningGang, Terms
from berth.core.queues.admission import gangs_within
from berth.core.queues.charges import Holding
from berth.core.queues.shares import Shares
from berth.schemas.queues.queue import Amounts

_SECOND_MS: Final = 1_000

Part = Callable[[RunningGang, tuple[int, ...]], tuple[Amounts, int]]
"""What some ranks of a gang count for in its queue, and how many chips they have."""


class Exhausted(NamedTuple):
    """Gangs that may not go only because of evictions in the last hour.

    Attributes:
        candidates: They.
        evictions: Most evictions of one of them, or of its queue.
    """

    candidates: list[Candidate]
    evictions: int


class Eligible:
    """Which gangs may go at a moment.

    Args:
        running: Gangs that hold something; candidates are in this order.
        terms: Settings of the epoch.
        at_ms: The moment.
        shares: Entitlements; None where queues do nothing.
        queue_evictions: Evictions of gangs of each queue in the last hour.
        part: What ranks of a gang are.
        others: Gangs that take part of what their queues are entitled to, and may not go.
    """

    def __init__(
        self,
        running: Sequence[RunningGang],
        terms: Terms,
        at_ms: int,
        *,
        shares: Shares | None,
        queue_evictions: Mapping[str, int],
        part: Part,
        others: Sequence[Holding] = (),
    ) -> None:
        self._running = running
        self._terms = terms
        self._at_ms = at_ms
        self._shares = shares
        self._queue_evictions = queue_evictions
        self._part = part
        holdings = [*(one.counted for one in running), *others]
        self.within = gangs_within(shares, holdings) if shares is not None else frozenset()
        """Uids of gangs that are within the entitlement of their queue."""
        self.lowest: dict[str, int] = {}
        """Lowest priority of a gang in each queue that has any."""
        for one in running:
            queue, priority = one.counted.queue, one.counted.priority
            self.lowest[queue] = min(priority, self.lowest.get(queue, priority))

    def candidates(self, preemptor: Preemptor) -> tuple[list[Candidate], Exhausted]:
        """Candidates of a preemptor, and who would be one but for its evictions."""
        found: list[Candidate] = []
        over: list[Candidate] = []
        most = 0
        for gang in self._running if not preemptor.is_never else ():
            if self._may_go(gang, preemptor):
                evictions = self._over(gang)
                most = max(most, evictions)
                (over if evictions else found).extend(self._parts(gang, preemptor))
        return found, Exhausted(over, most)

    def shortened(self, one: Candidate, ranks: int) -> Candidate:
        """The first ranks of a surplus alone."""
        kept = one.ranks[:ranks]
        charge, chips = self._part(one.gang, kept)
        lost = self._lost(one.gang, chips)
        return msgspec.structs.replace(one, ranks=kept, charge=charge, chips=chips, lost=lost)

    def _may_go(self, gang: RunningGang, preemptor: Preemptor) -> bool:
        """Whether a gang, or some of it, may go, whatever was evicted before."""
        counted = gang.counted
        if not gang.may_end:
            return False
        if self._terms.declared_only and not gang.declares_preemptable:
            return False
        if self._is_own(gang, preemptor) or preemptor.is_critical:
            return counted.priority < preemptor.gang.priority
        shares = self._shares
        return shares is not None and shares.tree.is_reclaimable(counted.queue) and counted.uid not in self.within

    def _is_own(self, gang: RunningGang, preemptor: Preemptor) -> bool:
        return self._shares is None or gang.counted.queue == preemptor.gang.queue

    def _over(self, gang: RunningGang) -> int:
        """Evictions of a gang, or of its queue, in the last hour, if they are so many that it may not go; else 0."""
        terms = self._terms
        if gang.evicted_ms and terms.evictions_per_hour:
            own = gang.evictions_at(self._at_ms)
            if own >= terms.evictions_per_hour:
                return own
        most = terms.queue_evictions_per_hour
        of_queue = self._queue_evictions.get(gang.counted.queue, 0) if most else 0
        return of_queue if of_queue >= most else 0

    def _parts(self, gang: RunningGang, preemptor: Preemptor) -> Iterator[Candidate]:
        """A gang that may go: its surplus, which cooldown and minimum run times do not protect, and all of it."""
        counted, shares = gang.counted, self._shares
        is_own = self._is_own(gang, preemptor)
        queue = shares.tree.queues.get(counted.queue) if shares is not None else None
        level = (queue.priority if queue is not None else 0, counted.priority)
        if gang.surplus:
            charge, chips = self._part(gang, gang.surplus)
            yield Candidate(gang, is_own, charge, gang.surplus, chips, self._lost(gang, chips), level)
        least_s = self._terms.preempt_min_run_s if is_own else self._terms.reclaim_min_run_s
        if self._at_ms >= max(gang.cooldown_until_ms, gang.start_ms + least_s * _SECOND_MS):
            yield Candidate(gang, is_own, counted.charge, (), gang.chips, self._lost(gang, gang.chips), level)

    def _lost(self, gang: RunningGang, chips: int) -> int:
        return lost_by(gang, chips, self._terms, self._at_ms)


def lost_by(gang: RunningGang, chips: int, terms: Terms, at_ms: int) -> int:
    """Chip-seconds that are lost if some chips of a gang are given up: since it last saved, and for its restart.

    A gang that declares nothing, or something too old, is taken to have saved at its start or some time ago, whichever
    is later.

    Args:
        gang: The gang.
        chips: The chips.
        terms: Settings of the epoch.
        at_ms: The moment.
    """
    saved_ms = gang.checkpoint_ms if gang.start_ms <= gang.checkpoint_ms <= at_ms else gang.start_ms
    trusted_ms = at_ms - terms.checkpoint_trust_max_s * _SECOND_MS
    if saved_ms != gang.checkpoint_ms or saved_ms < trusted_ms:
        saved_ms = max(gang.start_ms, at_ms - terms.assumed_checkpoint_s * _SECOND_MS)
    return chips * (max(0, at_ms - saved_ms) // _SECOND_MS + terms.restart_s)
