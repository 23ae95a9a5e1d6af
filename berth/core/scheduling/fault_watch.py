"""Fault watch: which gangs to examine for faults in a turn, and when again although no fact about them changes."""

from collections.abc import Iterable

from berth.core.changes import Changes
from berth.core.faults.examination import Faulty, examine_faults
from berth.core.faults.storms import HeldBack, restarts, within_limits
from berth.core.state.cell import State
from berth.core.state.internal_errors import SetAside


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
        self._wanting: dict[str, None] = {}
        """Gangs (uid) that had no place, or had to wait for others: examined when nodes gain capacity."""
        self.held_back: list[HeldBack] = []
        """Gangs that the last examination kept from restarting, and why."""

    @property
    def next_due_ms(self) -> int:
        """First time at which a gang is to be examined; 0 without."""
        return min(self._due_ms.values(), default=0)

    def look(self, gangs: Iterable[str], changes: Changes, *, at_ms: int) -> tuple[list[Faulty], list[SetAside]]:
        """Gangs that need a step of a recovery now, and errors.

        Args:
            gangs: Gangs (uid) whose facts or records changed.
            changes: What the turn consumes.
            at_ms: The moment.
        """
        if not self._state.fold.settings.recoveries:
            self._due_ms.clear()
            self._wanting.clear()
            return [], []
        uids = dict.fromkeys(gangs)
        uids.update((uid, None) for uid, due_ms in self._due_ms.items() if due_ms <= at_ms)
        if changes.capacity_gained or changes.chips_returned or self.held_back:
            uids.update(self._wanting)
        faulty, set_aside = self._examined(uids, at_ms)
        others = self._wanting.keys() - uids.keys() if any(map(restarts, faulty)) else ()
        if others:  # limits count all gangs that would restart, whatever made each of them be examined
            more, more_set_aside = self._examined(sorted(others), at_ms)
            faulty = sorted([*faulty, *more], key=lambda one: one.holding.uid)
            set_aside = [*set_aside, *more_set_aside]
        self._wanting.update((one.holding.uid, None) for one in faulty)
        kept, self.held_back = within_limits(self._state, faulty, at_ms=at_ms)
        return kept, set_aside

    def _examined(self, uids: Iterable[str], at_ms: int) -> tuple[list[Faulty], list[SetAside]]:
        """Examine gangs (uid): those that need a step, and errors."""
        found = examine_faults(self._state, uids, at_ms=at_ms)
        for uid in uids:
            self._due_ms.pop(uid, None)
            self._wanting.pop(uid, None)
        self._due_ms.update(found.again_ms)
        return found.faulty, found.set_aside
