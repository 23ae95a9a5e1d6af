"""Search: the cheapest gangs whose end gives a preemptor a place, and its exact placement there.

The dispatcher makes one search for a round, after its gangs have their verdicts, and asks it about each preemptor in
the order of the queue. Preemptors see what those before them got: :meth:`Search.accept` counts it.

Places are compared by counting; then the cheapest set is planned by the planner of all placements, on a copy of the
nodes without its gangs. What is found out about candidates serves all preemptors of a round.

Longer than 400 lines because preemptors share what is known of the round, and each result changes it for those behind.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang, chips_of
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.scoring import Scorer
from berth.core.pod_shares import pods_of
from berth.core.preemption.attempt import Attempt, Found
from berth.core.preemption.candidates import Eligible
from berth.core.preemption.cost import Prices
from berth.core.preemption.footprints import Footprints, Held, held_of, surplus_of
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import (
    Candidate,
    Likeness,
    NoVictims,
    Place,
    Preemptor,
    RunningGang,
    Standing,
    Terms,
    Victim,
    VictimSet,
)
from berth.core.preemption.places import smallest_kind
from berth.core.preemption.pool import Pool
from berth.core.queues.amounts import judged
from berth.core.queues.charges import Holding, Usage
from berth.core.queues.shares import Shares
from berth.core.state.cell import State
from berth.core.topologies.planning import Areas
from berth.core.topologies.registry import topology_of
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.queues.queue import Amounts

_Key = tuple[str, int]
"""(uid, attempt)."""


class Ground(NamedTuple):
    """What a search sees of a round. Nothing of it is changed.

    Attributes:
        state: The cell before the round.
        scorer: Its scoring, under the settings of the epoch.
        running: Gangs that hold something, leaving ones included, in any order. Gangs that the round itself ends are
            leaving too. All that a leaving gang holds is free for preemptors, unless it is kept for its next attempt.
            A gang of which only some ranks leave is not leaving, but one that is not preemptable; ranks that it gives
            up are free as well.
        at_ms: The moment of the round.
        silent: Rows of shards that did not answer, shape (rows,): neither places nor victims; None for no such row.
        taken: Gangs that the round has placed, and gangs for which places are reserved on chips that others still have
            (these first), each with its placement. Nobody else gets these places.
        shares: Limits and entitlements; None where queues do nothing: then all gangs are in one queue.
        usage: What queues hold, those of ``taken`` included; None without shares.
        queue_evictions: Evictions of gangs of each queue in the last hour, for a bound of a queue.
        has_more_room: There may be more room than the round saw.
        returned: Gangs (uid) that the round has placed and for which places are held: these are held no longer.
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
    has_more_room: bool = False
    returned: Sequence[str] = ()


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
        moved = {one.counted.uid for one in ground.running if not one.counted.is_leaving}  # they are counted already
        self._taken = [_counted(gang, ground.at_ms) for gang, _ in ground.taken if gang.uid not in moved]
        self._base = ProjectedState(ground.state, ground.scorer, ground.silent)
        self._has_more_room = ground.has_more_room
        """Or gangs are leaving: there may be more room than the round saw."""
        self._whole: dict[_Key, Held] = {}
        """What gangs hold that may be victims as far as nodes are concerned."""
        self._parts: dict[tuple[_Key, tuple[int, ...]], Held] = {}
        """What surplus ranks hold."""
        for key, gang in self._running.items():
            self._see(key, gang)
        for uid in ground.returned:
            held = ground.state.fold.held[uid]
            self._base.end({held.key: held_of(ground.state, held.places().values(), held.placement).footprint})
        for placed, placement in ground.taken:
            self._take(placed, placement)
        self._eligible = self._made_eligible()
        self._refused: dict[Likeness, NoVictims] = {}
        self._kins: dict[tuple[str, int, bool, bool], _Kin] = {}
        self._known_areas: dict[tuple[str, Demand | None], list[Areas]] = {}

    def _see(self, key: _Key, gang: RunningGang) -> None:
        held, silent = self._footprints.of(self._ground.state, key), self._ground.silent
        if held is None or gang.is_kept:
            return
        holding = self._ground.state.fold.holdings[key]
        giving_up = holding.giving_up() if holding.moves else []
        if gang.counted.is_leaving:
            self._base.end({key: held.footprint})
            self._has_more_room = True
        elif giving_up:
            self._base.free(self._footprints.part(self._ground.state, key, giving_up).footprint)
            self._has_more_room = True
        elif silent is None or not silent[held.footprint.rows].any():
            self._whole[key] = held

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
        known = self._refused.get(preemptor.likeness)
        if known is not None:
            return known
        found = self._found(preemptor)
        if isinstance(found, NoVictims):
            self._refused[preemptor.likeness] = found
        return found

    def _found(self, preemptor: Preemptor) -> VictimSet | NoVictims:
        gang = preemptor.gang
        legality = Legality(preemptor, self._ground.shares, self._usage, self._evictions_left())
        if not legality.is_open:
            return NoVictims("never")
        kin, areas = self._kin_of(preemptor), self._areas(gang)
        found: Found | None = None
        if chips_of(gang.request_class) <= self._free() + kin.chips:
            attempt = self._attempt(gang, self._pool(kin, gang), areas)
            if self._has_more_room and legality.has_room() and attempt.may_fit():
                placement = attempt.planned(())
                if placement is not None:
                    return VictimSet((), placement, Place("cell"), Prices(()).of(()), (), attempt.plans)
            found = attempt.cheapest(legality)
            if found is not None:
                victims = tuple(sorted(map(_victim, found.victims)))
                standings = self._standings(preemptor, found.victims)
                return VictimSet(victims, found.placement, found.place, found.cost, standings, attempt.plans)
        if preemptor.is_never:
            return NoVictims("never")
        if kin.over:
            both = self._made_pool([*kin.candidates, *kin.over], gang)
            if self._attempt(gang, both, areas).has_place():
                return NoVictims("evictions-exhausted", *_sums(kin.over), evictions=kin.evictions)
        return NoVictims("preempt", *_sums(kin.candidates), place=smallest_kind(areas, gang))

    def _kin_of(self, preemptor: Preemptor) -> "_Kin":
        """Who may go for preemptors like one."""
        gang = preemptor.gang
        key = (gang.queue, gang.priority, preemptor.is_never, preemptor.is_critical)
        kin = self._kins.get(key)
        if kin is None:
            found, exhausted = self._eligible.candidates(preemptor)
            found, over = self._reached(found), self._reached(exhausted.candidates)
            kin = self._kins[key] = _Kin(found, over, exhausted.evictions, self._held)
        return kin

    def _reached(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that hold something, and nothing on silent rows."""
        return [one for one in candidates if one.gang.key in self._whole]

    def _pool(self, kin: "_Kin", gang: Gang) -> Pool:
        has_share = gang.share is not None
        pool = kin.pools.get(has_share)
        if pool is None:
            pool = kin.pools[has_share] = self._made_pool(kin.candidates, gang)
        return pool

    def _made_pool(self, candidates: Sequence[Candidate], gang: Gang) -> Pool:
        has_share = gang.share is not None or any(self._held(one).footprint.share is not None for one in candidates)
        return Pool(candidates, self._held, self._base, self._ground.silent, is_exact=has_share)

    def _attempt(self, gang: Gang, pool: Pool, areas: Sequence[Areas]) -> Attempt:
        return Attempt(
            self._base,
            pool,
            gang,
            areas=areas,
            shortened=self._eligible.shortened,
            silent=self._ground.silent,
            is_idle=self._ground.state.constraints.view.is_idle,
            terms=self._terms,
        )

    def _areas(self, gang: Gang) -> list[Areas]:
        """Groups of nodes in which a gang could be planned."""
        topology = topology_of(gang.demand)
        key = (topology.name, gang.demand)
        found = self._known_areas.get(key)
        if found is None:
            state, scorer = self._ground.state, self._ground.scorer
            index = state.indexes.get(topology.index_name)
            found = topology.areas(scorer.table, index, gang.demand, scorer.settings)
            self._known_areas[key] = found
        return found

    def _free(self) -> int:
        """Chips that nobody holds."""
        table = self._base.scorer.table
        return int(np.bitwise_count(table.free[table.view()]).sum())

    def _evictions_left(self) -> dict[str, int]:
        most = self._terms.queue_evictions_per_hour
        if not most:
            return {}
        queues = dict.fromkeys(gang.counted.queue for gang in self._running.values())
        return {queue: most - self._queue_evictions.get(queue, 0) for queue in queues}

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
        gang, keys = preemptor.gang, [(victim.uid, victim.attempt) for victim in found.victims]
        rows = {row: None for key in keys for row in self._whole[key].footprint.rows.tolist()}
        rows |= dict.fromkeys(map(self._ground.state.table.row_of.__getitem__, found.placement.names()))
        is_alike = self._stays_alike(preemptor, found)
        for victim in found.victims:
            self._leave(victim)
        self._take(gang, found.placement)
        self._taken.append(_counted(gang, self._ground.at_ms))
        if self._usage is not None:
            self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)
        self._refused.clear()
        if not is_alike:
            self._kins.clear()
            self._eligible = self._made_eligible()
        for kin in self._kins.values():
            kin.follow(keys, rows)
        for key in keys:
            del self._whole[key]

    def _stays_alike(self, preemptor: Preemptor, found: VictimSet) -> bool:
        """Whether the others may go as before, once victims have left: who is within and who borrows stays the same."""
        if self._terms.queue_evictions_per_hour or any(victim.ranks for victim in found.victims):
            return False
        if self._ground.shares is None:
            return True
        gang, within = preemptor.gang, self._eligible.within
        if any(victim.uid in within for victim in found.victims):
            return False
        # In the order of a queue its place is behind those of its priority.
        lowest = self._eligible.lowest.get(gang.queue)
        return lowest is None or gang.priority <= lowest

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
            # All else that it has waits for the next round.
            self._running[key] = msgspec.structs.replace(gang, counted=counted, chips=gang.chips - chips, surplus=())
        else:
            self._base.end({key: self._whole[key].footprint})
            counted = msgspec.structs.replace(gang.counted, is_leaving=True)
            self._running[key] = msgspec.structs.replace(gang, counted=counted)
        if self._usage is not None:
            self._usage.charge(queue, charge, namespace=namespace, times=-1)
            self._usage.charge(queue, charge, namespace=namespace, is_leaving=True)
        self._queue_evictions[queue] = self._queue_evictions.get(queue, 0) + 1


class _Kin:
    """Who may go for preemptors that are alike in this.

    Args:
        candidates: They.
        over: Who may not go only because of evictions in the last hour.
        evictions: Most evictions of one of these.
        held: What each holds.

    Attributes:
        chips: Chips of the candidates.
        pools: The candidates on the nodes, for gangs whose pods share chips and for others.
    """

    def __init__(
        self,
        candidates: Iterable[Candidate],
        over: Sequence[Candidate],
        evictions: int,
        held: Callable[[Candidate], Held],
    ) -> None:
        self.over, self.evictions = over, evictions
        self.chips = 0
        self.pools: dict[bool, Pool] = {}
        self._by_gang: dict[_Key, list[Candidate]] = {}
        self._held = held
        for one in candidates:
            self._by_gang.setdefault(one.gang.key, []).append(one)
            self.chips += held(one).chips

    @property
    def candidates(self) -> list[Candidate]:
        """Who has not left."""
        return [one for some in self._by_gang.values() for one in some]

    def follow(self, left: Sequence[_Key], rows: Iterable[int]) -> None:
        """Let gangs leave, and count some rows anew."""
        for key in left:
            self.chips -= sum(self._held(one).chips for one in self._by_gang.pop(key, ()))
        self.pools = {has_share: pool for has_share, pool in self.pools.items() if not pool.is_exact}
        for pool in self.pools.values():
            pool.follow(left, rows)


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
