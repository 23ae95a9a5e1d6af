"""Why gangs wait, as of now: refusals on the state as it is, without a decision.

A refusal in the ledger is as old as the round that gave it: a class that sleeps is not decided again, and of a class
that is decided only the first gang gets a verdict. Here each class of equal gangs that wait is judged as a round would
judge it, and all of its gangs share the result. Nothing is taken, recorded or woken.

The caller begins a pass when the state has changed, and judges some classes at a time. Under the policies ``easy`` and
``conservative`` a pass also finds the reservations of now, under ``fifo`` the head of the queue.

Longer than 400 lines because what is known of a class, and what its gangs are told, change together.
"""

import itertools
from collections import deque
from typing import Final, get_args

import msgspec

from berth.core.changes import JobKey
from berth.core.errors import guarded
from berth.core.explain.job_status import Reason
from berth.core.explain.obstacles import Namer
from berth.core.explain.queue_reasons import QueueReasons, queue_refusal
from berth.core.explain.refusal_text import sentence, with_start, without_past
from berth.core.gangs import Gang, WaitKey
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import NeedMoreError, candidate_counts, is_heavy
from berth.core.placement.round_refusals import with_reservation
from berth.core.placement.rules import RESERVED, Entry, RuleRound, Rules
from berth.core.placement.scoring import Candidates, Scorer
from berth.core.scheduling.rules.queues import QUEUES
from berth.core.scheduling.rules.strict_order import behind
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import State
from berth.schemas.ledger import Round, Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import INTERNAL, LATE, RULE, Code, QueueCode, Refusal

SOON_MS: Final = 2_000
"""A start that is expected within this time is not shown: it would have passed when somebody reads it."""
_OF_GANG: Final[frozenset[Code]] = frozenset(
    {RESERVED, "behind", RULE, INTERNAL, LATE, "bind-failed", "product-support", *get_args(QueueCode)}
)
"""Refusals that say nothing of the other gangs of the class."""
_KEPT: Final[frozenset[Code]] = frozenset(
    {RULE, INTERNAL, LATE, "bind-failed", "product-support", *get_args(QueueCode)}
)
"""Refusals that do not follow from the nodes: they stay as they were given, but for those of queues."""
_CANDIDATES_MAX: Final = 1_000_000
"""Candidates of all shapes of a gang that is judged, unless it may need more; and those that are kept for the next."""
_MARKS_OF_A_CANDIDATE: Final = 64
"""Marks of nodes that take as much memory as one candidate."""
_NEW_MS: Final = 150
"""A class that a round has refused since then is not judged again."""
_TURN: Final = "there is room for it now, and it is tried in one of the next rounds"

_Group = tuple[WaitKey, int]
"""Gangs that fare alike: their class, and the last drain before they are expected to end (ms, 0 without)."""


class _Known(msgspec.Struct):
    """Why the gangs of a group wait."""

    refusal: Refusal
    """Without a reservation."""
    gang: Gang
    """The one that was judged."""
    index: int = 0
    """Task that finds no room."""
    words: str = ""
    """Empty until somebody reads them."""
    room: Refusal | None = None
    """Nodes by reason if its first gang has room, as of the last pass; None if it has none."""
    at_ms: int = 0
    """When that was judged."""
    told: tuple[str, Refusal | None] = ("", None)
    """Words, and nodes by reason of those that are held, that the gangs of the group have."""


class CurrentReasons:
    """Reasons of the gangs that wait in the queue of a scheduler.

    Args:
        scheduler: Its state must not be changed while a method runs.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._known: dict[_Group, _Known] = {}
        self._starts: dict[str, int] = {}
        """Starts of the reservations of now, by uid (ms)."""
        self._starts_by_name: dict[str, int] = {}
        self._head: Gang | None = None
        self._todo: deque[tuple[_Group, str]] = deque()
        self._changed: dict[JobKey, None] = {}
        self._judged_at = -1
        """``state.applied`` when the last pass began."""
        self._at_ms = 0
        """When it began."""
        self._judge = _Judge(scheduler.state, scheduler.scorer, -1)
        self._namer = Namer(scheduler.scorer)
        self._of_queues = QueueReasons(scheduler.state)

    @property
    def is_open(self) -> bool:
        """Whether a pass has classes left to judge."""
        return bool(self._todo)

    @property
    def has_news(self) -> bool:
        """Whether reasons changed that :meth:`take` has not returned."""
        return bool(self._changed)

    def is_due(self, at_ms: int) -> bool:
        """Whether a pass may find news: something changed since the last one, or an expected start is near."""
        is_changed = self._scheduler.state.applied != self._judged_at
        return bool(len(self._scheduler.queue)) and (is_changed or self.is_start_near(at_ms))

    def is_start_near(self, at_ms: int) -> bool:
        """Whether a start that was shown is near or has passed."""
        return any(start_ms <= at_ms + SOON_MS for start_ms in self._starts.values())

    def begin(self, at_ms: int) -> None:
        """Begin a pass.

        Args:
            at_ms: The time.
        """
        scheduler = self._scheduler
        state, queue = scheduler.state, scheduler.queue
        self._judged_at, self._at_ms = state.applied, at_ms
        self._reset_for_new_scorer()
        starts = {
            uid: start_ms for uid, start_ms in scheduler.decisions.starts(at_ms).items() if start_ms > at_ms + SOON_MS
        }
        names = {gang.namespaced_name: start_ms for uid, start_ms in starts.items() if (gang := queue.gang(uid))}
        moved = [uid for uid in {**self._starts, **starts} if self._starts.get(uid) != starts.get(uid)]
        is_other = names != self._starts_by_name
        self._starts, self._starts_by_name = starts, names
        head = queue.head() if queue.is_strict else None
        has_moved = (head and head.uid) != (self._head and self._head.uid)
        self._head = head
        if is_other:
            moved += [one.uid for one in queue.held]
        for uid in [gang.uid for gang in queue.gangs()] if has_moved else moved:
            self._touch(queue.gang(uid))
        for gang in self._of_queues.news(queue):
            self._touch(gang)
        groups = self._groups(at_ms)
        self._known = {group: known for group, known in self._known.items() if group in groups}
        self._todo = deque(groups.items())

    def advance(self, groups_max: int) -> None:
        """Judge some of the classes that the pass has left, those before the others that were judged longer ago.

        Args:
            groups_max: How many at most.
        """
        scheduler = self._scheduler
        self._reset_for_new_scorer()
        for _ in range(min(groups_max, len(self._todo))):
            group, uid = self._todo.popleft()
            gang = scheduler.queue.gang(uid)
            if gang is None or gang.fresh or gang.wait_key != group[0]:
                continue
            known = self._known.get(group)
            is_old = known is None or known.at_ms <= self._at_ms - _NEW_MS
            if is_old and not is_heavy(group[0].request_class, len(scheduler.state.table)):  # that would hold up rounds
                self._judge_group(group, gang)
            self._tell(group)

    def adopt(self, record: Round) -> None:
        """Take over the refusals of a record that was just adopted, for the other gangs of their classes too."""
        self._reset_for_new_scorer()
        for verdict in record.verdicts:
            refusal = verdict.refusal
            gang = self._scheduler.queue.gang(verdict.uid)
            if refusal is None or gang is None or verdict.final:
                continue
            if refusal.start_ms and refusal.code != RESERVED:
                self._starts[gang.uid] = refusal.start_ms
            if refusal.code not in _OF_GANG and not refusal.missing_shards:
                self._note(self._group(gang, record.at_ms), gang, refusal, record.at_ms)

    def take(self, jobs_max: int) -> list[JobKey]:
        """Jobs whose reason changed, those first whose reason has been another for longest.

        Args:
            jobs_max: How many at most.
        """
        found = list(itertools.islice(self._changed, jobs_max))
        for key in found:
            del self._changed[key]
        return found

    def of(self, uid: str, recorded: Refusal, at_ms: int) -> Reason:
        """Why a gang waits.

        Args:
            uid: The gang.
            recorded: Its refusal in the ledger.
            at_ms: The time.
        """
        queue = self._scheduler.queue
        gang = queue.gang(uid)
        if gang is None or gang.fresh or recorded.missing_shards or recorded.code in _KEPT or recorded.rule == QUEUES:
            return self._given(uid, gang, recorded, at_ms)
        ahead = self._ahead(gang)
        if ahead is not None:
            return Reason(ahead, sentence(ahead))
        known = self._known.get(self._group(gang, at_ms))
        if known is None:
            return self._named(gang, _as_recorded(recorded, at_ms).refusal)
        if recorded.code == RESERVED and (known.room is not None or queue.is_held(uid)):
            start_ms = self._starts_by_name.get(recorded.ahead, 0)
            held = msgspec.structs.replace(recorded, start_ms=start_ms)
            return self._named(gang, held if known.room is None else with_reservation(known.room, held))
        refusal, task, start_ms = known.refusal, gang.tasks[known.index], self._starts.get(uid, 0)
        start_ms = start_ms if start_ms > at_ms + SOON_MS else 0
        if (refusal.task, refusal.start_ms) != (task, start_ms):
            refusal = msgspec.structs.replace(refusal, task=task, start_ms=start_ms)
        words = self._words(known)
        return Reason(refusal, with_start(words, refusal) if start_ms else words)

    def _given(self, uid: str, gang: Gang | None, recorded: Refusal, at_ms: int) -> Reason:
        """Reason of a gang that is not judged with its class."""
        is_paused = bool(recorded.retry_ms) and (gang is None or gang.fresh)
        if gang is None and is_paused:
            gang = self._paused(uid)
        if gang is not None and recorded.queue is not None:
            refusal = self._of_queues.of(gang)
            return Reason(recorded, _TURN) if refusal is None else Reason(refusal, sentence(refusal))
        said = _as_recorded(recorded, at_ms)
        if gang is not None and is_paused and recorded.code not in _KEPT:
            return self._named(gang, said.refusal)
        return said

    def _paused(self, uid: str) -> Gang | None:
        """A gang that was refused and leaves the queue for a while; None if its job is not known any more."""
        state = self._scheduler.state
        job = state.jobs.get(state.name_of.get(uid, ("", "")))
        return None if job is None or job.request is None else self._scheduler.gang(job, job.request, 1)

    def _named(self, gang: Gang, refusal: Refusal) -> Reason:
        return Reason(refusal, self._namer.sentence(refusal, gang))

    def _ahead(self, gang: Gang) -> Refusal | None:
        """Refusal of a gang that waits behind the head of the queue; None for any other."""
        head, queue = self._head, self._scheduler.queue
        if head is None or gang.order <= head.order or head.uid not in queue or queue.waits_aside(gang.wait_key):
            return None
        return behind(gang, head)

    def _groups(self, at_ms: int) -> dict[_Group, str]:
        """Groups of gangs that had a verdict, those first that were never judged, with a gang of each."""
        terms = self._scheduler.rules.terms(self._scheduler.state, at_ms)
        found: dict[_Group, str] = {}
        for gang in self._scheduler.queue.representatives(one_each=terms.are_alike):
            found.setdefault((gang.wait_key, terms.last_ms(gang)), gang.uid)
        return found

    def _group(self, gang: Gang, at_ms: int) -> _Group:
        if not self._scheduler.state.table.drains:
            return gang.wait_key, 0
        return gang.wait_key, self._scheduler.rules.terms(self._scheduler.state, at_ms).last_ms(gang)

    def _reset_for_new_scorer(self) -> None:
        """Begin anew where an epoch has brought another queue."""
        scheduler = self._scheduler
        if self._judge.scorer is not scheduler.scorer:
            self._known.clear()
            self._starts.clear()
            self._starts_by_name.clear()
            self._todo.clear()
            self._namer = Namer(scheduler.scorer)
        if self._judge.scorer is not scheduler.scorer or self._judge.applied != scheduler.state.applied:
            self._judge = _Judge(scheduler.state, scheduler.scorer, scheduler.state.applied)

    def _judge_group(self, group: _Group, gang: Gang) -> None:
        """Judge a group by one of its gangs."""
        state = self._scheduler.state
        verdict = self._judge.verdict(self._scheduler.rules.terms(state, state.fold.at_ms).applied(gang))
        known = self._known.get(group)
        if verdict is None or (verdict.refusal is not None and verdict.refusal.code in _KEPT):
            return
        refusal = verdict.refusal
        if refusal is not None and refusal.code != RESERVED:
            self._note(group, gang, refusal, self._at_ms)
            return
        room = msgspec.structs.replace(refusal or Refusal(code="no-room"), code="no-room", ahead="")
        if known is None:
            known = self._known[group] = _Known(room, gang, words=_TURN)
        elif known.room is not None:  # not at first: the next round may place it
            known.words = _TURN
        known.room, known.at_ms = room, self._at_ms

    def _note(self, group: _Group, gang: Gang, refusal: Refusal, at_ms: int) -> None:
        """Note why a group waits."""
        before = self._known.get(group)
        plain = msgspec.structs.replace(refusal, start_ms=0) if refusal.start_ms else refusal
        index = gang.tasks.index(refusal.task) if refusal.task in gang.tasks else 0
        told = before.told if before is not None else ("", None)
        self._known[group] = _Known(plain, gang, index, at_ms=at_ms, told=told)

    def _words(self, known: _Known) -> str:
        """Why a group waits, in a sentence; made when it is first read, for all gangs of the group."""
        if not known.words:
            known.words = self._namer.sentence(known.refusal, known.gang)
        return known.words

    def _tell(self, group: _Group) -> None:
        """Touch the gangs of a group if there is news since they were told why they wait."""
        known = self._known.get(group)
        if known is None or known.told == (self._words(known), known.room):
            return
        known.told = known.words, known.room
        for one in self._scheduler.queue.of_class(group[0]):
            if not one.fresh:
                self._touch(one)

    def _touch(self, gang: Gang | None) -> None:
        if gang is not None:
            self._changed[gang.namespace, gang.name] = None


def _as_recorded(recorded: Refusal, at_ms: int) -> Reason:
    """A refusal as it was given, without a start that has passed."""
    refusal = without_past(recorded, at_ms + SOON_MS)
    return Reason(refusal, sentence(refusal))


def reason_of(state: State, scorer: Scorer, gang: Gang, said: Refusal, *, at_ms: int) -> Reason:
    """Why one gang waits, for a reader without the queue of the cell.

    Args:
        state: The cell.
        scorer: Scoring on it.
        gang: The gang, as :meth:`GangTerms.applied` gives it.
        said: What its status says, or its last refusal; what follows from the queue is taken from it.
        at_ms: The time.
    """
    refusal = said
    if said.queue is not None:
        refusal = queue_refusal(state, gang) or said
    if said.code not in _OF_GANG and not said.missing_shards:
        verdict = _Judge(state, scorer, state.applied).verdict(gang)
        found = verdict.refusal if verdict is not None else None
        if found is not None and found.code not in _OF_GANG:
            refusal = msgspec.structs.replace(found, start_ms=said.start_ms)
    refusal = _as_recorded(refusal, at_ms).refusal
    return Reason(refusal, Namer(scorer).sentence(refusal, gang))


class _Judge:
    """Decides single gangs, each as if it were alone; nothing starts.

    Args:
        state: The cell.
        scorer: Scoring on it.
        applied: ``state.applied``; offers are made once while it is the same.
    """

    def __init__(self, state: State, scorer: Scorer, applied: int) -> None:
        self._state = state
        self.scorer = scorer
        self.applied = applied
        self._views: dict[Shape, tuple[Candidates, int]] = {}
        """Candidates of a shape, and how many were asked for."""
        self._held = 0
        """Candidates in ``_views``, with marks of nodes as if they were some."""

    def verdict(self, gang: Gang) -> Verdict | None:
        """Verdict on a gang; None if it cannot be decided. A gang with room is refused as ``reserved``, or placed."""
        state, views = self._state, self._views
        most = min(len(state.table), _CANDIDATES_MAX // max(len(gang.request_class), 1))
        needs = candidate_counts([gang], full=state.constraints.full_nodes)
        counts = {shape: 0 if shape.needs_marks else max(most, need) for shape, need in needs.items()}
        if self._held > _CANDIDATES_MAX:
            views.clear()
            self._held = 0
        for shape, count in counts.items():
            if shape not in views or views[shape][1] < count:
                found = self.scorer.candidates(shape, count)
                views[shape] = found, count
                self._held += len(found.rows) + len(state.table) // _MARKS_OF_A_CANDIDATE
        chooser = PlacementRound(
            self.scorer,
            {shape: views[shape][0] for shape in counts},
            {shape: views[shape][1] for shape in counts},
            indexes=state.indexes,
            colocation=state.colocation,
            rules=_NO_START,
            constraints=state.constraints.view,
        )

        def decided() -> Verdict | None:
            try:
                return next(iter(chooser.choose([gang]).verdicts), None)
            except NeedMoreError:
                return None

        return guarded(decided, lambda _: None)


class _NoStart(RuleRound):
    """A rule under which no gang with chips starts."""

    lane = "chips"

    def allow(self, entry: Entry, placement: Placement) -> Refusal | None:  # noqa: ARG002  # the port has it
        """No gang starts."""
        return Refusal(code=RESERVED)


_NO_START: Final = Rules([_NoStart()])
