"""The course of a cell in one view of its run times: the room that each of some gangs gets, one behind the other.

Each gang gets the earliest reservation of the availability profile besides those before it, as under the policy
``conservative``: a later gang starts before them if they start no later for it, on the same nodes or on others. What
its queue does not let in has none and holds back nobody: it gets one at the first moment at which gangs have given
back enough, and if others take that first, at a later one. Behind a gang of a queue that is ``fifo``, and behind any
under that policy, nothing starts that comes after it. No gang is evicted.
"""

import bisect
import heapq
from collections.abc import Iterable, Sequence
from typing import Final

from berth.core.errors import guarded
from berth.core.expected.chip_course import ChipCourse
from berth.core.gangs import ClassKey, Gang
from berth.core.placement.round_demand import is_heavy
from berth.core.placement.scoring import Scorer
from berth.core.queues.admission import Ask, placement_refusal
from berth.core.queues.charges import Usage
from berth.core.queues.shares import Shares
from berth.core.scheduling.reservations import FOREVER_MS, AvailabilityProfile, Expects, Reservation
from berth.core.scheduling.rules.backfill import meets
from berth.core.state.cell import State
from berth.schemas.refusal import QueueRefusal

_Alike = tuple[ClassKey, tuple[str, ...]]
"""What two gangs have in common that fit at the same moments, besides their run times and profiles."""
_TRIES_ONE_BY_ONE: Final = 32
"""Moments without room after which two at a time are passed over, and so on: a start may be found late then."""
_LetIn = tuple[Sequence[int], Sequence[bool]]
"""Moments, ascending, and whether a gang is let in from each on."""


class Course:
    """Reservations of gangs in one view.

    Attributes:
        profile: What is free when.
        starts: Reservations, by uid; None of a gang that gets none.
        last: Why its queue did not let a gang in when it was looked at last, by uid; those that it let in are missing.

    Args:
        state: The cell.
        scorer: Its scoring.
        at_ms: The moment.
        expects: Run times in this view.
        is_strict: Whether nothing starts before a gang that is ahead.
    """

    def __init__(self, state: State, scorer: Scorer, at_ms: int, expects: Expects, *, is_strict: bool) -> None:
        self.profile = AvailabilityProfile(state, scorer, at_ms, None, {}, (), expects)
        self._chips = ChipCourse(state, self.profile, at_ms)
        self.starts: dict[str, Reservation | None] = {}
        self.last: dict[str, QueueRefusal] = {}
        self._state = state
        self._at_ms = at_ms
        self.is_strict = is_strict
        self._shares = state.queues.shares()
        self.at_first: Usage | None = None if self._shares is None else state.queues.usage(self._shares.tree).fork()
        """What queues hold at that moment; None where they do nothing."""
        self._known: dict[_Alike, list[tuple[int, int]]] = {}
        """Run times (ms) of gangs that got room, ascending, and no earlier moment than which gangs like these start."""

    def add(self, gangs: Iterable[Gang]) -> None:
        """Give reservations to gangs of one lane, in their order."""
        if self._shares is None:
            from_ms = self._at_ms
            for gang in gangs:
                found = self.reserve(gang, from_ms)
                if self.is_strict and found is not None:
                    from_ms = max(from_ms, found.start_ms)
            return
        _Moments(self, self._state, self._shares, self._at_ms, self._made()).run(list(gangs))

    def refusal(self, usage: Usage, gang: Gang) -> QueueRefusal | None:
        """Why its queue does not let a gang in when queues hold what is given; None if it does."""
        queues = self._state.queues
        if self._shares is None or queues.continues(gang):
            return None
        queues.charge_held(usage, gang.uid, times=-1)
        found = placement_refusal(self._shares, usage, Ask(gang.queue, gang.charge, gang.namespace))
        queues.charge_held(usage, gang.uid)
        return found

    def behind(self, gang: Gang, ahead: Sequence[Gang]) -> Reservation | None:
        """The reservation of one more gang behind some that have theirs; it changes none.

        Args:
            gang: The gang.
            ahead: Those before it in its lane.
        """
        made = [one for other in ahead if (one := self.starts.get(other.uid)) is not None]
        from_ms = self._at_ms
        if self.is_strict or self.is_fifo(gang.queue):
            before = [one for one in made if self.is_strict or one.gang.queue == gang.queue]
            from_ms = max([from_ms, *(one.start_ms for one in before)])
        if self._shares is None:
            return self._found(gang, made, from_ms)[0]
        let_in = _Moments(self, self._state, self._shares, self._at_ms, made).let_in(gang)
        return self._found(gang, made, from_ms, let_in)[0]

    def is_fifo(self, queue: str) -> bool:
        """Whether in a queue nothing is tried behind a gang that is refused."""
        known = self._shares.tree.queues.get(queue) if self._shares is not None else None
        return known is not None and known.is_fifo

    def reserve(self, gang: Gang, from_ms: int) -> Reservation | None:
        """Give a gang its reservation, from a moment on; others move to other nodes, to no other moment."""
        run_ms, key = self.profile.run_ms(gang), (gang.request_class, gang.avoided)
        known = self._known.setdefault(key, [])
        # What runs as long finds no room earlier than its like did, besides fewer reservations.
        shorter = bisect.bisect_right(known, (run_ms, FOREVER_MS))
        floor_ms = 0 if gang.profiles else max((start_ms for _, start_ms in known[:shorter]), default=0)
        found: Reservation | None = None
        moved: Sequence[Reservation] = ()
        if floor_ms < FOREVER_MS:
            found, moved = self._found(gang, self._made(), max(from_ms, floor_ms))
        if from_ms <= self._at_ms:
            bisect.insort(known, (run_ms, FOREVER_MS if found is None else found.start_ms))
        self.starts.update((one.gang.uid, one) for one in moved)
        self.starts[gang.uid] = found
        return found

    def _made(self) -> list[Reservation]:
        return [one for one in self.starts.values() if one is not None]

    def _found(
        self, gang: Gang, others: Sequence[Reservation], from_ms: int, let_in: _LetIn | None = None
    ) -> tuple[Reservation | None, Sequence[Reservation]]:
        """The earliest reservation of a gang, and those of others as they have to move for it."""
        if gang.invalid is not None or is_heavy(gang.request_class, len(self._state.table)):
            return None, ()
        nothing: tuple[Reservation | None, Sequence[Reservation]] = (None, ())

        def look() -> tuple[Reservation | None, Sequence[Reservation]]:
            moments = self._chips.moments(gang, self.profile.run_ms(gang), others, from_ms)
            tries = index = 0
            while index < len(moments):
                moment = moments[index]
                index += 1 + tries // _TRIES_ONE_BY_ONE
                if let_in is not None and not _is_let_in(let_in, moment):
                    continue
                found = self._at(gang, moment, others)
                if found is not None:
                    return found
                if not tries:  # where the chips are on the wrong nodes, moments without room are passed over
                    room = self.profile.room(gang, from_ms)[0]
                    index = max(index, bisect.bisect_left(moments, room[0])) if room else len(moments)
                tries += 1
            return nothing

        return guarded(look, lambda _: None) or nothing

    def _at(
        self, gang: Gang, moment: int, others: Sequence[Reservation]
    ) -> tuple[Reservation, Sequence[Reservation]] | None:
        """As a round would start a gang at a moment: all that is reserved for later moments stands, on other nodes too.

        Args:
            gang: The gang.
            moment: The moment.
            others: Reservations in their order.
        """
        profile, run_ms = self.profile, self.profile.run_ms(gang)
        beside = profile.planned(gang, moment, run_ms, others)
        if beside is not None:
            return beside, ()
        later = [one for one in others if moment < one.start_ms < moment + run_ms]
        if not later:
            return None
        left = [one for one in others if one.start_ms <= moment < one.end_ms]
        found = profile.planned(gang, moment, run_ms, left)
        if found is None:
            return None
        moved: list[Reservation] = []
        for one in (one for one in others if one.start_ms > moment):
            is_there = found.end_ms > one.start_ms
            if not (is_there and meets(one, found.footprint)) and not any(meets(one, new.footprint) for new in moved):
                left.append(one)
                continue
            around = [*left, found] if is_there else left
            again = profile.planned(one.gang, one.start_ms, one.end_ms - one.start_ms, around)
            if again is None:
                return None
            moved.append(again)
            left.append(again)
        return found, moved


class _Moments:
    """Goes from moment to moment where queues have limits: what ends gives back what it was charged.

    Args:
        course: Makes the reservations.
        state: The cell.
        shares: Limits of its queues.
        at_ms: The moment.
        made: Reservations that stand.
    """

    def __init__(self, course: Course, state: State, shares: Shares, at_ms: int, made: Sequence[Reservation]) -> None:
        self._course = course
        self._queues = state.queues
        self._at_ms = at_ms
        self._usage = state.queues.usage(shares.tree).fork()
        self._held = {held.key for held in state.fold.held.values()}
        self._ends = [(end_ms, key) for end_ms, key in course.profile.ends if end_ms < FOREVER_MS]
        """Expected ends, the next first."""
        self._ended = 0
        self._starting = sorted(made, key=lambda one: (-one.start_ms, one.gang.uid))
        """Reservations that stand and have not begun, the next one last."""
        self._running: list[tuple[int, str, Gang]] = []
        """Gangs that have started, as a heap by their ends."""
        self._continued: set[str] = set()
        """Gangs (uid) that have started, and for which places were held."""

    def _all(self) -> list[int]:
        """Moments at which something changes, as far as they are known."""
        starts = [moment for one in self._starting for moment in (one.start_ms, one.end_ms)]
        return [self._at_ms, *(end_ms for end_ms, _ in self._ends), *starts]

    def run(self, gangs: list[Gang]) -> None:
        """Give all gangs of a lane their reservations, in their order."""
        moments = self._all()
        heapq.heapify(moments)
        moment = -1
        while moments and gangs:
            following = heapq.heappop(moments)
            if following == moment or following >= FOREVER_MS:
                continue
            moment = following
            self._reach(moment)
            gangs, more = self._step(moment, gangs)
            for one in more:
                heapq.heappush(moments, one)
        for gang in gangs:
            self._course.starts.setdefault(gang.uid, None)

    def _step(self, moment: int, gangs: list[Gang]) -> tuple[list[Gang], list[int]]:
        """Look at gangs that have not started; returns those that have not then, and when some start or end."""
        starts = self._course.starts
        later: list[Gang] = []
        more: list[int] = []
        blocked: set[str] = set()
        is_blocked = False
        for gang in gangs:
            known = starts.get(gang.uid)
            if is_blocked or gang.queue in blocked:
                later.append(gang)
                continue
            is_late = known is None or known.start_ms <= moment
            if is_late and not self._lets_in(gang):
                starts.pop(gang.uid, None)
                later.append(gang)
            else:
                if known is None:
                    known = self._course.reserve(gang, moment)
                if known is None:
                    continue  # it finds no room at any moment
                if known.start_ms <= moment:
                    self._start(gang, known.end_ms)
                    more.append(known.end_ms)
                    continue
                later.append(gang)
                more.append(known.start_ms)
                is_blocked = self._course.is_strict
            if self._course.is_fifo(gang.queue):
                blocked.add(gang.queue)
        return later, more

    def _lets_in(self, gang: Gang) -> bool:
        refusal = self._course.refusal(self._usage, gang)
        if refusal is None:
            self._course.last.pop(gang.uid, None)
            return True
        self._course.last[gang.uid] = refusal
        return False

    def let_in(self, gang: Gang) -> _LetIn:
        """Whether its queue lets a gang in, behind those whose reservations stand."""
        moments = sorted(set(self._all()))
        flags: list[bool] = []
        for moment in moments:
            self._reach(moment)
            flags.append(self._lets_in(gang))
        return moments, flags

    def _start(self, gang: Gang, end_ms: int) -> None:
        self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace)
        self._queues.charge_held(self._usage, gang.uid, times=-1)
        self._continued.add(gang.uid)
        heapq.heappush(self._running, (end_ms, gang.uid, gang))

    def _reach(self, moment: int) -> None:
        """Take back what is charged for all that has ended by a moment, and charge what has started."""
        while self._ended < len(self._ends) and self._ends[self._ended][0] <= moment:
            key = self._ends[self._ended][1]
            self._ended += 1
            if key not in self._held:
                self._queues.end(self._usage, key)
            elif key[0] not in self._continued:
                self._queues.charge_held(self._usage, key[0], times=-1)
        while self._starting and self._starting[-1].start_ms <= moment:
            one = self._starting.pop()
            self._start(one.gang, one.end_ms)
        while self._running and self._running[0][0] <= moment:
            _, _, gang = heapq.heappop(self._running)
            self._usage.charge(gang.queue, gang.charge, namespace=gang.namespace, times=-1)


def _is_let_in(let_in: _LetIn, moment: int) -> bool:
    """Whether a gang is let in at a moment."""
    moments, flags = let_in
    index = bisect.bisect_right(moments, moment) - 1
    return index >= 0 and flags[index]
