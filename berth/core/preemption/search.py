"""Search: the cheapest gangs whose end gives a preemptor a place, and its exact placement there.

The dispatcher makes one search for a round, after its gangs have their verdicts, and asks it about each preemptor in
the order of the queue. Preemptors see what those before them got: :meth:`Search.accept` counts it.

Places are compared by counting; then the cheapest set is planned by the planner of all placements, on a copy of the
nodes without its gangs.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import ClassKey, Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.scoring import Scorer
from berth.core.pod_shares import pods_of
from berth.core.preemption.attempt import Attempt
from berth.core.preemption.candidates import Candidate, Eligible
from berth.core.preemption.cost import Prices
from berth.core.preemption.footprints import Footprints, Held, held_of, surplus_of
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import NoVictims, Place, Preemptor, RunningGang, Standing, Terms, Victim, VictimSet
from berth.core.queues.amounts import judged
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.shares import Shares
from berth.core.state.cell import State
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import Amounts

_Key = tuple[str, int]
"""(uid, attempt)."""
_Same = tuple[ClassKey, str, str, int, bool, bool, bool]
"""What preemptors have in common that fare alike."""


class Ground(NamedTuple):
    """What a search sees of a round. Nothing of it is changed.

    Attributes:
        state: The cell before the round.
        scorer: Its scoring, under the settings of the epoch.
        running: Gangs that hold something, leaving ones included, in any order. Gangs that the round itself ends are
            leaving too.
        at_ms: The moment of the round.
        silent: Rows of shards that did not answer, shape (rows,): neither places nor victims; None for no such row.
        taken: Gangs that the round has placed, and gangs for which places are reserved on chips that others still have
            (these first), each with its placement. Nobody else gets these places.
        shares: Limits and entitlements; None where queues do nothing: then all gangs are in one queue.
        usage: What queues hold, those of ``taken`` included; None without shares.
        queue_evictions: Evictions of gangs of each queue in the last hour, for a bound of a queue.
    """

    state: State
    scorer: Scorer
    running: Sequence[RunningGang]
    at_ms: int
    silent: Fits | None = None
    taken: Sequence[tuple[Gang, Placement]] = ()
    shares: Shares | None = None
    usage: Usage | None = None
    queue_evictions: Mapping[str, int] = {}


class Search:
    """A search for victims during one round.

    Args:
        ground: What it sees of the round.
        terms: Settings of the epoch.
        footprints: What gangs hold, kept from earlier rounds; None keeps nothing.
    """

    def __init__(self, ground: Ground, terms: Terms, footprints: Footprints | None = None) -> None:
        self._ground = ground
        self._terms = terms
        self._footprints = Footprints() if footprints is None else footprints
        self._running = {gang.key: gang for gang in sorted(ground.running, key=lambda one: one.key)}
        self._usage = ground.usage.fork() if ground.usage is not None else None
        self._queue_evictions = dict(ground.queue_evictions)
        self._taken = [_counted(gang, ground.at_ms) for gang, _ in ground.taken]
        self._base = ProjectedState(ground.state, ground.scorer, ground.silent)
        self._has_more_room = False
        """Gangs are leaving, so that there may be more room than the round saw."""
        self._whole: dict[_Key, Held] = {}
        """What gangs hold that may be victims as far as nodes are concerned."""
        self._parts: dict[tuple[_Key, tuple[int, ...]], Held] = {}
        """What surplus ranks hold."""
        for gang in self._running.values():
            self._see(gang)
        for placed, placement in ground.taken:
            self._take(placed, placement)
        self._eligible = self._made_eligible()
        self._refused: dict[_Same, NoVictims] = {}

    def _see(self, gang: RunningGang) -> None:
        held, silent = self._footprints.of(self._ground.state, gang.key), self._ground.silent
        if held is None:
            return
        if gang.counted.is_leaving:
            self._base.end({gang.key: held.footprint})
            self._has_more_room = True
        elif silent is None or not silent[held.footprint.rows].any():
            self._whole[gang.key] = held

    def _take(self, gang: Gang, placement: Placement) -> None:
        self._base.start(gang, placement, held_of(self._ground.state, pods_of(placement), placement).footprint)

    def _made_eligible(self) -> Eligible:
        return Eligible(
            list(self._running.values()),
            self._terms,
            self._ground.at_ms,
            shares=self._ground.shares,
            queue_evictions=self._queue_evictions,
            part=self._surplus,
            others=self._taken,
        )

    def _surplus(self, gang: RunningGang, ranks: tuple[int, ...]) -> tuple[Amounts, int]:
        return surplus_of(self._ground.state.fold.holdings[gang.key], ranks)

    def find(self, preemptor: Preemptor) -> VictimSet | NoVictims:
        """The cheapest victims of a preemptor with its placement, or why there are none.

        It is deterministic: equal grounds and equal calls before give equal results. The caller asks only about gangs
        that an eviction may help: refused for room or by ``over-capability``, with no place reserved.

        Args:
            preemptor: The gang; its class was refused on all nodes in this round.
        """
        gang = preemptor.gang
        same = (gang.request_class, gang.queue, gang.namespace, gang.priority, *preemptor.flags)
        known = self._refused.get(same)
        if known is not None:
            return known
        found = self._found(preemptor)
        if isinstance(found, NoVictims):
            self._refused[same] = found
        return found

    def _found(self, preemptor: Preemptor) -> VictimSet | NoVictims:
        legality = Legality(preemptor, self._ground.shares, self._usage, self._evictions_left())
        if not legality.is_open:
            return NoVictims("never")
        eligible, exhausted = self._eligible.candidates(preemptor)
        candidates = self._reached(eligible)
        attempt = self._attempt(preemptor, candidates)
        if self._has_more_room and legality.has_room():
            placement = attempt.planned(())
            if placement is not None:
                return VictimSet((), placement, Place("cell"), Prices(()).of(()), (), attempt.plans)
        found = attempt.cheapest(legality) if candidates else None
        if found is not None:
            victims = tuple(sorted(map(_victim, found.victims)))
            standings = self._standings(preemptor, found.victims)
            return VictimSet(victims, found.placement, found.spot.place, found.cost, standings, attempt.plans)
        if preemptor.is_never:
            return NoVictims("never")
        over = self._reached(exhausted.candidates)
        if over and self._attempt(preemptor, [*candidates, *over]).has_place():
            return NoVictims("evictions-exhausted", *_sums(over), evictions=exhausted.evictions)
        return NoVictims("preempt", *_sums(candidates), place=attempt.smallest)

    def _evictions_left(self) -> dict[str, int]:
        most = self._terms.queue_evictions_per_hour
        if not most:
            return {}
        queues = dict.fromkeys(gang.counted.queue for gang in self._running.values())
        return {queue: most - self._queue_evictions.get(queue, 0) for queue in queues}

    def _reached(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that hold something, and nothing on silent rows."""
        return [one for one in candidates if one.gang.key in self._whole]

    def _attempt(self, preemptor: Preemptor, candidates: Sequence[Candidate]) -> Attempt:
        return Attempt(
            self._ground.state,
            self._base,
            preemptor.gang,
            candidates,
            held=self._held,
            shortened=self._eligible.shortened,
            silent=self._ground.silent,
            terms=self._terms,
        )

    def _held(self, one: Candidate) -> Held:
        if not one.ranks:
            return self._whole[one.gang.key]
        key = (one.gang.key, one.ranks)
        if key not in self._parts:
            self._parts[key] = self._footprints.part(self._ground.state, *key)
        return self._parts[key]

    def _standings(self, preemptor: Preemptor, victims: Sequence[Candidate]) -> tuple[Standing, ...]:
        shares, usage = self._ground.shares, self._usage
        if shares is None or usage is None:
            return ()
        gang = preemptor.gang
        others = sorted({one.gang.counted.queue for one in victims if not one.is_own})
        return tuple(
            Standing(queue, name, usage.held(queue, name), shares.entitlements.get(queue, {}).get(name, 0))
            for queue in [gang.queue, *others]
            for name in judged(gang.charge)
        )

    def accept(self, preemptor: Preemptor, found: VictimSet) -> None:
        """Count a result for the preemptors behind: its victims are leaving, and its places are taken."""
        for victim in found.victims:
            self._leave(victim)
        gang = preemptor.gang
        self._take(gang, found.placement)
        self._taken.append(_counted(gang, self._ground.at_ms))
        if self._usage is not None:
            self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)
        self._eligible = self._made_eligible()
        self._refused.clear()

    def _leave(self, victim: Victim) -> None:
        key = (victim.uid, victim.attempt)
        gang, charge = self._running[key], self._running[key].counted.charge
        queue, namespace = gang.counted.queue, gang.counted.namespace
        self._has_more_room = True
        if victim.ranks:
            charge, chips = self._surplus(gang, victim.ranks)
            self._base.free(self._footprints.part(self._ground.state, key, victim.ranks).footprint)
            left = {name: amount - charge.get(name, 0) for name, amount in gang.counted.charge.items()}
            counted = msgspec.structs.replace(gang.counted, charge=left)
            # What else it has beyond its minimum waits for the next round.
            self._running[key] = msgspec.structs.replace(gang, counted=counted, chips=gang.chips - chips, surplus=())
            self._whole.pop(key)
        else:
            self._base.end({key: self._whole[key].footprint})
            counted = msgspec.structs.replace(gang.counted, is_leaving=True)
            self._running[key] = msgspec.structs.replace(gang, counted=counted)
        if self._usage is not None:
            self._usage.charge(queue, charge, namespace=namespace, times=-1)
            self._usage.charge(queue, charge, namespace=namespace, is_leaving=True)
        self._queue_evictions[queue] = self._queue_evictions.get(queue, 0) + 1


def _victim(one: Candidate) -> Victim:
    counted = one.gang.counted
    return Victim(
        counted.uid,
        one.gang.attempt,
        counted.queue,
        counted.priority,
        is_reclaimed=not one.is_own,
        chips=one.chips,
        lost=one.lost,
        ranks=one.ranks,
    )


def _sums(candidates: Sequence[Candidate]) -> tuple[int, int]:
    """Gangs of candidates, and their chips; the surplus of a gang that is one as a whole too does not count again."""
    chips: dict[_Key, int] = {}
    for one in candidates:
        chips[one.gang.key] = max(chips.get(one.gang.key, 0), one.chips)
    return len(chips), sum(chips.values())


def _counted(gang: Gang, at_ms: int) -> Holding:
    """A gang that got places, as queues count it."""
    return Holding(
        gang.uid, gang.queue, dict(gang.charge), namespace=gang.namespace, priority=gang.priority, start=at_ms
    )
