"""One preemptor on the nodes of a round: the cheapest set by counting over the places, and its plan."""

import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.projected_state import ProjectedState
from berth.core.preemption.choice import Picked, choose
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import Candidate, Cost, Place, Terms
from berth.core.preemption.places import Places, Spot
from berth.core.preemption.pool import Pool
from berth.core.preemption.rooms import CountedRoom, Gains
from berth.core.preemption.slots import WholeGroups, tasks_of
from berth.core.topologies.planning import Areas
from berth.schemas.placement import Placement, placement_of

_NOBODY: Final = 1 << 62
"""Beyond the rank of every candidate."""


class Found(NamedTuple):
    """A set of victims, and the placement that they make possible.

    Attributes:
        place: The place.
        victims: The set.
        cost: Its cost.
        placement: The placement.
    """

    place: Place
    victims: Sequence[Candidate]
    cost: Cost
    placement: Placement


class _Chosen(NamedTuple):
    """A set that is counted and not planned yet. The first fields are its order."""

    cost: Cost
    size: int
    order: int
    spot: Spot
    some: Sequence[Candidate]
    victims: list[Candidate]
    is_grown: bool


class Attempt:
    """A preemptor, and who may go for it.

    Args:
        base: The nodes before anybody leaves for it.
        pool: Who may go.
        gang: The preemptor.
        areas: Groups of nodes, those of smaller groups first.
        shortened: The first ranks of a surplus.
        silent: Rows that count for nothing, shape (rows,); None for no such row.
        is_idle: No pod has a say in where others are.
        terms: Settings of the epoch.

    Attributes:
        plans: Plans that were made.
    """

    def __init__(
        self,
        base: ProjectedState,
        pool: Pool,
        gang: Gang,
        *,
        areas: Sequence[Areas],
        shortened: Callable[[Candidate, int], Candidate],
        silent: Fits | None,
        is_idle: bool,
        terms: Terms,
    ) -> None:
        self._base, self._pool, self._gang = base, pool, gang
        self._shortened, self._silent, self._terms = shortened, silent, terms
        self._groups = WholeGroups(areas)
        self._places = Places(base.scorer.table, areas, tasks_of(gang), self._groups)
        self.plans = 0
        self._is_lone = is_idle and _is_lone(gang)
        self._failed: set[tuple[int, frozenset[tuple[str, int]]]] = set()
        """Places (order) and sets of which a plan failed."""

    def planned(self, victims: Sequence[Candidate], inside: Fits | None = None) -> Placement | None:
        """Placement of the preemptor once victims are gone; None if it does not fit.

        Args:
            victims: The victims.
            inside: Rows of the place, shape (rows,); None for all.
        """
        self.plans += 1
        if inside is not None and self._is_lone:
            return self._on_node(int(inside.argmax()), victims)
        held = self._pool.held
        projection = self._base.copy()
        whole = {one.gang.key: held(one).footprint for one in victims if not one.ranks}
        if whole:
            projection.end(whole)
        for one in victims:
            if one.ranks:
                projection.free(held(one).footprint)
        without = self._silent
        if inside is not None:
            without = ~inside if without is None else ~inside | without
        return projection.plan(self._gang, without=without)

    def _on_node(self, row: int, victims: Sequence[Candidate]) -> Placement | None:
        """Placement of one pod on a node, by the checks that each placement passes."""
        scorer, ((shape, _),) = self._base.scorer, self._gang.request_class
        state = self._pool.state(row)
        for one in victims:
            for pod in self._pool.held(one).rows:
                if pod.row == row:
                    mask = pod.mask & self._pool.usable.item(row)
                    state = state.without_pod(mask, pod.cpu_milli, pod.memory_mib, pod.share)
        if scorer.evaluate_one(shape, row, state)[0]:
            return None
        rule, table = scorer.rule(shape), scorer.table
        chips = rule.pick(state.free, table.network.item(row)) if rule is not None else ()
        return placement_of([table.names[row]], [chips], self._gang.runs, resource=self._gang.resource, share=None)

    def may_fit(self) -> bool:
        """Whether the preemptor may fit although nobody leaves: a fast check that is true whenever it does."""
        counts = self._pool.counts(self._gang)
        tasks = counts.slots.tasks
        return all(int(room.sum()) >= task.pods for task, room in zip(tasks, counts.now, strict=True))

    def has_place(self) -> bool:
        """Whether any place is large enough if all candidates leave."""
        return bool(self._spots(1))

    def _spots(self, count: int) -> list[Spot]:
        counts = self._pool.counts(self._gang)
        return self._places.spots(counts.now, counts.most, self._pool.pairs, count)

    def cheapest(self, legality: Legality) -> Found | None:
        """The cheapest set that is allowed, and its placement; None if none is found.

        Args:
            legality: The set as queues see it, empty.
        """
        spots = self._spots(self._terms.places_max)
        if not spots:
            return None
        pool = self._pool
        gains = Gains(pool, pool.counts(self._gang), self._groups)
        helpers = legality.helpers(pool.candidates)
        least = min((pool.ranks[number] for number in helpers), default=_NOBODY)
        chosen: list[_Chosen] = []
        for spot in spots:
            if chosen and self._is_worse(spot, min(spot.least, least), chosen[0]):
                continue
            found = self._chosen(spot, gains, helpers, legality)
            if found is not None:
                heapq.heappush(chosen, found)
        return self._first_planned(chosen, gains, legality)

    def _is_worse(self, spot: Spot, least: int, best: _Chosen) -> bool:
        """Whether no set on a place can come before another one, by the rank of its cheapest candidate."""
        return least >= _NOBODY or (self._pool.alone_cost(least), spot.size, spot.order) > best[:3]

    def _chosen(self, spot: Spot, gains: Gains, helpers: Sequence[int], legality: Legality) -> _Chosen | None:
        """The cheapest set on a place, by counting."""
        inside = self._places.inside(spot)
        some = self._pool.on(inside, helpers)
        picked = Picked(CountedRoom(gains, inside), legality, self._shortened)
        victims = [] if picked.is_enough() else choose(some, picked, self._pool.prices)
        if victims is None:
            return None
        return _Chosen(self._pool.prices.of(victims), spot.size, spot.order, spot, some, victims, is_grown=False)

    def _first_planned(self, chosen: list[_Chosen], gains: Gains, legality: Legality) -> Found | None:
        """The cheapest set of which a plan succeeds; to one that does not make room the next candidate is added."""
        while chosen and self.plans < self._terms.plans_max:
            one = heapq.heappop(chosen)
            inside = self._places.inside(one.spot)
            placement = self.planned(one.victims, inside) if one.victims else None  # without any the round has tried
            if placement is None:
                self._failed.add((one.order, _names(one.victims)))
            if placement is not None:
                victims = one.victims
                if one.is_grown:
                    victims, placement = self._reduced(one, placement, gains, legality)
                place = self._places.place(one.spot)
                return Found(place, victims, self._pool.prices.of(victims), placement)
            more = self._grown(one, legality)
            if more is not None:
                heapq.heappush(chosen, more)
        return None

    def _grown(self, one: _Chosen, legality: Legality) -> _Chosen | None:
        """A set with the next candidate that keeps it allowed; None if there is none."""
        has = {victim.gang.key: victim for victim in one.victims}
        for more in one.some:
            before = has.get(more.gang.key)
            if before is not None and (more.ranks or not before.ranks):
                continue
            victims = [victim for victim in one.victims if victim is not before] + [more]
            if _is_allowed(legality, victims):
                return one._replace(cost=self._pool.prices.of(victims), victims=victims, is_grown=True)
        return None

    def _reduced(
        self, one: _Chosen, placement: Placement, gains: Gains, legality: Legality
    ) -> tuple[list[Candidate], Placement]:
        """A planned set without those that it does not need, as far as plans are left to see that."""
        inside = self._places.inside(one.spot)
        placements = [placement]
        picked = Picked(CountedRoom(gains, inside), legality)
        for victim in one.victims:
            picked.add(victim)

        def is_enough() -> bool:
            if self.plans >= self._terms.plans_max or not picked.victims or not picked.is_enough():
                return False
            if (one.order, _names(picked.victims)) in self._failed:
                return False
            found = self.planned(list(picked.victims), inside)
            if found is not None:
                placements.append(found)
            return found is not None

        while picked.take_back(is_enough):
            pass
        victims = list(picked.victims)
        picked.clear()
        return victims, placements[-1]


def _is_lone(gang: Gang) -> bool:
    """Whether a gang is one pod that needs no more than a node which takes it."""
    if gang.pods != 1 or any(profile.constraints.claims for profile in gang.profiles):
        return False
    ((shape, _),) = gang.request_class
    return not (shape.is_planned or shape.share is not None or shape.is_constrained)


def _names(victims: Iterable[Candidate]) -> frozenset[tuple[str, int]]:
    """Gangs of a set, and how many ranks each gives up; 0 for all."""
    return frozenset((one.gang.counted.uid, len(one.ranks)) for one in victims)


def _is_allowed(legality: Legality, victims: Sequence[Candidate]) -> bool:
    for one in victims:
        legality.add(one)
    found = legality.is_allowed()
    for one in victims:
        legality.remove(one)
    return found
