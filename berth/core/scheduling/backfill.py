"""Backfill: later gangs start before large gangs that wait, if the large gangs start no later for it.

``easy`` keeps one reservation (EASY backfill): for the first large gang in the queue that finds no room. Ranks that a
running gang lacks count as large.
``conservative`` keeps several: for the first such gangs, each in addition to those before it; a large gang that waits
because of a reservation of another gang has one too. A later gang that has found room may start if it ends before each
reservation begins, or if the gang with the reservation can still be placed at that moment, on the same nodes or on
others.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from berth.core.cluster.bitmaps import Fits
from berth.core.errors import guarded
from berth.core.placement.projected_state import ProjectedState, ResourceFootprint
from berth.core.placement.queue_policy import NOTHING_KEPT, KeptRoom
from berth.core.placement.round_demand import is_heavy
from berth.core.placement.scoring import Scorer
from berth.core.requests.gangs import ClassKey, Gang, chips_of
from berth.core.scheduling.queue_policies import NEVER
from berth.core.scheduling.reservations import AttemptKey, AvailabilityProfile, Footprints, Reservation
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside
from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.switches.demand import is_by_leaf
from berth.schemas.ledger import Settings
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

    settings: Settings
    depth: int
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


class Backfill:
    """Reservations of one round.

    Args:
        state: The cell before the round.
        scorer: Its scoring.
        at_ms: The moment of the round.
        waiting: Gangs that wait and are not tried in this round, in order.
        silent: Rows of nodes whose shard did not answer.
        memory: Cache that the dispatcher keeps between rounds.
        on_error: Called with each gang that gets no reservation because of an error.
    """

    is_strict = False

    def __init__(
        self,
        state: State,
        scorer: Scorer,
        at_ms: int,
        waiting: Iterator[Gang],
        silent: Fits | None,
        memory: Memory,
        on_error: Callable[[SetAside], None],
    ) -> None:
        settings = state.fold.settings
        is_deep = settings.queue_policy == "conservative"
        self._terms = Terms(settings, settings.reserve_depth if is_deep else 1, is_deep)
        self._state, self._scorer, self._silent, self._memory = state, scorer, silent, memory
        self._at_ms = at_ms
        self._waiting = waiting
        self._next = next(waiting, None)
        self._times: AvailabilityProfile | None = None
        self._reservations: list[Reservation] = []
        self._tried: tuple[_Tried, ...] = ()
        self._steps: list[tuple[Gang, Recovery]] = []
        self._placed: list[tuple[Gang, Placement]] = []
        self._has_placed = False
        self._on_error = on_error
        self._has_colocation = False
        """A gang was tried whose nodes depend on the jobs that run; remembered reservations do not account for that."""
        self._refused: dict[ClassKey, tuple[int, Refusal]] = {}
        """Classes that may not start, with the shortest run time that was refused, and the refusal."""
        self._kept: dict[int, KeptRoom] = {}
        """What gangs without chips must leave free, by how many of the reservations count, the next ones first."""

    def should_skip(self, gang: Gang) -> Refusal | None:
        """A gang is refused if it runs at least as long as one of its class that was refused."""
        known = self._refused.get(gang.request_class)
        if known is None or self._now().run_ms(gang) < known[0]:
            return None
        self._reserve_deep(gang)
        return known[1]

    def may_start(self, gang: Gang, placement: Placement) -> Refusal | None:
        """Whether all reservations stand when a gang starts."""
        self._pass(gang)
        if not self._reservations:
            self._placed.append((gang, placement))
            self._has_placed = True
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
            if not (is_there and _meets(one, footprint)) and not any(_meets(one, other.footprint) for other in moved):
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
                refusal = Refusal(code="reserved", ahead=one.gang.namespaced_name, start_ms=one.start_ms)
                self._refused[gang.request_class] = (run_ms, refusal)
                self._reserve_deep(gang)
                return refusal
            moved.append(again)
            left.append(again)
        self._reservations = left
        times.place(gang, placement, footprint)
        self._has_placed = True
        return None

    def refused(self, gang: Gang, refusal: Refusal) -> Refusal:
        """A large gang that finds no room gets a reservation."""
        if refusal.code in NEVER:
            return refusal
        self._refused.pop(gang.request_class, None)
        found = self._reserve_next(gang)
        return refusal if found is None else msgspec.structs.replace(refusal, start_ms=found.start_ms)

    def starts(self) -> dict[str, int]:
        """When the reservations of the gangs that are not tried in this round start (ms), by uid."""
        self._pass(None)
        return {one.gang.uid: one.start_ms for one in self._reservations}

    def kept_from(self, gang: Gang) -> KeptRoom:
        """A gang without chips leaves free what each reservation counts that begins before the gang is expected to end.

        All gangs that wait and get a reservation have theirs by then, for such a gang goes before none of them.
        """
        self._pass(None)
        if not self._reservations:
            return NOTHING_KEPT
        times = self._now()
        end_ms = self._at_ms + times.run_ms(gang)
        binding = sorted(
            (one for one in self._reservations if one.start_ms < end_ms), key=lambda one: (one.start_ms, one.gang.order)
        )
        known = self._kept.get(len(binding))
        if known is None and binding:
            refusal = Refusal(code="reserved", ahead=binding[0].gang.namespaced_name, start_ms=binding[0].start_ms)
            known = self._kept[len(binding)] = KeptRoom(times.counted(binding), refusal)
        return known or NOTHING_KEPT

    def note_start(self, gang: Gang, placement: Placement) -> None:
        """A gang without chips starts; what others must leave free stays the same unless its end is expected."""
        self._placed.append((gang, placement))
        self._has_placed = True
        if gang.run_ms:
            self._kept.clear()

    def note_step(self, gang: Gang, recovery: Recovery) -> None:
        """Ranks of a placed gang leave, or get places: reservations count them as after the record."""
        self._steps.append((gang, recovery))
        self._has_placed = True

    def refusal_changed(self, gang: Gang, refusal: Refusal) -> bool:
        """Whether a refusal differs from the last one. A start that is due now as a job is late is no difference."""
        last = self._last(gang.uid)
        if gang.fresh or last is None or (last.code, last.ahead) != (refusal.code, refusal.ahead):
            return True
        return refusal.code == "reserved" and last.start_ms != refusal.start_ms > self._at_ms

    def _last(self, uid: str) -> Refusal | None:
        known = self._state.fold.gangs.get(uid)
        return None if known is None else known.refusal

    def _pass(self, gang: Gang | None) -> None:
        """Give reservations to the gangs before this one that are not tried in this round; None for all of them."""
        while self._next is not None and (gang is None or self._next.order < gang.order):
            self._reserve(self._next)
            self._next = next(self._waiting, None) if self._is_open else None

    @property
    def _is_open(self) -> bool:
        """Whether one more reservation may be made."""
        return len(self._reservations) < self._terms.depth and len(self._tried) < _TRIES_MAX

    def _may_reserve(self, gang: Gang) -> bool:
        """Whether a gang may get a reservation: a heavy one may not, for to plan it takes longer than to decide it."""
        return is_large(gang, self._terms.settings) and not is_heavy(gang.request_class, len(self._state.table))

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
        blocks = blocks_of(gang.demand)
        self._has_colocation = self._has_colocation or (blocks is not None and bool(blocks.service or blocks.near))
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
            made_for = (*revisions, state.leaf_occupancy.follows_pods, is_late, ends, silent)
            if made_for != memory.made_for or state.leaf_occupancy.follows_pods:
                memory.made_for = made_for
                memory.reservations = {}
        for gang, placement in self._placed:
            self._times.place(gang, placement, self._times.footprint(placement))
        self._placed.clear()
        return self._times


def is_large(gang: Gang, settings: Settings) -> bool:
    """Whether a gang may get a reservation: it has many chips, or is for ranks that a running gang lacks."""
    return chips_of(gang.request_class) >= settings.reserve_chips or (gang.is_fragile and not gang.is_plain)


def _meets(one: Reservation, footprint: ResourceFootprint) -> bool:
    """Whether a footprint may conflict with a reservation: on its nodes; anywhere if its gang has switch affinity."""
    return is_by_leaf(one.gang.demand) or footprint.meets(one.footprint)
