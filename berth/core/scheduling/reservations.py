"""Reservations: the earliest moment at which a gang finds room if jobs end when expected, and its placement then.

A running job is expected to end when its run time is over: the declared one, else the mean of the last two jobs of its
kind, else the setting ``unknown_run_ms``. A job that is late, or is being deleted, is expected to end at once, and so
are the pods of ranks that leave for other places. Places that are held for a job that starts anew are used until their
deadline. Chips are counted one by one. Cpu and memory of successive reservations on a node are added up, which can hold
a gang longer than necessary but never delays a reservation. It is assumed that more room never hurts.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.placement.projected_state import ProjectedState, ResourceFootprint, footprint_of
from berth.core.placement.scoring import Scorer
from berth.core.state.cell import State
from berth.core.state.held_jobs import held_job
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.steps import take_step
from berth.core.state.ledger import Holding, PodShare, chips_in, owned_by, pods_of
from berth.schemas.placement import Placement, Run
from berth.schemas.recovery import Recovery

AttemptKey = tuple[str, int]
Holds = tuple[Placement, list[int], Mapping[int, PodShare], list[int]]
"""What a footprint follows from: a placement, the ranks that have given theirs back (of held places those that are
held), places that are reserved, and ranks that leave (of held places what they lack, rank by rank). Records put new
values in place of these, and change none."""
Footprints = dict[AttemptKey, tuple[Holds, ResourceFootprint]]
"""Newest footprints of attempts, and what they followed from."""

_LEAVING: Final = "/leaving"
"""Behind the uid of an attempt, of which no part contains it: the places that its ranks leave."""
FOREVER_MS: Final = 1 << 53
"""Run time of a job without chips that declares none: services run until they are deleted."""


class Reservation(NamedTuple):
    """Room that is reserved for a gang."""

    gang: Gang
    start_ms: int
    end_ms: int
    placement: Placement
    footprint: ResourceFootprint

    def overlaps(self, start_ms: int, end_ms: int) -> bool:
        """Whether it is in force at some moment of a span."""
        return self.start_ms < end_ms and start_ms < self.end_ms


class Occupant(NamedTuple):
    """A running attempt, and when it is expected to end."""

    end_ms: int
    key: AttemptKey
    footprint: ResourceFootprint


def run_ms_of(state: State, namespace: str, runs: Iterable[Run], declared_ms: int) -> int:
    """How long a gang is taken to run."""
    if declared_ms > 0:
        return declared_ms
    chips = chips_in(runs)
    if not chips:
        return FOREVER_MS
    estimate = state.fold.run_times.estimate_ms(namespace, chips)
    return state.fold.settings.unknown_run_ms if estimate is None else estimate


def declared_ms_of(state: State, holding: Holding) -> int:
    """Run time that the job of a holding declares; 0 if it declares none, or is not known."""
    job = state.jobs.get((holding.namespace, holding.name))
    return job.request.run_ms if job is not None and job.uid == holding.uid and job.request is not None else 0


def end_ms_of(state: State, holding: Holding, at_ms: int) -> int:
    """When a holding is expected to end, as seen at a moment."""
    if holding.ending:
        return at_ms
    run_ms = run_ms_of(state, holding.namespace, holding.placement.runs, declared_ms_of(state, holding))
    return max(at_ms, holding.at_ms + run_ms)


def next_end_ms(state: State, at_ms: int) -> int:
    """The first moment after ``at_ms`` at which an attempt is expected to end; 0 if there is none."""
    ends = [end_ms_of(state, holding, at_ms) for holding in state.fold.holdings.values()]
    ends += [held.until_ms for held in state.fold.held.values()]
    return min((end_ms for end_ms in ends if at_ms < end_ms < FOREVER_MS), default=0)


class Expects:
    """How long jobs are taken to run: as they declare, else as others of their size, else as a setting says.

    Args:
        state: The cell.
        at_ms: The moment.
    """

    def __init__(self, state: State, at_ms: int) -> None:
        self._state = state
        self._at_ms = at_ms

    def run_ms(self, gang: Gang) -> int:
        """How long a gang is taken to run."""
        return run_ms_of(self._state, gang.namespace, gang.runs, gang.run_ms)

    def end_ms(self, holding: Holding) -> int:
        """When a holding is expected to end."""
        return end_ms_of(self._state, holding, self._at_ms)


class AvailabilityProfile:
    """Expected ends of running attempts, and the free resources that follow, while a round goes on.

    Args:
        state: The cell before the round.
        scorer: Its scoring.
        at_ms: The moment of the round.
        silent: Rows that count for nothing.
        footprints: Footprints of holdings, as far as known; missing ones are added, and those out of date replaced.
        steps: Steps of recoveries that the round takes, with their gangs.
        expects: How long jobs are taken to run; None: as for decisions.
    """

    def __init__(
        self,
        state: State,
        scorer: Scorer,
        at_ms: int,
        silent: Fits | None,
        footprints: Footprints,
        steps: Iterable[tuple[Gang, Recovery]],
        expects: Expects | None = None,
    ) -> None:
        self._state = state
        self._at_ms = at_ms
        self._expects = expects or Expects(state, at_ms)
        self._now = ProjectedState(state, scorer, silent)
        after = [self._step(gang, recovery) for gang, recovery in steps]
        moved = {holding.key: holding for holding in after}
        self._held = {uid: self._held_places(held, footprints) for uid, held in sorted(state.fold.held.items())}
        """Places that are held for gangs (uid) that start anew."""
        stay = (holding for key, holding in state.fold.holdings.items() if key not in moved)
        running = [one for holding in stay for one in self._running(holding, footprints)]
        running += [one for holding in after for one in self._running(holding, {})]
        self._occupants = sorted([*running, *self._held.values()], key=lambda one: one[:2])
        self._at: dict[int, ProjectedState] = {}

    @property
    def ends(self) -> tuple[tuple[int, AttemptKey], ...]:
        """Expected ends, the next first."""
        return tuple((one.end_ms, one.key) for one in self._occupants)

    @property
    def occupants(self) -> Sequence[Occupant]:
        """What is held and when it is expected to be given back, the next end first."""
        return self._occupants

    def _step(self, gang: Gang, recovery: Recovery) -> Holding:
        """What an attempt holds after a step, which the projection of now gets too."""
        before = self._state.fold.holdings[recovery.uid, recovery.attempt]
        after = msgspec.structs.replace(before)
        take_step(after, recovery)
        state, owned, reserved = self._state, owned_by(after), after.reserved()
        held, holds = Counter(self._state.held_by(before.key)), Counter([*owned, *reserved.values()])
        seen = state.pods_seen(before) if state.follows_pods else None
        job = held_job(after, owned, reserved, seen)
        counted = {name: index.held(job) for name, index in state.counting.items()}
        self._now.move(
            gang,
            recovery,
            footprint_of(state, (held - holds).elements(), before.placement),
            footprint_of(state, (holds - held).elements(), before.placement)._replace(counted=counted),
        )
        return after

    def _running(self, holding: Holding, footprints: Footprints) -> Iterator[Occupant]:
        """A running attempt; apart from it the places that its ranks leave, and do not return to."""
        reserved = holding.reserved()
        placed = {rank for move in holding.moves for rank in move.placed}
        leaving = sorted(holding.leaving().keys() - (placed - reserved.keys()))
        holds = (holding.placement, holding.gone, reserved, leaving)

        def staying() -> Iterable[PodShare]:
            left = set(leaving)
            return [*(pod for rank, pod in enumerate(owned_by(holding)) if rank not in left), *reserved.values()]

        footprint = self._known(footprints, holding.key, holds, staying)
        yield Occupant(self._expects.end_ms(holding), holding.key, footprint)
        if not leaving:
            return

        def left_places() -> Iterable[PodShare]:
            pods = owned_by(holding)
            return [pods[rank] for rank in leaving]

        key = (f"{holding.uid}{_LEAVING}", holding.attempt)
        yield Occupant(self._at_ms, key, self._known(footprints, key, holds, left_places))

    def _held_places(self, held: Held, footprints: Footprints) -> Occupant:
        lacks = [number for pair in sorted(held.lacks.items()) for number in pair]
        holds: Holds = (held.placement, held.ranks, {}, lacks)
        footprint = self._known(footprints, held.key, holds, lambda: held.places().values())
        return Occupant(max(held.until_ms, self._at_ms), held.key, footprint)

    def _known(
        self, footprints: Footprints, key: AttemptKey, holds: Holds, pods: Callable[[], Iterable[PodShare]]
    ) -> ResourceFootprint:
        """The footprint of an attempt; made anew of its pods unless one is known of the same places."""
        known = footprints.get(key)
        if known is None or known[0] != holds:
            known = footprints[key] = (holds, footprint_of(self._state, pods(), holds[0]))
        return known[1]

    def footprint(self, placement: Placement) -> ResourceFootprint:
        """What a placement would hold."""
        return footprint_of(self._state, pods_of(placement), placement)

    def run_ms(self, gang: Gang) -> int:
        """How long a gang is taken to run."""
        return self._expects.run_ms(gang)

    def place(self, gang: Gang, placement: Placement, footprint: ResourceFootprint) -> None:
        """A gang starts in this round."""
        end_ms = self._at_ms + self.run_ms(gang)
        self._end_held(gang.uid)
        self._now.start(gang, placement, footprint)
        bisect.insort(self._occupants, Occupant(end_ms, (gang.uid, gang.attempt), footprint), key=lambda one: one[:2])
        for moment, projection in self._at.items():
            if end_ms > moment:
                projection.start(gang, placement, footprint)

    def _end_held(self, uid: str) -> None:
        """Places are held no longer for a gang that starts."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        self._occupants = [one for one in self._occupants if one.key != held.key]
        ended = {held.key: held.footprint}
        for projection in (self._now, *(one for moment, one in self._at.items() if held.end_ms > moment)):
            projection.end(ended)

    def at(self, moment_ms: int) -> ProjectedState:
        """The cell at a moment, without attempts that are expected to end by then. The caller must not change it."""
        projection = self._at.get(moment_ms)
        if projection is None:
            projection = self._at[moment_ms] = self._now.copy()
            count = bisect.bisect_right(self._occupants, moment_ms, key=lambda one: one.end_ms)
            projection.end({one.key: one.footprint for one in self._occupants[:count]})
        return projection

    def room(self, gang: Gang, from_ms: int = 0) -> tuple[Sequence[int], dict[int, Reservation]]:
        """Moments from the first one on at which a gang finds room if nobody has a reservation.

        Args:
            gang: The gang.
            from_ms: It begins no earlier.

        Returns:
            The moments at which something ends, ascending; empty if it finds room at none. Its reservations at those
            of them that were tried.
        """
        run_ms = self.run_ms(gang)
        first_ms = max(self._at_ms, from_ms)
        moments = sorted({first_ms, *(one.end_ms for one in self._occupants if first_ms < one.end_ms < FOREVER_MS)})
        # Chips are counted first, then the gang is planned, because free chips only grow; other reservations may
        # conflict at any moment.
        moments = moments[bisect.bisect_left(moments, 1, key=lambda moment: self.at(moment).may_fit(gang)) :]
        alone: dict[int, Reservation] = {}

        def is_room(moment: int) -> bool:
            found = self.planned(gang, moment, run_ms, ())
            if found is not None:
                alone[moment] = found
            return found is not None

        return moments[bisect.bisect_left(moments, 1, key=is_room) :], alone

    def reserve(self, gang: Gang, others: Sequence[Reservation]) -> Reservation | None:
        """The earliest reservation that a gang can have besides those of others; None if there is no such moment.

        Args:
            gang: The gang.
            others: Reservations that it must not change.
        """
        run_ms = self.run_ms(gang)
        moments, alone = self.room(gang)
        later = {one.end_ms for one in others if moments and one.end_ms > moments[0]}
        for moment in sorted(later.union(moments)):
            is_alone = not any(other.overlaps(moment, moment + run_ms) for other in others)
            found = alone.get(moment) if is_alone else None
            found = found or self.planned(gang, moment, run_ms, others)
            if found is not None:
                return found
        return None

    def counted(self, reservations: Sequence[Reservation]) -> dict[int, tuple[int, int]]:
        """Cpu and memory that reservations count, by row: a pod that starts now and outlasts them must leave it free.

        It is what they take, less what jobs give back before they begin. Reservations on one node are added up.

        Returns:
            Cpu in thousandths and memory in MiB; rows of which nothing must be left free are missing.
        """
        taken: dict[int, tuple[int, int]] = {}
        for one in reservations:
            for row, cpu, memory in one.footprint.requests():
                before = taken.get(row, (0, 0))
                taken[row] = (before[0] + cpu, before[1] + memory)
        kept: dict[int, tuple[int, int]] = {}
        for one in reservations:
            projection = self.at(one.start_ms)
            for row in sorted(one.footprint.nodes):
                now, then, (cpu, memory) = self._now.unused(row), projection.unused(row), taken.get(row, (0, 0))
                least = kept.get(row, (0, 0))
                kept[row] = (max(least[0], cpu - then[0] + now[0]), max(least[1], memory - then[1] + now[1]))
        return {row: least for row, least in kept.items() if any(least)}

    def planned(
        self,
        gang: Gang,
        moment_ms: int,
        run_ms: int,
        others: Iterable[Reservation],
        besides: Callable[[ProjectedState], None] | None = None,
    ) -> Reservation | None:
        """The reservation of a gang at a moment; None if there is no room.

        Args:
            gang: The gang.
            moment_ms: The moment.
            run_ms: How long it runs.
            others: Reservations that it must not change.
            besides: Adds another placement to the cell at that moment.
        """
        projection = self.at(moment_ms)
        around = [other for other in others if other.overlaps(moment_ms, moment_ms + run_ms)]
        if besides is not None or around:
            projection = projection.copy()
        if besides is not None:
            besides(projection)
        projection.start_all([(other.gang, other.placement, other.footprint) for other in around])
        placement = projection.plan(gang)
        if placement is None:
            return None
        return Reservation(gang, moment_ms, moment_ms + run_ms, placement, self.footprint(placement))
