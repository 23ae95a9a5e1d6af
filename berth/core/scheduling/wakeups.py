"""Wake-ups: the sleeping classes that a turn wakes, and the held gangs that it releases, by what changed since."""

import functools
import operator
from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.core.changes import Changes
from berth.core.errors import guarded
from berth.core.gangs import ClassKey, Gang, WaitKey
from berth.core.placement.round_refusals import is_larger_than_cluster
from berth.core.placement.scoring import Scorer
from berth.core.scheduling.constraint_wakeups import ConstraintsEased, is_eased
from berth.core.scheduling.gang_class import Released, Sleep, has_queues
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.quotas import refused_now
from berth.core.scheduling.wake_rules import may_displace_later, may_fit, pods_bear_on_each_other
from berth.core.state.cell import State
from berth.core.topologies.registry import topology_of
from berth.products.catalogue import FORMS
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason

_ROWS_ONE_BY_ONE: Final = 32
"""Up to so many rows are asked one by one whether they help a class."""


class Woken(NamedTuple):
    """What a turn woke and released."""

    classes: Sequence[tuple[WaitKey, Sleep]] = ()
    """Classes that were woken, and how they slept."""
    released: Sequence[Released] = ()
    """Gangs that were released, and how they were held."""


class Wakeups:
    """Wakes classes and releases gangs of one queue.

    Args:
        state: The cell.
        queue: The queue.
        scorer: Scoring under the settings of the epoch.
    """

    def __init__(self, state: State, queue: Queue, scorer: Scorer) -> None:
        self._state = state
        self._queue = queue
        self._scorer = scorer

    def wake(self, changes: Changes) -> Woken:
        """Wake the classes that the changes can help, and those whose time has come; release held gangs likewise."""
        queue, time_ms = self._queue, self._state.time_ms
        classes: list[tuple[WaitKey, Sleep]] = []
        may_help = (
            changes.capacity_gained
            or changes.chips_taken
            or changes.leaf_opened
            or changes.nodes_changed
            or is_eased(changes)
        )
        if may_help or changes.chips_returned or queue.waits_for_time:
            eased = ConstraintsEased(self._state, queue, changes)
            helps = _Help(self._scorer, queue, changes, eased)
            classes = queue.wake(helps, time_ms=time_ms)
        classes += self._wake_heads()
        is_news = (
            bool(classes or changes.capacity_gained)
            or changes.leaf_opened
            or changes.queue_unblocked
            or changes.capacity_lost
            or changes.nodes_changed
            or is_eased(changes)
            or has_queues(changes)
        )
        released: Sequence[Released] = ()
        if queue.is_holding:
            released = queue.release(changes.woken, is_news=is_news, time_ms=time_ms)
        return Woken(classes, released)

    def take_back(self, woken: Woken) -> None:
        """Put classes back to sleep and hold gangs again, as they were before :meth:`wake`."""
        for key, sleep in woken.classes:
            self._queue.restore_sleep(key, sleep)
        for one in woken.released:
            self._queue.hold_again(one)

    def _wake_heads(self) -> list[tuple[WaitKey, Sleep]]:
        """In strict order, wake the first gang if it needs more than the cluster has, or its queue does not let it in.

        Once refused for that, it blocks no other.

        A gang that is tried again when its time has come is left until then: while shards are missing its size cannot
        be refused. Not so one that waits for gangs that may end for it by then. Without a change, too, the head may
        have changed: by time alone.
        """
        woken: list[tuple[WaitKey, Sleep]] = []
        while self._queue.is_strict and (head := self._queue.head()) is not None:
            is_timed = self._queue.sleep_of(head.wait_key).retry_at_ms > 0 and not self._waits_for_others(head)
            is_quiet = is_timed or not self._is_larger_than_cluster(head.request_class)
            if is_quiet and refused_now(self._state, head) is None:
                break
            woken += self._queue.wake(functools.partial(operator.eq, head.wait_key), time_ms=0)
        return woken

    def _waits_for_others(self, gang: Gang) -> bool:
        """Whether a gang is tried again only because others may end for it by then."""
        record = self._state.fold.gangs.get(gang.uid)
        refusal = record.refusal if record is not None else None
        return refusal is not None and may_displace_later(refusal, self._state.fold.settings)

    def _is_larger_than_cluster(self, request_class: ClassKey) -> bool:
        return guarded(lambda: is_larger_than_cluster(self._scorer, request_class), lambda _: False)


class _Help:
    """Whether changes can help a class: a row that changed now takes one of its pods, or leaves are open to more jobs.

    If scoring a row fails, the class is woken and then set aside, unless it is set aside already and has a retry time.

    Args:
        scorer: Scoring.
        queue: The queue.
        changes: The changes.
        eased: What they are for constraints.
    """

    def __init__(self, scorer: Scorer, queue: Queue, changes: Changes, eased: ConstraintsEased) -> None:
        self._scorer = scorer
        self._queue = queue
        self._eased = eased
        self._gained = list({**changes.capacity_gained, **eased.rows})
        self._taken = changes.chips_taken
        self._for_shares = [*self._gained, *changes.chips_returned, *self._taken]
        """Rows that may help pods that share chips."""
        self._most = functools.reduce(operator.or_, changes.chips_taken.values(), 0)
        """Chips that were free on any row where now fewer are."""
        self._leaf_opened, self._nodes_changed = changes.leaf_opened, changes.nodes_changed

    def __call__(self, key: WaitKey) -> bool:
        request_class = key.request_class
        if self._leaf_opened and any(topology_of(shape.demand).heeds_jobs for shape, _ in request_class):
            return True
        if self._eased.helps(key) and may_fit(self._scorer, request_class):
            return True
        sleep = self._queue.sleep_of(key)
        is_aside = sleep.never and sleep.retry_at_ms > 0
        leads_elsewhere = sleep.by_any_change and self._leads_elsewhere(request_class, otherwise=not is_aside)
        if leads_elsewhere and self._is_large_enough(sleep, request_class):
            return True
        for shape, _ in request_class:
            rows = self._gained if shape.share is None else self._for_shares
            if shape.form and FORMS[shape.form].is_beyond(self._most):
                taken = self._taken.items()
                rows = rows + [row for row, before in taken if FORMS[shape.form].is_beyond(before)]
            if self._takes(shape, rows, otherwise=not is_aside):
                return True
        return False

    def _leads_elsewhere(self, key: ClassKey, *, otherwise: bool) -> bool:
        """Whether pods of a class may go elsewhere than before, for the better or for the worse.

        ``otherwise`` for rows that cannot be scored.
        """
        if self._nodes_changed:
            return True
        if not pods_bear_on_each_other(key):
            return False
        if self._eased.redirects(key):
            return True
        rows = self._eased.rows_closed(key)
        return bool(rows) and any(self._takes(shape, rows, otherwise=otherwise) for shape, _ in key)

    def _is_large_enough(self, sleep: Sleep, key: ClassKey) -> bool:
        """Whether a class that any change may help is to be tried: there is room, or the cluster has grown to its size.

        The latter counts without room: from then on the class waits for its turn, and others no longer pass it.
        """
        if not sleep.never or sleep.retry_at_ms > 0:
            return may_fit(self._scorer, key)
        return guarded(lambda: not is_larger_than_cluster(self._scorer, key), lambda _: False)

    def _takes(self, shape: Shape, rows: list[int], *, otherwise: bool) -> bool:
        """Whether a row takes a pod of a shape; ``otherwise`` for a row that cannot be scored."""
        scorer = self._scorer

        def one_by_one(_: Exception | None = None) -> bool:
            return any(guarded(functools.partial(self._takes_on, shape, row), lambda _: otherwise) for row in rows)

        if len(rows) <= _ROWS_ONE_BY_ONE:
            return one_by_one()
        return guarded(lambda: bool((scorer.evaluate(shape)[0][rows] == NodeReason.FITS).any()), one_by_one)

    def _takes_on(self, shape: Shape, row: int) -> bool:
        return self._scorer.evaluate_one(shape, row, self._scorer.row_state(row))[0] == NodeReason.FITS
