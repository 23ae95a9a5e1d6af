"""Expected starts of the jobs that wait, and of a job that is not submitted, as of a state of the cell.

They are made when somebody asks, and nothing is decided by them. The first :data:`BEHIND_MAX` gangs of each lane get
reservations in both views of the run times; those behind get ``not before`` the last start of these. Starts never
assume that jobs end for others; who would is said beside them. The state must not change while a forecast is used.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.changes import Changes
from berth.core.expected.course import Course
from berth.core.expected.expectation import BEHIND_MAX, NAMED_MAX, ExpectedCode, ExpectedStart
from berth.core.expected.run_times import ExpectedRunTimes
from berth.core.expected.victims import victims_for
from berth.core.expected.waiting_order import Place, WaitingOrder
from berth.core.gangs import Gang
from berth.core.placement.round_demand import is_heavy
from berth.core.scheduling.reservations import FOREVER_MS, AttemptKey, Expects, Occupant, Reservation
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobRequest, Preemption

_LAST: Final = 1 << 52
"""Place of a job that is not submitted: behind all of its priority."""
_ASKED: Final = "\\x7fasked"
"""Uid of such a job, which no other has."""


class _Views(NamedTuple):
    """The early and the late view; one and the same where no run time differs."""

    early: Course
    late: Course


class Forecast:
    """Expected starts as of a state.

    Attributes:
        at_ms: The moment.
        ledger_seq: Last record that the state has.
        facts_seq: Last fact that it has.
        settings: Those of its epoch.

    Args:
        state: The cell; it must not change.
        at_ms: The moment, not before that of the last record.
    """

    def __init__(self, state: State, at_ms: int) -> None:
        self.at_ms = max(at_ms, state.fold.at_ms)
        self.ledger_seq, self.facts_seq = state.fold.head, state.facts_seq
        self.settings = state.fold.settings
        self._state = state
        self._scheduler = Scheduler(state)
        self._scheduler.begin(Changes())
        self._terms = self._scheduler.rules.terms(state, self.at_ms)
        self._gangs = self._scheduler.queue.gangs()
        self._order = WaitingOrder(self._scheduler, self._gangs)
        self._views: tuple[_Views | None, _Views | None] = (None, None)
        """Of the lane with chips, and of the other one; made when they are asked for."""

    def all(self) -> list[ExpectedStart]:
        """Of all jobs that wait: those with chips in their order, those without, and those that are held or pause."""
        found = [self._of(gang, index) for lane in self._order.lanes for index, gang in enumerate(lane)]
        known = {one.uid for one in found}
        jobs = (self._state.jobs[key] for key in sorted(self._state.jobs))
        return found + [one for job in jobs if job.uid not in known and (one := self._aside(job)) is not None]

    def of(self, uid: str) -> ExpectedStart | None:
        """Of a job, with those that would end for it; None if it does not wait."""
        place = self._order.places.get(uid)
        gang = self._scheduler.queue.gang(uid)
        if place is not None and gang is not None:
            expected = self._of(gang, place.position - 1)
            found = victims_for(self._scheduler, self._terms.applied(gang), self.at_ms)
            is_news = found is not None and found.code != "not-needed"
            return msgspec.structs.replace(expected, victims=found) if is_news else expected
        job = self._state.jobs.get(self._state.name_of.get(uid, ("", "")))
        return None if job is None or job.uid != uid else self._aside(job)

    def ask(self, request: JobRequest, *, with_victims: bool = False) -> ExpectedStart:
        """Of a job that is not submitted, as if it were now: behind all others of its priority.

        Args:
            request: The job, which the settings of the cell accept.
            with_victims: Say who would end for it, too.
        """
        job = JobSeen(request.namespace, request.name, _ASKED, "accepted", _LAST, _LAST, self.at_ms, request=request)
        gang = self._scheduler.gang(job, request, 1)
        order = WaitingOrder(self._scheduler, [*self._gangs, gang], {_ASKED: request.queue})
        lane, place = order.lanes[gang.is_plain], order.places[_ASKED]
        ahead = lane[: place.position - 1]
        if len(ahead) >= BEHIND_MAX:
            expected = self._behind(gang, place)
        else:
            views = self._views_of(is_plain=gang.is_plain, differ=self._differs(gang))
            applied = self._terms.applied(gang)
            early = views.early.behind(applied, ahead)
            late = early if views.late is views.early else views.late.behind(applied, ahead)
            expected = self._expected(gang, place, views, (early, late), ahead)
        victims = None
        if with_victims:
            declared = request.preemption or Preemption()
            victims = victims_for(self._scheduler, self._terms.applied(gang), self.at_ms, declared)
        return msgspec.structs.replace(expected, uid="", victims=victims)

    def reserved_ms(self, uid: str) -> int:
        """When a job that waits starts if all run as long as ``easy`` takes them to; -1 without an answer."""
        place, gang = self._order.places.get(uid), self._scheduler.queue.gang(uid)
        if place is None or gang is None or place.position > BEHIND_MAX:
            return -1
        course = self._course(Expects(self._state, self.at_ms), is_plain=gang.is_plain)
        found = course.starts.get(uid)
        return -1 if found is None else found.start_ms

    def _differs(self, gang: Gang) -> bool:
        """Whether the run time of a gang differs between the views."""
        early, late = (ExpectedRunTimes(self._state, self.at_ms, is_late=is_late) for is_late in (False, True))
        return early.run_ms(gang) != late.run_ms(gang)

    def _of(self, gang: Gang, index: int) -> ExpectedStart:
        place = self._order.places[gang.uid]
        if index >= BEHIND_MAX:
            return self._behind(gang, place)
        views = self._views_of(is_plain=gang.is_plain)
        found = views.early.starts.get(gang.uid), views.late.starts.get(gang.uid)
        return self._expected(gang, place, views, found, self._order.lanes[gang.is_plain][:index])

    def _views_of(self, *, is_plain: bool, differ: bool = False) -> _Views:
        """The views of a lane; ``differ``: each is a course of its own."""
        found = self._views[is_plain]
        if found is None:
            times = ExpectedRunTimes(self._state, self.at_ms, is_late=False)
            early = self._course(times, is_plain=is_plain)
            found = _Views(early, early)
            differ |= times.has_ranges
        if differ and found.late is found.early:
            times = ExpectedRunTimes(self._state, self.at_ms, is_late=True)
            found = found._replace(late=self._course(times, is_plain=is_plain))
        self._views = (self._views[0], found) if is_plain else (found, self._views[1])
        return found

    def _course(self, times: Expects, *, is_plain: bool) -> Course:
        """The course of the first gangs of a lane. Those without chips come behind those with chips."""
        scheduler = self._scheduler
        is_strict = scheduler.rules.is_strict and not is_plain
        course = Course(self._state, scheduler.scorer, self.at_ms, times, is_strict=is_strict)
        for lane in self._order.lanes[: 1 + is_plain]:
            course.add([self._terms.applied(gang) for gang in lane[:BEHIND_MAX]])
        return course

    def _behind(self, gang: Gang, place: Place) -> ExpectedStart:
        """Of a gang behind the first ones."""
        first = self._order.lanes[gang.is_plain][:BEHIND_MAX]
        starts = self._views_of(is_plain=gang.is_plain).early.starts
        last_ms = max((one.start_ms for other in first if (one := starts.get(other.uid)) is not None), default=0)
        return _placed(gang, place, code="not-before", not_before_ms=max(last_ms, self.at_ms))

    def _expected(
        self,
        gang: Gang,
        place: Place,
        views: _Views,
        found: tuple[Reservation | None, Reservation | None],
        ahead: Sequence[Gang],
    ) -> ExpectedStart:
        held = self._state.fold.held.get(gang.uid)
        if held is not None and held.is_reserved:
            return self._reserved(gang, place, held)
        early, late = found
        limit = None if views.early.at_first is None else views.early.refusal(views.early.at_first, gang)
        if early is None:
            return self._none(gang, place, views.early, ahead)
        names, more = self._holders(views.early, early, ahead)
        is_known = late is not None
        return _placed(
            gang,
            place,
            earliest_ms=early.start_ms,
            latest_ms=max(late.start_ms, early.start_ms) if late is not None else 0,
            ahead="" if is_known else self._endless(views.late, gang, ahead),
            held_by=names,
            held_by_more=more,
            limit=limit,
        )

    def _reserved(self, gang: Gang, place: Place, held: Held) -> ExpectedStart:
        """Of a gang for which others leave: it starts once they have, by the deadline."""
        names = sorted(name for key in held.awaited if (name := self._name(key)))
        return _placed(
            gang,
            place,
            earliest_ms=self.at_ms,
            latest_ms=max(held.until_ms, self.at_ms),
            held_by=names[:NAMED_MAX],
            held_by_more=max(0, len(names) - NAMED_MAX),
        )

    def _none(self, gang: Gang, place: Place, course: Course, ahead: Sequence[Gang]) -> ExpectedStart:
        """Of a gang without a start."""
        code: ExpectedCode
        refusal = course.last.get(gang.uid)
        if refusal is not None and refusal.code == "over-capability":
            return _placed(
                gang, place, code="no-end", ahead=self._endless_of(course, ahead, refusal.queue), limit=refusal
            )
        if refusal is not None:
            return _placed(gang, place, code="queue", limit=refusal)
        if gang.invalid is None and is_heavy(gang.request_class, len(self._state.table)):
            return _placed(gang, place, code="too-many-tasks")
        is_behind = course.is_strict or course.is_fifo(gang.queue)
        before = [one for one in ahead if course.is_strict or one.queue == gang.queue] if is_behind else []
        blocker = next((one for one in before if course.starts.get(one.uid) is None), None)
        name = "" if gang.invalid is not None else self._endless(course, gang, ahead)
        code = "no-end" if name else "no-room"
        if not name and blocker is not None and gang.invalid is None:
            code, name = "behind", blocker.namespaced_name
        return _placed(gang, place, code=code, ahead=name)

    def _endless(self, course: Course, gang: Gang, ahead: Sequence[Gang]) -> str:
        """A job without a known end whose place a gang needs; empty if the gang would find no room then either."""
        profile = course.profile
        planned = profile.planned(self._terms.applied(gang), FOREVER_MS, 1, ())
        if planned is None:
            return ""
        endless = [one for one in profile.occupants if one.end_ms >= FOREVER_MS]
        near = [one for one in endless if one.footprint.meets(planned.footprint)] or endless
        if near:
            return self._name(min(near, key=lambda one: (-len(one.footprint.rows), one.key)).key)
        starts = (course.starts.get(one.uid) for one in ahead)
        return next((one.gang.namespaced_name for one in starts if one is not None and one.end_ms >= FOREVER_MS), "")

    def _endless_of(self, course: Course, ahead: Sequence[Gang], queue: str) -> str:
        """A job without a known end that holds something of a queue, or below."""
        tree = self._state.queues.tree()
        for one in course.profile.occupants:
            holding = self._state.fold.holdings.get(one.key)
            if (
                one.end_ms >= FOREVER_MS
                and holding is not None
                and tree is not None
                and queue in tree.charged(holding.charged_queue)
            ):
                return self._name(one.key)
        starts = (course.starts.get(one.uid) for one in ahead)
        return next((one.gang.namespaced_name for one in starts if one is not None and one.end_ms >= FOREVER_MS), "")

    def _holders(self, course: Course, start: Reservation, ahead: Sequence[Gang]) -> tuple[list[str], int]:
        """Jobs that end before a gang starts on some of its nodes, the last one first, and how many more there are."""
        ended: list[Occupant] = [
            one
            for one in course.profile.occupants
            if self.at_ms < one.end_ms <= start.start_ms and one.footprint.meets(start.footprint)
        ]
        found = [(one.end_ms, self._name(one.key)) for one in ended]
        for gang in ahead:
            one = course.starts.get(gang.uid)
            if one is not None and one.end_ms <= start.start_ms and one.footprint.meets(start.footprint):
                found.append((one.end_ms, gang.namespaced_name))
        names = list(dict.fromkeys(name for _, name in sorted(found, key=lambda one: (-one[0], one[1])) if name))
        return names[:NAMED_MAX], max(0, len(names) - NAMED_MAX)

    def _name(self, key: AttemptKey) -> str:
        """Job of an attempt, or of places that are held; empty for none that is known."""
        holding = self._state.fold.holdings.get(key)
        held = self._state.fold.held.get(key[0])
        one = holding or held
        return "" if one is None else f"{one.namespace}/{one.name}"

    def _aside(self, job: JobSeen) -> ExpectedStart | None:
        """Of a job that is not tried for now; None if it does not wait."""
        gang = self._state.fold.gangs.get(job.uid)
        if job.state != "accepted" or job.request is None or (gang is not None and gang.phase != "waiting"):
            return None
        if (job.namespace, job.uid) in self._state.claimed:
            return None
        code: ExpectedCode = "held" if job.hold is not None else "paused"
        return ExpectedStart(job.namespace, job.name, job.uid, job.request.queue, code=code)


def _placed(gang: Gang, place: Place, **values: object) -> ExpectedStart:
    return ExpectedStart(
        gang.namespace,
        gang.name,
        gang.uid,
        place.queue,
        place.position,
        place.chips_ahead,
        place.queue_position,
        place.queue_chips_ahead,
        **values,  # type: ignore[arg-type]  # fields of the same names
    )
