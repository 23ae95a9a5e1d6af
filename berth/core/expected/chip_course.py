"""Free chips over the time, counted: at which moments a gang may have room at all.

It costs little beside a plan. What ends gives back its chips and what is reserved takes its own, wherever they are, so
that a moment at which the sum does not suffice for all is none at which a plan succeeds.
"""

import bisect
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from berth.core.gangs import Gang, chips_of
from berth.core.placement.projected_state import ResourceFootprint
from berth.core.scheduling.reservations import FOREVER_MS, AvailabilityProfile, Reservation
from berth.core.state.cell import State


class ChipCourse:
    """Counts the free chips of each resource.

    Args:
        state: The cell.
        profile: What ends when.
        at_ms: The moment.
    """

    def __init__(self, state: State, profile: AvailabilityProfile, at_ms: int) -> None:
        self._state = state
        self._profile = profile
        self._at_ms = at_ms
        self._ends = sorted({one.end_ms for one in profile.occupants if one.end_ms < FOREVER_MS})
        self._known: dict[str, tuple[Sequence[int], Sequence[int]]] = {}

    def moments(self, gang: Gang, run_ms: int, others: Sequence[Reservation], from_ms: int) -> list[int]:
        """Moments from one on at which something ends, or all of them begins, and the chips suffice for all, ascending.

        Args:
            gang: The gang.
            run_ms: How long it runs.
            others: Reservations that stand.
            from_ms: The first moment.
        """
        first_ms = max(from_ms, self._at_ms)
        ends = {one.end_ms for one in others if first_ms < one.end_ms < FOREVER_MS}
        starts = {one.start_ms for one in others if first_ms < one.start_ms}
        later = self._ends[bisect.bisect_right(self._ends, first_ms) :]
        moments = sorted({first_ms, *later, *ends})
        need = chips_of(gang.request_class)
        if not need:
            return moments
        times = np.array(sorted(starts.union(moments)), np.int64)
        ended, given_back = self._of(gang.resource)
        free = np.array(given_back, np.int64)[np.searchsorted(np.array(ended, np.int64), times, side="right")]
        for one in others:
            if one.gang.resource == gang.resource:
                free[(times >= one.start_ms) & (times < one.end_ms)] -= _chips(one.footprint)
        short = times[free < need].tolist()
        found: list[int] = []
        for moment in moments:
            index = bisect.bisect_left(short, moment)
            if index == len(short) or short[index] >= moment + run_ms:
                found.append(moment)
        return found

    def _of(self, resource: str) -> tuple[Sequence[int], Sequence[int]]:
        """Ends, ascending, and the chips that are free before the first one and after each."""
        found = self._known.get(resource)
        if found is None:
            ending = [one for one in self._profile.occupants if one.end_ms < FOREVER_MS]
            chips = (_chips(one.footprint) for one in ending)  # of any resource: no fewer than of this one
            sums = list(itertools.accumulate(chips, initial=_free(self._state, resource)))
            found = self._known[resource] = ([one.end_ms for one in ending], sums)
        return found


def _chips(footprint: ResourceFootprint) -> int:
    return int(np.bitwise_count(footprint.masks).sum())


def _free(state: State, resource: str) -> int:
    """Free chips of a resource."""
    table = state.table
    rows = table.view()
    may = _flags(key.resource == resource for key in table.classes)
    return int(np.bitwise_count(table.free[rows])[may[table.node_class[rows]]].sum())


def _flags(flags: Iterable[bool]) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    return np.array([*flags, False], np.bool_)
