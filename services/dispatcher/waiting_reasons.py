"""When to look again why jobs wait: at a bounded share of the time, so that rounds are not held up.

Waiting jobs are looked at when the state has changed, ``_LOOK_S`` after the last look at the earliest. A look takes
several turns where many classes wait. The pause before the next look grows with what looks cost.
"""

import math
from typing import Final

from berth.core.explain.current_reasons import CurrentReasons
from berth.core.explain.job_status import Reason
from berth.core.scheduling.scheduler import Scheduler
from berth.core.state.cell import JobKey
from berth.runtime.clock import Clock
from berth.schemas.ledger import Round

_LOOK_S: Final = 1.75
"""From the begin of a look to that of the next one, at least."""
_SHARE: Final = 0.05
"""Share of the time that looks take at most."""
_GROUPS_MAX: Final = 32
_FIRST_MAX: Final = 512
"""Classes that one turn judges, and the first one of a leader, before it compares the statuses that are stored."""
_JOBS_MAX: Final = 1_000
"""Jobs whose status is written for a new reason in ``_LOOK_S``."""


class WaitingReasons:
    """Reasons of waiting jobs, kept as of now.

    Args:
        clock: Of the process.
        scheduler: Of the dispatcher.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._reasons = CurrentReasons(scheduler)
        self._next_s = -math.inf
        """When the next look may begin."""
        self._began_s = 0.0
        self._took_s = 0.0
        """What the open look has cost."""
        self._left = _JOBS_MAX
        """Jobs that may still be returned until the next look."""
        self._is_first = True

    @property
    def rest_s(self) -> float:
        """How long there is nothing to do, if nothing comes in."""
        if self._reasons.is_open or (self._reasons.has_news and self._left):
            return 0.0
        is_due = self._reasons.has_news or self._reasons.is_due(self._clock.now_ms())
        return max(self._next_s - self._clock.monotonic_s(), 0.0) if is_due else math.inf

    def note(self, record: Round) -> None:
        """Take over the refusals of a record that was appended and adopted."""
        self._reasons.adopt(record)

    def step(self) -> list[JobKey]:
        """Look at some classes, if it is time; returns jobs whose reason has changed."""
        reasons, began_s = self._reasons, self._clock.monotonic_s()
        if not reasons.is_open and began_s >= self._next_s:
            self._left = _JOBS_MAX
            if reasons.is_due(self._clock.now_ms()):
                self._began_s, self._took_s = began_s, 0.0
                reasons.begin(self._clock.now_ms())
                self._advance(began_s)
        elif reasons.is_open:
            self._advance(began_s)
        found = reasons.take(self._left)
        self._left -= len(found)
        return found

    def of(self, uid: str) -> Reason | None:
        """Why a gang waits; None if its refusal in the ledger says all."""
        gang = self._scheduler.state.fold.gangs.get(uid)
        if gang is None or gang.phase != "waiting" or gang.refusal is None:
            return None
        return self._reasons.of(uid, gang.refusal, self._clock.now_ms())

    def _advance(self, began_s: float) -> None:
        """Go on with the look; note what that cost, and when the next look may begin."""
        self._reasons.advance(_FIRST_MAX if self._is_first else _GROUPS_MAX)
        now_s = self._clock.monotonic_s()
        self._took_s += now_s - began_s
        self._is_first = False
        if not self._reasons.is_open:
            self._next_s = self._began_s + max(_LOOK_S, self._took_s / _SHARE)
