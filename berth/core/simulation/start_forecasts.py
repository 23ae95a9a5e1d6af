"""Expected starts in a simulation: what jobs that wait are told, and when they start.

One of each so many jobs that wait after the moment of their request is asked about, once, right then. Beside the range
that Berth tells, two simple answers are kept: the wait of the job of as many chips that was placed last, and the start
that a reservation of the policy ``easy`` would have. An answer is near if the wait is at most twice the answer and at
least half of it, where times below a minute count as a minute. Of a range its geometric mean is the answer.
"""

import math
from typing import Final, NamedTuple

from berth.core.expected.forecast import Forecast
from berth.core.simulation.timeline import StartFigures
from berth.core.state.cell import State

_MINUTE_MS: Final = 60_000
_NEAR: Final = 2


class _Answers(NamedTuple):
    """What was told of a job: moments, and a wait; -1 for no answer."""

    asked_ms: int
    earliest_ms: int
    latest_ms: int
    last_wait_ms: int
    reserved_ms: int


class StartForecasts:
    """Asks about jobs that wait, and compares with what happens.

    Args:
        state: The cell.
        every: Of so many jobs that wait one is asked about.
    """

    def __init__(self, state: State, every: int) -> None:
        self._state = state
        self._every = every
        self._arrived: dict[str, int] = {}
        """Chips of the jobs of this moment."""
        self._open: dict[str, None] = {}
        """Jobs that were never placed."""
        self._waited = 0
        self._answers: dict[str, _Answers] = {}
        self._last_wait_ms: dict[int, int] = {}
        """By chips."""
        self._judged: list[tuple[_Answers, int]] = []

    def arrive(self, uid: str, chips: int) -> None:
        """Note a job that was requested."""
        self._arrived[uid] = chips
        self._open[uid] = None

    def place(self, uid: str, chips: int, *, asked_ms: int, at_ms: int) -> None:
        """Note a job that got places; later places of the same job do not count."""
        if uid not in self._open:
            return
        del self._open[uid]
        self._last_wait_ms[chips] = at_ms - asked_ms
        answers = self._answers.pop(uid, None)
        if answers is not None:
            self._judged.append((answers, at_ms))

    def leave(self, uid: str) -> None:
        """Note a job that is over without places."""
        self._open.pop(uid, None)
        self._answers.pop(uid, None)

    def settle(self, at_ms: int) -> None:
        """Ask about jobs that were requested at this moment and wait now that all is decided."""
        arrived, self._arrived = self._arrived, {}
        for uid, chips in arrived.items():
            if uid not in self._open:
                continue
            self._waited += 1
            if self._waited % self._every == 0:
                self._ask(uid, chips, at_ms)

    def figures(self) -> StartFigures:
        """How near the answers were so far."""
        judged = self._judged
        ranges = [(one, at_ms) for one, at_ms in judged if one.earliest_ms >= 0]
        last_waits = [(one, at_ms) for one, at_ms in judged if one.last_wait_ms >= 0]
        reserved = [(one, at_ms) for one, at_ms in judged if one.reserved_ms >= 0]
        return StartFigures(
            asked=len(judged),
            ranges=len(ranges),
            in_range=sum(one.earliest_ms - _MINUTE_MS <= at_ms <= one.latest_ms + _MINUTE_MS for one, at_ms in ranges),
            near=sum(_is_near(_middle(one), at_ms - one.asked_ms) for one, at_ms in ranges),
            last_wait=len(last_waits),
            last_wait_near=sum(_is_near(one.last_wait_ms, at_ms - one.asked_ms) for one, at_ms in last_waits),
            reserved=len(reserved),
            reserved_near=sum(
                _is_near(one.reserved_ms - one.asked_ms, at_ms - one.asked_ms) for one, at_ms in reserved
            ),
        )

    def _ask(self, uid: str, chips: int, at_ms: int) -> None:
        forecast = Forecast(self._state, at_ms)
        expected = forecast.of(uid)
        if expected is None:
            return
        has_range = expected.latest_ms > 0
        self._answers[uid] = _Answers(
            at_ms,
            expected.earliest_ms if has_range else -1,
            expected.latest_ms if has_range else -1,
            self._last_wait_ms.get(chips, -1),
            forecast.reserved_ms(uid),
        )


def _middle(one: _Answers) -> int:
    """Wait in the middle of a range."""
    early_ms, late_ms = (max(moment - one.asked_ms, _MINUTE_MS) for moment in (one.earliest_ms, one.latest_ms))
    return math.isqrt(early_ms * late_ms)


def _is_near(answer_ms: int, wait_ms: int) -> bool:
    less, more = sorted((max(answer_ms, _MINUTE_MS), max(wait_ms, _MINUTE_MS)))
    return more <= _NEAR * less
