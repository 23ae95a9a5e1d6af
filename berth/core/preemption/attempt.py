"""One preemptor on the nodes of a round: the cheapest set by counting over the places, and its plan."""

import copy
import functools
import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.view import RowState, row_state
from berth.core.gangs import Gang, chips_of
from berth.core.placement.projected_state import ProjectedState
from berth.core.placement.scoring import Scorer
from berth.core.preemption.candidates import Candidate
from berth.core.preemption.choice import Picked, choose
from berth.core.preemption.cost import Prices
from berth.core.preemption.footprints import Held
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import Cost, Terms
from berth.core.preemption.places import Pairs, Places, Spot, prices_of
from berth.core.preemption.rooms import CountedRoom, Nodes
from berth.core.preemption.slots import Slots, WholeGroups, tasks_of
from berth.core.state.cell import State
from berth.core.topologies.registry import topology_of
from berth.schemas.placement import Placement


class Found(NamedTuple):
    """A set of victims, and the placement that they make possible.

    Attributes:
        spot: The place.
        victims: The set.
        cost: Its cost.
        placement: The placement.
    """

    spot: Spot
    victims: Sequence[Candidate]
    cost: Cost
    placement: Placement


class _Chosen(NamedTuple):
    """A set that is counted and not planned yet. The first fields are its order."""

    cost: Cost
    size: int
    order: int
    spot: Spot
    victims: list[Candidate]
    is_grown: bool


class Attempt:
    """A preemptor, and who may go for it.

    Args:
        base: The nodes before anybody leaves for it.
        gang: The preemptor.
        candidates: Who may go, in any order.
        held: What candidates hold.
        shortened: The first ranks of a surplus.
        silent: Rows that count for nothing, shape (rows,); None for no such row.
        terms: Settings of the epoch.

    Attributes:
        plans: Plans that were made.
    """

    def __init__(
        self,
        state: State,
        base: ProjectedState,
        gang: Gang,
        candidates: Sequence[Candidate],
        *,
        held: Callable[[Candidate], Held],
        shortened: Callable[[Candidate, int], Candidate],
        silent: Fits | None,
        terms: Terms,
    ) -> None:
        self._base, self._gang, self._candidates = base, gang, candidates
        self._held, self._shortened = held, shortened
        self._silent, self._terms = silent, terms
        self._prices = Prices(candidates)
        self.plans = 0
        self._order: dict[int, int] = {}
        """Place of each candidate by how dear it is; made when it is needed."""
        table, settings = base.scorer.table, base.scorer.settings
        topology = topology_of(gang.demand)
        areas = topology.areas(table, state.indexes.get(topology.index_name), gang.demand, settings)
        self._groups = WholeGroups(areas)
        self._places = Places(table, areas, tasks_of(gang), self._groups)

    @property
    def smallest(self) -> str:
        """The smallest kind of place that the preemptor needs."""
        return self._places.smallest

    @functools.cached_property
    def _slots(self) -> Slots:
        return Slots(self._gang, self._gone(), self._silent)

    @functools.cached_property
    def _pairs(self) -> Pairs:
        """Where candidates hold something."""
        parts = [self._held(one).footprint for one in self._candidates]
        if not parts:
            none = np.empty(0, np.int64)
            return Pairs(none, none, none, none)
        rows = np.concatenate([part.rows for part in parts])
        numbers = np.repeat(np.arange(len(parts)), [len(part.rows) for part in parts])
        masks = np.concatenate([part.masks for part in parts])
        ranks = self._prices.ranks
        prices = prices_of([one.lost for one in self._candidates], [ranks[one.level] for one in self._candidates])
        return Pairs(rows, numbers, np.maximum(np.bitwise_count(masks).astype(np.int64), 1), prices[numbers])

    def _gone(self) -> Scorer:
        """Scoring on the nodes as they are if all candidates have left."""
        scorer = self._base.scorer
        if not self._candidates:
            return scorer
        parts = [self._held(one).footprint for one in self._candidates]
        if self._gang.share is not None or any(part.share is not None for part in parts):
            projection = self._base.copy()
            largest = {one.gang.key: part for one, part in zip(self._candidates, parts, strict=True)}
            for part in largest.values():  # all of a gang comes behind its surplus
                projection.free(part)
            return projection.scorer
        table = copy.copy(scorer.table)
        rows = self._pairs.rows
        view = table.view()
        free = table.free[view].copy()
        order = np.argsort(rows, kind="stable")
        touched, firsts = np.unique(rows[order], return_index=True)
        masks = np.concatenate([part.masks for part in parts])[order]
        free[touched] |= np.bitwise_or.reduceat(masks, firsts) if len(masks) else masks
        free &= table.chips[view] & ~table.unhealthy[view] & ~table.withheld[view]
        free = np.where(table.present[view], free, np.uint64(0))
        more = np.bitwise_count(free).astype(np.int16) - np.bitwise_count(table.free[view]).astype(np.int16)
        _put(table, "free", free)
        _put(table, "idle", table.idle[view] + more)
        for name, column in (("cpu_free", "cpu"), ("memory_free", "memory")):
            given = np.bincount(rows, np.concatenate([getattr(part, column) for part in parts]), len(free))
            _put(table, name, getattr(table, name)[view] + given.astype(np.int64))
        return scorer.on(table, scorer.shares)

    def planned(self, victims: Sequence[Candidate], inside: Fits | None = None) -> Placement | None:
        """Placement of the preemptor once victims are gone; None if it does not fit.

        Args:
            victims: The victims.
            inside: Rows of the place, shape (rows,); None for all.
        """
        self.plans += 1
        projection = self._base.copy()
        whole = {one.gang.key: self._held(one).footprint for one in victims if not one.ranks}
        if whole:
            projection.end(whole)
        for one in victims:
            if one.ranks:
                projection.free(self._held(one).footprint)
        without = self._silent
        if inside is not None:
            without = ~inside if without is None else ~inside | without
        return projection.plan(self._gang, without=without)

    def has_place(self) -> bool:
        """Whether any place is large enough if all candidates leave."""
        return self._has_chips() and bool(self._spots(self._slots.most, 1))

    def _has_chips(self) -> bool:
        """Whether there are enough chips at all: a fast check that is true whenever there is a place."""
        table = self._base.scorer.table
        free = int(np.bitwise_count(table.free[table.view()]).sum())
        return chips_of(self._gang.request_class) <= free + sum(self._held(one).chips for one in self._candidates)

    def cheapest(self, legality: Legality) -> Found | None:
        """The cheapest set that is allowed, and its placement; None if none is found.

        Args:
            legality: The set as queues see it, empty.
        """
        if not self._has_chips():
            return None
        scorer = self._base.scorer
        now = self._slots.at(scorer)
        spots = self._spots(now, self._terms.places_max)
        if not spots:
            return None
        nodes = self._nodes(scorer, now)
        order = sorted(range(len(self._candidates)), key=lambda number: self._candidates[number].dearness)
        self._order = {number: place for place, number in enumerate(order)}
        anywhere = [number for number, one in enumerate(self._candidates) if legality.frees_limit(one)]
        chosen: list[_Chosen] = []
        for spot in spots:
            some = self._candidates_of(spot, anywhere)
            if chosen and self._prices.least(some) > min(chosen).cost[:2]:
                continue
            found = self._chosen(spot, some, nodes, legality)
            if found is not None:
                heapq.heappush(chosen, found)
        return self._first_planned(chosen, anywhere, nodes, legality)

    def _spots(self, now: Sequence[np.ndarray], count: int) -> list[Spot]:
        return self._places.spots(now, self._slots.most, self._pairs, count)

    def _nodes(self, scorer: Scorer, now: Sequence[np.ndarray]) -> Nodes:
        table, shared = scorer.table, scorer.shares.nodes

        def state(row: int) -> RowState:
            return row_state(table, shared, row)

        return Nodes(
            table,
            state,
            lambda one: self._held(one).rows,
            self._slots,
            now,
            self._groups,
            self._candidates,
            self._pairs,
        )

    def _candidates_of(self, spot: Spot, anywhere: Sequence[int]) -> list[Candidate]:
        """Candidates that help on a place, the cheapest first."""
        numbers = sorted({*spot.candidates, *anywhere}, key=self._order.__getitem__)
        return [self._candidates[number] for number in numbers]

    def _chosen(self, spot: Spot, some: Sequence[Candidate], nodes: Nodes, legality: Legality) -> _Chosen | None:
        """The cheapest set on a place, by counting."""
        picked = Picked(CountedRoom(nodes, spot.inside), legality)
        victims = [] if picked.is_enough() else choose(some, picked, self._prices)
        if victims is None:
            return None
        victims = self._trimmed(victims, picked)
        return _Chosen(self._prices.of(victims), spot.size, spot.order, spot, victims, is_grown=False)

    def _trimmed(self, victims: list[Candidate], picked: Picked) -> list[Candidate]:
        """The same set with as few surplus ranks as are enough."""
        if not any(one.ranks for one in victims):
            return victims
        for one in victims:
            picked.add(one)
        for one in victims:
            least, most = 1, len(one.ranks)
            while least < most:
                middle = (least + most) // 2
                part = self._shortened(one, middle)
                picked.drop(one)
                picked.add(part)
                is_enough = picked.is_enough()
                picked.drop(part)
                picked.add(one)
                least, most = (least, middle) if is_enough else (middle + 1, most)
            if one.ranks and most < len(one.ranks):
                picked.drop(one)
                picked.add(self._shortened(one, most))
        found = list(picked.victims)
        picked.clear()
        return found

    def _first_planned(
        self, chosen: list[_Chosen], anywhere: Sequence[int], nodes: Nodes, legality: Legality
    ) -> Found | None:
        """The cheapest set of which a plan succeeds; to one that does not make room the next candidate is added."""
        while chosen and self.plans < self._terms.plans_max:
            one = heapq.heappop(chosen)
            spot = one.spot
            placement = self.planned(one.victims, spot.inside) if one.victims else None
            if placement is not None:
                return self._reduced(one, placement, nodes, legality)
            more = self._grown(one, self._candidates_of(spot, anywhere), legality)
            if more is not None:
                heapq.heappush(chosen, more)
        return None

    def _grown(self, one: _Chosen, some: Sequence[Candidate], legality: Legality) -> _Chosen | None:
        """A set with the next candidate that keeps it allowed; None if there is none."""
        has = {victim.gang.key: victim for victim in one.victims}
        for victim in one.victims:
            legality.add(victim)
        found: Candidate | None = None
        for more in some:
            before = has.get(more.gang.key)
            if before is not None and (not before.ranks or more.ranks):
                continue
            if before is not None:
                legality.remove(before)
            legality.add(more)
            is_allowed = legality.is_allowed()
            legality.remove(more)
            if before is not None:
                legality.add(before)
            if is_allowed:
                found = more
                break
        for victim in one.victims:
            legality.remove(victim)
        if found is None:
            return None
        victims = [victim for victim in one.victims if victim.gang is not found.gang] + [found]
        return one._replace(cost=self._prices.of(victims), victims=victims, is_grown=True)

    def _reduced(self, one: _Chosen, placement: Placement, nodes: Nodes, legality: Legality) -> Found:
        """A planned set without those that it does not need, as far as plans are left to see that."""
        if not one.is_grown:
            return Found(one.spot, one.victims, one.cost, placement)
        placements = [placement]
        picked = Picked(CountedRoom(nodes, one.spot.inside), legality)
        for victim in one.victims:
            picked.add(victim)

        def is_enough() -> bool:
            if self.plans >= self._terms.plans_max or not picked.victims or not picked.is_enough():
                return False
            found = self.planned(list(picked.victims), one.spot.inside)
            if found is not None:
                placements.append(found)
            return found is not None

        while picked.take_back(is_enough):
            pass
        victims = list(picked.victims)
        picked.clear()
        return Found(one.spot, victims, self._prices.of(victims), placements[-1])


def _put(table: NodeTable, name: str, values: np.ndarray) -> None:
    """Give a copy of a table a column of its own."""
    column = getattr(table, name).copy()
    column[table.view()] = values
    setattr(table, name, column)
