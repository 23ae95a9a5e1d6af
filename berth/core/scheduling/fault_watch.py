"""Fault watch: which gangs to examine for faults in a turn, and when again although no fact about them changes."""

import functools
import operator
from collections.abc import Iterable

from berth.core.changes import Changes
from berth.core.faults.examination import Faulty, examine_faults
from berth.core.faults.storms import HeldBack, restarts, within_limits
from berth.core.gangs import Gang
from berth.core.scheduling.constraint_wakeups import is_eased
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside
from berth.core.topologies.registry import topology_of
from berth.products.catalogue import FORMS


class FaultWatch:
    """Gangs with faults, as turns found them.

    It only saves examinations: what is decided depends on the state and the moment. Without what it remembers, as in a
    reader of a snapshot, all gangs are examined.

    Args:
        state: The cell.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._due_ms: dict[str, int] = {}
        """When to examine gangs (uid) although nothing changes."""
        self._wanting: dict[str, Gang] = {}
        """Gangs by uid that had no place, or had to wait for others: examined after changes that may help them."""
        self._unheard: dict[str, int] = {}
        """Gangs (uid) that had no place while shards did not answer: examined in every turn, and when to open one."""
        self.held_back: list[HeldBack] = []
        """Gangs that the last examination kept from restarting, and why."""

    @property
    def next_due_ms(self) -> int:
        """First time at which a gang is to be examined; 0 without."""
        return min([*self._due_ms.values(), *self._unheard.values()], default=0)

    def note_unheard(self, gangs: Iterable[str], retry_ms: int) -> None:
        """Note gangs (uid) that were tried while shards did not answer, and when to try them again at the latest."""
        self._unheard.update(dict.fromkeys(gangs, retry_ms))

    def due(self, at_ms: int) -> list[str]:
        """Gangs (uid) to be examined at a moment although nothing changes."""
        return [uid for uid, due_ms in self._due_ms.items() if due_ms <= at_ms]

    def find_faulty(self, gangs: Iterable[str], changes: Changes, *, at_ms: int) -> tuple[list[Faulty], list[SetAside]]:
        """Gangs that need a step of a recovery now, and errors.

        Args:
            gangs: Gangs (uid) whose facts or records changed.
            changes: What the turn consumes.
            at_ms: The moment.
        """
        gangs = list(gangs)
        uids = dict.fromkeys(gangs)
        uids.update(dict.fromkeys([*self.due(at_ms), *self._unheard]))
        if self._wanting:
            everybody = bool(self.held_back) or self._helps_all(changes) or any(map(self._restarts, gangs))
            uids.update((uid, None) for uid, gang in self._wanting.items() if everybody or _helps(changes, gang))
        faulty, set_aside = self._examined(uids, at_ms)
        others = self._wanting.keys() - uids.keys() if any(map(restarts, faulty)) else ()
        if others:  # limits count all gangs that would restart, whatever made each of them be examined
            more, more_set_aside = self._examined(sorted(others), at_ms)
            faulty = sorted([*faulty, *more], key=lambda one: one.gang.order)
            set_aside = [*set_aside, *more_set_aside]
        self._wanting.update((one.holding.uid, one.gang) for one in faulty)
        kept, self.held_back = within_limits(self._state, faulty, at_ms=at_ms)
        return kept, set_aside

    def _restarts(self, uid: str) -> bool:
        """Whether a gang restarts as a whole: limits may keep others back from then on."""
        gang = self._state.fold.gangs.get(uid)
        holding = self._state.fold.holdings.get((uid, gang.attempt)) if gang is not None else None
        return holding is not None and holding.ending == "fault"

    def _examined(self, uids: Iterable[str], at_ms: int) -> tuple[list[Faulty], list[SetAside]]:
        """Examine gangs (uid): those that need a step, and errors."""
        found = examine_faults(self._state, uids, at_ms=at_ms)
        for uid in uids:
            self._due_ms.pop(uid, None)
            self._wanting.pop(uid, None)
            self._unheard.pop(uid, None)
        self._due_ms.update(found.again_ms)
        return found.faulty, found.set_aside

    def _helps_all(self, changes: Changes) -> bool:
        """Whether changes may help any gang."""
        is_more = bool(changes.capacity_gained or changes.chips_returned)
        return is_more or is_eased(changes)


def _helps(changes: Changes, gang: Gang) -> bool:
    """Whether changes by which no node takes more pods may help a gang.

    Leaf switches may be open to more jobs. Fewer free nodes may change a plan of blocks, and leave other nodes to pods
    of several shapes or with constraints. A node with more chips than a product form has may take its pods when some of
    them are taken, and so may one whose chips are shared.
    """
    shapes = [shape for shape, _ in gang.request_class]
    if changes.leaf_opened and any(topology_of(shape.demand).heeds_jobs for shape in shapes):
        return True
    if not changes.nodes_changed:
        return False
    if len(shapes) > 1 or any(
        shape.profile is not None or topology_of(shape.demand).heeds_fewer_nodes for shape in shapes
    ):
        return True
    if not changes.chips_taken:
        return False
    most = functools.reduce(operator.or_, changes.chips_taken.values(), 0)
    return any(shape.share is not None or (shape.form and FORMS[shape.form].is_beyond(most)) for shape in shapes)
