"""Admission of PodGroups by their queues: those that wait are asked in the order in which their gangs would be placed.

A decision depends on the state alone, so it is looked for only after something has changed on which it depends. Where
queues are not in force nothing is decided.
"""

import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Final

from berth.core.changes import JobKey
from berth.core.queues.admission import Minima, queue_refusal
from berth.core.queues.admission_turns import Counted, NoTurns, Outcome, Place, admitted
from berth.core.queues.shares import Shares
from berth.core.queues.tree import Tree
from berth.core.queues.turns import LeafTurns
from berth.core.requests.gangs import has_turns
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.rules.search_ground import displaceable, surplus_charges
from berth.core.state.cell import State
from berth.schemas.ledger import Admission
from berth.schemas.refusal import QueueRefusal

DECISIONS_MAX: Final = 1_000
"""Most decisions of one round, and ..."""
_BYTES_MAX: Final = 200_000
"""... bytes of them in its record, unless one alone is larger; the others follow."""
_BYTES_EACH: Final = 100
"""Bytes of a decision beside names."""
_Stamp = tuple[int, int, int, int]


class Admissions:
    """Decides which PodGroups are admitted.

    Args:
        state: The cell.
        queue: Gangs that wait: their PodGroups were admitted.
    """

    def __init__(self, state: State, queue: Queue) -> None:
        self._state = state
        self._queue = queue
        self._jobs = 0
        """How often jobs have changed."""
        self._settled: _Stamp | None = None
        """What all decisions were made on."""
        self._known: tuple[_Stamp, Outcome] | None = None
        """The last outcome, and what it was found on: it holds until all are told why they wait."""

    def note_jobs(self) -> None:
        """Note that jobs have changed."""
        self._jobs += 1

    @property
    def is_due(self) -> bool:
        """Whether something may have to be decided."""
        return bool(self._state.waiting_groups) and self._settled != self._stamp()

    def take_back(self) -> None:
        """Decide again: what was decided last is not stored."""
        self._settled = None

    def due(self) -> list[Admission]:
        """Decisions for the next record: PodGroups that are taken back, then those that are admitted, then refused."""
        if not self.is_due:
            return []
        stamp, shares = self._stamp(), self._state.queues.shares()
        found = [] if shares is None else list(_bounded(self._decisions(shares)))
        self._settled = stamp if not found else None  # the record changes what was decided on, and there may be more
        return found

    def _stamp(self) -> _Stamp:
        state = self._state
        return (state.waiting_groups.version, state.queues.version, state.nodes_seq, self._jobs)

    def _decisions(self, shares: Shares) -> Iterator[Admission]:
        groups = self._state.waiting_groups
        back = dict(_shut(shares.tree, groups.counted.items()))
        yield from (groups.admission(key, back[key]) for key in sorted(back))
        yield from (groups.admission(key, None) for key in groups.unconfirmed() if key not in back)
        if not groups.classes:
            return
        yield from self._of_requested(shares.tree)
        stamp = (groups.standing, *self._stamp()[1:])
        if self._known is None or self._known[0] != stamp:
            self._known = (stamp, self._outcome(shares, back))
        outcome = self._known[1]
        yield from (groups.admission(_key_of(place), None) for place, _ in outcome.admitted)
        for place, why in sorted(groups.told_otherwise(outcome.refused), key=operator.itemgetter(0)):
            if not self._is_requested(_key_of(place)):
                yield groups.admission(_key_of(place), why)

    def _of_requested(self, tree: Tree) -> Iterator[Admission]:
        """Decisions on those that wait although their pods are requested: their gangs count, they only need a queue."""
        groups = self._state.waiting_groups
        keys = (groups.requested_as((gang.namespace, gang.name)) for gang in self._queue.gangs())
        for key in sorted(key for key in keys if key is not None and key not in groups.counted):
            why = queue_refusal(tree, groups.queue_of(key), key[0])
            if groups.is_news(key, why):
                yield groups.admission(key, why)

    def _outcome(self, shares: Shares, back: dict[JobKey, QueueRefusal]) -> Outcome:
        state, tree = self._state, shares.tree
        usage = state.queues.usage(tree)
        counted_usage = usage.fork()
        gangs = self._queue.gangs()
        for gang in gangs:
            state.queues.charge_held(counted_usage, gang.uid, times=-1)
        for one in surplus_charges(state):
            counted_usage.charge(one.queue, one.charge, namespace=one.namespace, times=-1, pods=0)
        minima = Minima(shares, counted_usage, lambda: displaceable(state))
        by_queue, groups = has_turns(state.fold.settings), state.waiting_groups
        waiting = [
            Counted((gang.order[0], 0, gang.order[1], gang.uid, ""), gang.queue, gang.namespace, gang.charge, gang.pods)
            for gang in gangs
        ]
        waiting += (
            one
            for key, one in groups.counted.items()
            if key not in back and not (self._is_requested(key) or self._is_rejected(key))
        )
        asking = {
            asks: (place for place in places if not self._is_requested(_key_of(place)))
            for asks, places in groups.classes.items()
        }
        turns = LeafTurns(shares, usage) if by_queue else NoTurns()
        return admitted(tree, minima, turns, waiting, asking, by_queue=by_queue, most=DECISIONS_MAX)

    def _is_requested(self, key: JobKey) -> bool:
        """Whether the pods of a PodGroup are requested: its gang counts, it does not."""
        job = self._state.jobs.get(self._state.waiting_groups.request_of(key))
        if job is None or job.state != "accepted":
            return False
        gang = self._state.fold.gangs.get(job.uid)
        return gang is None or not gang.is_over

    def _is_rejected(self, key: JobKey) -> bool:
        """Whether the request of the pods of a PodGroup is rejected: nothing starts as it is, and it keeps no room."""
        job = self._state.jobs.get(self._state.waiting_groups.request_of(key))
        return job is not None and job.state == "rejected"


def _key_of(place: Place) -> JobKey:
    return place[3], place[4]


def _shut(tree: Tree, counted: Iterable[tuple[JobKey, Counted]]) -> Iterator[tuple[JobKey, QueueRefusal]]:
    """Those that are admitted and whose queue lets nobody in any more."""
    known: dict[tuple[str, str], QueueRefusal | None] = {}
    for key, one in counted:
        about = (one.queue, one.namespace)
        if about not in known:
            known[about] = queue_refusal(tree, *about)
        refusal = known[about]
        if refusal is not None:
            yield key, refusal


def _bounded(decisions: Iterable[Admission]) -> Iterator[Admission]:
    """The first decisions, as many as a record takes."""
    size = 0
    for one in itertools.islice(decisions, DECISIONS_MAX):
        refusal = one.refusal
        texts = [one.namespace, one.name, one.uid, one.queue, *one.minimum]
        if refusal is not None:
            texts += [refusal.queue, refusal.reason, refusal.dimension, refusal.namespace, *refusal.others]
        before, size = size, size + _BYTES_EACH + sum(len(text.encode()) for text in texts)
        if before and size > _BYTES_MAX:
            return
        yield one
