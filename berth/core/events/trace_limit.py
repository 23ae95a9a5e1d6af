"""Which jobs have no trace, so that a burst of jobs is not slowed by the traces of all of them."""

from collections import OrderedDict
from typing import Final

from berth.schemas.programs.events import JobEvent

FIRST_PHASES: Final = frozenset({"accepted", "rejected"})
"""Phases of the first event of a job."""
_LEFT_OUT_MAX: Final = 50_000
"""Jobs that are known to have none; of an older one the end may be traced."""


class TraceLimit:
    """Leaves out the traces of jobs above a number for each second.

    Args:
        jobs_per_s: Most jobs with a trace, of those whose first events are of one second.
    """

    def __init__(self, jobs_per_s: int) -> None:
        self._jobs_per_s = jobs_per_s
        self._second = 0
        self._jobs = 0
        """Jobs of that second."""
        self._left_out: OrderedDict[str, None] = OrderedDict()
        """Their uids, the oldest first."""

    def leaves_out(self, event: JobEvent) -> bool:
        """Whether the job of an event has no trace, which is decided at its first event.

        Args:
            event: The newest event, seen once.
        """
        if event.phase in FIRST_PHASES:
            second = event.at_ms // 1000
            self._jobs = self._jobs + 1 if second == self._second else 1
            self._second = second
            if self._jobs > self._jobs_per_s:
                self._left_out[event.uid] = None
                while len(self._left_out) > _LEFT_OUT_MAX:
                    self._left_out.popitem(last=False)
        is_left_out = event.uid in self._left_out
        if event.final:
            self._left_out.pop(event.uid, None)
        return is_left_out
