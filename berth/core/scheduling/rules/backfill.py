"""Backfill: later gangs start before large gangs that wait, if the large gangs start no later for it.

``easy`` keeps one reservation (EASY backfill): for the first large gang in the queue that finds no room. Ranks that a
running gang lacks count as large.
``conservative`` keeps several: for the first such gangs, each in addition to those before it; a large gang that waits
because of a reservation of another gang has one too. A later gang that has found room may start if it ends before each
reservation begins, or if the gang with the reservation can still be placed at that moment, on the same nodes or on
others.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import guarded
from berth.core.gangs import ClassKey, Gang, chips_of
from berth.core.placement.projected_state import ProjectedState, ResourceFootprint
from berth.core.placement.round_demand import is_heavy
from berth.core.placement.rules import RESERVED, Entry, RuleRound
from berth.core.scheduling.reservations import (
    AttemptKey,
    AvailabilityProfile,
    Footprints,
    Reservation,
    next_end_ms,
)
from berth.core.scheduling.rules.port import AfterRecord, RoundStart, Rule
from berth.core.scheduling.rules.queues import QueuesRound
from berth.core.scheduling.wake_rules import NEVER
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside
from berth.core.topologies.registry import topology_of
from berth.schemas.placement import Placement
from berth.schemas.pod_constraints import PodProfile
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal

_TRIES_MAX: Final = 64
"""Gangs at most for which a reservation is looked for in one round, those included that can have none."""

_Tried = tuple[AttemptKey, ClassKey, int, tuple[str, ...], tuple[PodProfile, ...]]
"""A gang as far as its reservation depends on it: attempt, class, run time (ms), nodes that it avoids, and profiles of
its pods."""


class Terms(NamedTuple):
    """Terms on which gangs get reservations."""

    chips: int
    """Fewest chips of a large gang."""
    depth: int
    """Most reservations at a time."""
    is_deep: bool
    """Gangs that wait for a reservation of others may have one too."""


class _Planned(NamedTuple):
    """Result of planning without an error."""

    reservation: Reservation | None
    """None if the gang can have none."""


class Memory:
    """What one round may reuse of the rounds before it. It saves time only: decisions do not depend on it."""

    def __init__(self) -> None:
        self.footprints: Footprints = {}
        self.made_for: object = None
        self.reservations: dict[tuple[_Tried, ...], Reservation | None] = {}

    def keep(self, state: State) -> None:
        """Forget the footprints of attempts that have ended, when there are many."""
        holdings = state.fold.holdings
        if len(self.footprints) > 2 * len(holdings) + 64:
            self.footprints = {key: footprint for key, footprint in self.footprints.items() if key in holdings}


class Backfill(Rule):
    """``easy`` and ``conservative``.

    Args:
        terms: Terms on which gangs get reservations.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._memory = Memory()

    def begin(self, start: RoundStart) -> RuleRound | None:
        """The rule in a round."""
        return BackfillRound(self.name, start, self._terms, self._memory)

    def due_ms(self, after: AfterRecord) -> int:
        """When a job is late by then, a shard is asked again, or a drain takes nodes: then reservations may move."""
        fold = after.state.fold
        late_ms = next_end_ms(after.state, fold.at_ms)
        heard_ms = fold.at_ms + fold.settings.shard_retry_ms if after.is_silent else 0
        return min(filter(None, (late_ms, heard_ms, self._next_drain_ms(after))), default=0)

    def _next_drain_ms(self, after: AfterRecord) -> int:
        """When a planned drain takes nodes from a gang that may have a reservation: it may have none then."""
        if after.terms.are_alike:
            return 0
        waiting = after.queue.waiting_for_room(held=True)
        large = (gang for gang in waiting if self.may_reserve(gang, behind=False))
        return min(filter(None, map(after.terms.next_ms, large)), default=0)

    def may_reserve(self, gang: Gang, *, behind: bool) -> bool:
        """Large gangs; those that wait for a reservation of others only under ``conservative``."""
        return (self._terms.is_deep or not behind) and is_large(gang, self._terms.chips)


class _Allowed(NamedTuple):
    """A gang that may start although there are reservations."""

    gang: Gang
    footprint: ResourceFootprint
    left: list[Reservation]
    """The reservations, as they are once it starts."""


class BackfillRound(RuleRound):
    """Reservations of one round.

    Args:
        name: Name of the rule.
        start: What the round begins with.
        terms: Terms on which gangs get reservations.
        memory: Cache that the rule keeps between rounds.
    """

    lane = "chips"

    def __init__(self, name: str, start: RoundStart, terms: Terms, memory: Memory) -> None:
        self._name = name
        self._terms, self._memory = terms, memory
        self._state, self._scorer, self._silent = start.state, start.scorer, start.silent
        self._at_ms = start.opening.at_ms
        # Where gangs of a class differ, as before a planned drain, some are held that would sleep otherwise.
        held = terms.is_deep or not start.terms.are_alike
        tried = start.opening.gangs
        self._waiting = start.queue.waiting_for_room(held=held, tried=tried, turns=start.turns())
        """Gangs that wait, and those that are tried, as they have their turns."""
        self._to_try = {gang.uid for gang in tried}
        self._passed: set[str] = set()
        """Gangs that are tried, before the next one that waits."""
        self._applied = start.terms.applied
        self._next = self._following()
        self._queues = next((one for one in start.before if isinstance(one, QueuesRound)), None)
        self._times: AvailabilityProfile | None = None
        self._reservations: list[Reservation] = []
        self._tried: tuple[_Tried, ...] = ()
        self._steps: list[tuple[Gang, Recovery]] = []
        self._placed: list[tuple[Gang, Placement]] = []
        self._has_placed = False
        self._on_error = start.on_error
        self._has_colocation = False
        """A gang was tried whose nodes depend on the jobs that run; remembered reservations do not account for that."""
        self._refused: dict[ClassKey, tuple[int, Refusal]] = {}
        """Classes that may not start, with the shortest run time that was refused, and the refusal."""
        self._allowed: _Allowed | None = None

    def admit(self, entry: Entry) -> Refusal | None:
        """A gang is refused if it runs at least as long as one of its class that was refused."""
        gang = entry.gang
        known = self._refused.get(gang.request_class)
        if known is None or self._now().run_ms(gang) < known[0]:
            return None
        self._reserve_deep(gang)
        return known[1]

    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:
        """Whether all reservations stand when a gang starts."""
        gang = entry.gang
        self._allowed = None
        self._pass(gang)
        if not self._reservations:
            return None
        times = self._now()
        run_ms = times.run_ms(gang)
        footprint = times.footprint(placement)
        left: list[Reservation] = []
        moved: list[Reservation] = []

        def enter(projection: ProjectedState) -> None:
            projection.start(gang, placement, footprint)

        for one in self._reservations:
            is_there = self._at_ms + run_ms > one.start_ms
            if not (is_there and meets(one, footprint)) and not any(meets(one, other.footprint) for other in moved):
                left.append(one)
                continue
            planned = self._guarded(
                one.gang,
                functools.partial(
                    times.planned,
                    one.gang,
                    one.start_ms,
                    one.end_ms - one.start_ms,
                    left,
                    besides=enter if is_there else None,
                ),
            )
            if planned is None:
                continue  # a reservation that cannot be planned blocks no gang
            again = planned.reservation
            if again is None:
                refusal = self.reserved(one)
                self._refused[gang.request_class] = (run_ms, refusal)
                self._reserve_deep(gang)
                return refusal
            moved.append(again)
            left.append(again)
        self._allowed = _Allowed(gang, footprint, left)
        return None

    def refused(self, entry: Entry, refusal: Refusal) -> Refusal:
        """A large gang that finds no room gets a reservation."""
        gang = entry.gang
        if refusal.code in NEVER:
            return refusal
        self._refused.pop(gang.request_class, None)
        found = self._reserve_next(gang)
        return refusal if found is None else msgspec.structs.replace(refusal, start_ms=found.start_ms)

    def starts(self) -> dict[str, int]:
        """When the reservations of the gangs that are not tried in this round start (ms), by uid."""
        self._pass(None)
        return {one.gang.uid: one.start_ms for one in self._reservations}

    def binding(self, gang: Gang) -> list[Reservation]:
        """Reservations that begin before a gang is expected to end that starts now, the next first."""
        self._pass(None)
        if not self._reservations:
            return []
        end_ms = self._at_ms + self._now().run_ms(gang)
        return sorted(
            (one for one in self._reservations if one.start_ms < end_ms), key=lambda one: (one.start_ms, one.gang.order)
        )

    def counted(self, reservations: Sequence[Reservation]) -> dict[int, tuple[int, int]]:
        """Cpu and memory that reservations count on; see :meth:`AvailabilityProfile.counted`."""
        return self._now().counted(reservations)

    def reserved(self, one: Reservation) -> Refusal:
        """Refusal of a gang that would delay a reservation."""
        return Refusal(code=RESERVED, rule=self._name, ahead=one.gang.namespaced_name, start_ms=one.start_ms)

    def started(self, gang: Gang, placement: Placement) -> None:
        """Reservations move as they have to for a gang that starts."""
        allowed, self._allowed = self._allowed, None
        if allowed is not None and allowed.gang is gang:
            self._reservations = allowed.left
            self._now().place(gang, placement, allowed.footprint)
        else:
            self._placed.append((gang, placement))
        self._has_placed = True

    def stepped(self, gang: Gang, recovery: Recovery) -> None:
        """Ranks of a placed gang leave, or get places: reservations count them as after the record."""
        self._steps.append((gang, recovery))
        self._has_placed = True

    def is_news(self, entry: Entry, refusal: Refusal, last: Refusal) -> bool:  # noqa: ARG002  # the port has it
        """Another gang is ahead, or its start has moved."""
        return is_start_news(refusal, last, self._at_ms)

    def _pass(self, gang: Gang | None) -> None:
        """Give reservations to the gangs before this one that are not tried in this round; None for all of them."""
        while self._next is not None and (gang is None or not self._is_before(gang, self._next)):
            self._reserve(self._next)
            self._next = self._following() if self._is_open else None

    def _following(self) -> Gang | None:
        """The next gang that waits and is not tried in this round."""
        for gang in self._waiting:
            if gang.uid not in self._to_try:
                return self._applied(gang)
            self._passed.add(gang.uid)
        return None

    def _is_before(self, gang: Gang, waiting: Gang) -> bool:
        """Whether a gang has its turn before one that waits; one that returns to its places is in order of age."""
        return gang.uid in self._passed or (gang.uid not in self._to_try and gang.order < waiting.order)

    @property
    def _is_open(self) -> bool:
        """Whether one more reservation may be made."""
        return len(self._reservations) < self._terms.depth and len(self._tried) < _TRIES_MAX

    def _may_reserve(self, gang: Gang) -> bool:
        """Whether a gang may get a reservation.

        A heavy one may not, for to plan it takes longer than to decide it, none that its queue does not let in, and
        none that gets a place which others leave.
        """
        may = is_large(gang, self._terms.chips) and not is_heavy(gang.request_class, len(self._state.table))
        held = self._state.fold.held.get(gang.uid)
        is_promised = held is not None and held.is_reserved
        return may and not is_promised and (self._queues is None or self._queues.lets_in(gang))

    def _reserve_deep(self, gang: Gang) -> None:
        if self._terms.is_deep:
            self._reserve_next(gang)

    def _reserve_next(self, gang: Gang) -> Reservation | None:
        """The reservation of a gang of this round, after those of the gangs before it."""
        if not self._may_reserve(gang):
            return None
        self._pass(gang)
        return self._reserve(gang)

    def _reserve(self, gang: Gang) -> Reservation | None:
        """The reservation of a gang, if it is large and gets one."""
        if not self._is_open or not self._may_reserve(gang):
            return None
        times = self._now()
        tried = ((gang.uid, gang.attempt), gang.request_class, times.run_ms(gang), gang.avoided, gang.profiles)
        self._tried = (*self._tried, tried)
        known = self._memory.reservations
        self._has_colocation = self._has_colocation or topology_of(gang.demand).is_beside(gang.demand)
        # What begins now begins later in the next round, and so may all reservations behind it.
        moves = any(one.start_ms <= self._at_ms for one in self._reservations)
        may_know = not (self._has_placed or self._has_colocation or moves)
        if may_know and self._tried in known:
            found = known[self._tried]
            found = None if found is None else found._replace(gang=gang)  # its labels may have changed
        else:
            planned = self._guarded(gang, lambda: times.reserve(gang, self._reservations))
            found = None if planned is None else planned.reservation
            if may_know and (found is None or found.start_ms > self._at_ms):
                known[self._tried] = found
        if found is not None:
            self._reservations.append(found)
        return found

    def _guarded(self, gang: Gang, plan: Callable[[], Reservation | None]) -> _Planned | None:
        """Plan the reservation of a gang; None if that fails, which must not block the gangs after it."""

        def left_out(error: Exception) -> None:
            self._on_error(SetAside(gang.namespaced_name, error))

        return guarded(lambda: _Planned(plan()), left_out)

    def _now(self) -> AvailabilityProfile:
        """The availability profile, with what the round has placed so far."""
        state, memory = self._state, self._memory
        if self._times is None:
            self._times = AvailabilityProfile(
                state, self._scorer, self._at_ms, self._silent, memory.footprints, self._steps
            )
            memory.keep(state)
            silent = None if self._silent is None else self._silent.tobytes()
            ends = self._times.ends
            is_late = bool(ends) and ends[0][0] == self._at_ms  # then there is one moment less to look at
            revisions = (state.table.revision, state.nodes_seq, state.constraints.revision)
            made_for = (*revisions, state.follows_pods, is_late, ends, silent)
            if made_for != memory.made_for or state.follows_pods:
                memory.made_for = made_for
                memory.reservations = {}
        for gang, placement in self._placed:
            self._times.place(gang, placement, self._times.footprint(placement))
        self._placed.clear()
        return self._times


def is_large(gang: Gang, chips: int) -> bool:
    """Whether a gang may get a reservation: it has many chips, or is for ranks that a running gang lacks."""
    return chips_of(gang.request_class) >= chips or (gang.is_fragile and not gang.is_plain)


def is_start_news(refusal: Refusal, last: Refusal, at_ms: int) -> bool:
    """Whether another gang is ahead, or its start has moved. A start that is due now as a job is late has not."""
    return last.ahead != refusal.ahead or (refusal.code == RESERVED and last.start_ms != refusal.start_ms > at_ms)


def meets(one: Reservation, footprint: ResourceFootprint) -> bool:
    """Whether a footprint may conflict with a reservation: on its nodes; anywhere if jobs decide what groups take."""
    return topology_of(one.gang.demand).heeds_jobs or footprint.meets(one.footprint)
