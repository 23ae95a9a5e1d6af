"""Drained nodes and the run times of gangs: a gang takes no node that is drained before it is expected to end.

Nodes have the moment from which on they are drained; a shape has the last such moment before its pods are expected to
end (``Shape.drained_ms``). Both are numbers, so shards that know no run times answer alike. Waiting gangs of one class
may have different run times: the queue has their shapes without the moment, and a turn adds it.
"""

import bisect

import msgspec

from berth.core.gangs import ClassKey, Gang
from berth.core.scheduling.reservations import run_ms_of
from berth.core.state.cell import State


class GangTerms:
    """On which terms gangs of one class are decided at one moment; these are the same for all.

    Attributes:
        are_alike: All gangs of a class have the same terms.
    """

    are_alike: bool = True

    def last_ms(self, gang: Gang) -> int:  # noqa: ARG002  # terms that differ use it; so below
        """What differs: the terms with the least number leave a gang the most nodes."""
        return 0

    def next_ms(self, gang: Gang) -> int:  # noqa: ARG002
        """When the terms of a gang change if it still waits then; 0 for never."""
        return 0

    def applied(self, gang: Gang) -> Gang:
        """A gang with its terms."""
        return gang


class DrainedGangs(GangTerms):
    """Last drains that count for gangs at one moment.

    Args:
        state: The cell.
        at_ms: The moment.
    """

    def __init__(self, state: State, at_ms: int) -> None:
        self._state = state
        self._at_ms = at_ms
        self._times = state.table.drains.times
        self._begun = bisect.bisect_right(self._times, at_ms)
        """How many of the moments have come."""
        self.are_alike = self._begun == len(self._times)  # none is planned
        self._classes: dict[tuple[ClassKey, int], ClassKey] = {}

    def last_ms(self, gang: Gang) -> int:
        """Last moment of a drain before a gang is expected to end if it starts now; 0 without."""
        upto = self._begun if self.are_alike else self._upto(self._run_ms(gang))
        return self._times[upto - 1] if upto else 0

    def next_ms(self, gang: Gang) -> int:
        """When a further drain counts for a gang that still waits then; 0 for never."""
        if self.are_alike:
            return 0
        run_ms = self._run_ms(gang)
        upto = self._upto(run_ms)
        return max(self._times[upto] - run_ms, self._at_ms) + 1 if upto < len(self._times) else 0

    def _run_ms(self, gang: Gang) -> int:
        return run_ms_of(self._state, gang.namespace, gang.runs, gang.run_ms)

    def _upto(self, run_ms: int) -> int:
        """How many of the drains begin before a gang is expected to end."""
        return max(self._begun, bisect.bisect_left(self._times, self._at_ms + run_ms))

    def applied(self, gang: Gang) -> Gang:
        """A gang whose shapes leave out the nodes that are drained before it is expected to end."""
        last_ms = self.last_ms(gang)
        if not last_ms or not gang.request_class:
            return gang
        known = self._classes.get((gang.request_class, last_ms))
        if known is None:
            known = self._classes[gang.request_class, last_ms] = tuple(
                (msgspec.structs.replace(shape, drained_ms=last_ms), pods) for shape, pods in gang.request_class
            )
        return msgspec.structs.replace(gang, request_class=known)
