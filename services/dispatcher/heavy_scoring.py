"""Candidates for heavy gangs: the dispatcher scores their shapes itself, in several turns if need be.

A turn goes on without heavy gangs when their shapes have taken their time in it. What was scored is kept for the next
try, so that each try has less to do, and the gangs are decided in the end however long it takes. Until then no other
heavy gang is scored: if they took turns, what is kept would have no bound, or none of them would ever be done.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Final

from berth.core.placement.kept_candidates import KeptCandidates
from berth.core.placement.scoring import Candidates
from berth.core.scheduling.heavy_gangs import PAUSE_MAX_MS
from berth.core.scheduling.scheduler import Scheduler
from berth.core.scheduling.turn import MissingShards, Opening
from berth.runtime.clock import Clock
from berth.runtime.logs import Logger
from berth.schemas.offers import Shape
from berth.services.dispatcher.scatter import Offers

_SHARE: Final = 0.5
"""Part of the deadline of a round that heavy shapes may take in one turn, beside that of the others."""
_REST: Final = 4.0
_REST_MAX_S: Final = 10.0
_REST_LATE_S: Final = 1.0
"""After a round with heavy gangs they are left out for so many times as long, but no longer than this, or than that if
they were late: otherwise all gangs would wait for such rounds."""
_KEPT_S: Final = 3 * PAUSE_MAX_MS / 1000
"""How long candidates are kept for a gang that does not come back: it was cancelled, or others are before it."""
_PAUSE_S: Final = 0.01
"""How long shapes are scored before heartbeats and the like go on."""
_NAMED_MAX: Final = 20
"""Jobs that one line of the log names."""
_CANDIDATES_MAX: Final = 1_048_576
_OF_A_SHAPE: Final = 256
"""As many candidates are scored as a gang may need at most, but no more than so many in all, and so many of each shape
in any case: more of them cost little, and to score once more costs as much as the first time."""


class HeavyScoring:
    """Scores the shapes of heavy gangs.

    Args:
        clock: Of the process.
        scheduler: Of the dispatcher.
        timeout_s: Deadline of the offers of a round, in seconds.
        log: Logger of the service.
    """

    def __init__(self, clock: Clock, scheduler: Scheduler, *, timeout_s: float, log: Logger) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._timeout_s = timeout_s
        self._log = log
        self._opening: Opening | None = None
        """The last turn in which shapes were scored, and ..."""
        self._left_s = 0.0
        """... the time that they may still take in it."""
        self._rests_until_s = -math.inf
        """Until then no heavy gang is decided."""
        self._kept = KeptCandidates(scheduler.scorer)
        self._kept_for = MissingShards()
        self._kept_until_s = -math.inf
        self._next: frozenset[Shape] = frozenset()
        """Shapes of gangs that were left out of the first turn in a rest: they are scored before others, or ..."""
        self._next_until_s = -math.inf
        """... until then no others are: tries at the same intervals would else meet a rest each time."""
        self._paused_s = -math.inf
        self._is_late = False
        """Whether the last turn in which shapes were scored went on without their gangs."""

    async def beside(
        self, offers: Offers, opening: Opening, asks: Mapping[Shape, int]
    ) -> tuple[Opening, Mapping[Shape, Candidates]]:
        """The turn to go on with, without its heavy gangs if not all of their shapes are scored, and its candidates.

        Args:
            offers: Candidates of all shapes that are not heavy.
            opening: The turn.
            asks: Candidates to ask for by shape, those that are not heavy included.
        """
        heavy = {shape: count for shape, count in asks.items() if shape in opening.heavy}
        found = await self._candidates(heavy, opening, offers.missing_shards)
        if found is not None:
            return opening, {**offers.views, **found} if found else offers.views
        left = self._scheduler.leave_out(opening, [gang.uid for gang in opening.gangs])
        jobs = [gang.namespaced_name for gang in left.late[:_NAMED_MAX]]
        self._log.warning(
            "gangs left out: too many different tasks", count=len(left.late), jobs=jobs, scored=len(self._kept)
        )
        return left, offers.views

    async def _candidates(
        self, heavy: Mapping[Shape, int], opening: Opening, missing_shards: MissingShards
    ) -> dict[Shape, Candidates] | None:
        """Candidates of the heavy shapes of a turn; None if not all are scored."""
        now_s = self._clock.monotonic_s()
        if self._kept.scorer is not self._scheduler.scorer or now_s >= self._kept_until_s:
            self._forget()
        if not heavy:
            return {}
        if self._kept.has_any(heavy):
            self._kept_until_s = now_s + _KEPT_S
        if self._has_to_wait(frozenset(heavy), now_s):
            return None
        if self._opening is not opening:
            self._opening, self._left_s = opening, _SHARE * self._timeout_s
        if self._kept_for != missing_shards:
            self._forget()
            self._kept_for = missing_shards
        self._kept_until_s = now_s + _KEPT_S
        self._is_late = not await self._score(heavy, opening.needs)
        if self._is_late:
            return None
        found: dict[Shape, Candidates] = {}
        without = self._scheduler.decisions.silent(missing_shards)
        for shape, candidates in self._kept.now(without):
            found[shape] = candidates
            await self._pause()
        return found

    def _has_to_wait(self, heavy: frozenset[Shape], now_s: float) -> bool:
        """Whether a turn is in a rest, or before that of gangs that are scored already or that a rest left out."""
        is_rest = now_s < self._rests_until_s
        if self._kept:
            return is_rest or not self._kept.has_any(heavy)
        is_open = now_s >= self._next_until_s
        if is_rest and is_open:
            self._next, self._next_until_s = heavy, now_s + _KEPT_S
        if is_rest or not (is_open or self._next & heavy):
            return True
        self._next_until_s = -math.inf
        return False

    async def _score(self, heavy: Mapping[Shape, int], needs: Mapping[Shape, int]) -> bool:
        """Score what is not kept; returns whether all of it is scored."""
        most = max(_OF_A_SHAPE, _CANDIDATES_MAX // len(heavy))
        counts = {shape: max(count, min(needs.get(shape, 0), most)) for shape, count in heavy.items()}
        candidates = self._scheduler.decisions.best_candidates(self._kept_for)
        self._kept.keep_only(counts)
        began_s = self._clock.monotonic_s()
        until_s = began_s + self._left_s
        for _ in self._kept.score(counts, candidates):
            if self._clock.monotonic_s() >= until_s:
                return False
            await self._pause()
        self._left_s = until_s - self._clock.monotonic_s()
        return True

    async def _pause(self) -> None:
        """Let heartbeats and the like go on, now and then."""
        now_s = self._clock.monotonic_s()
        if now_s - self._paused_s >= _PAUSE_S:
            await asyncio.sleep(0)
            self._paused_s = self._clock.monotonic_s()

    def rest_after(self, opening: Opening, began_s: float) -> None:
        """Let no heavy gang be decided for a while after a round for which some were scored.

        Args:
            opening: Its turn.
            began_s: When it began.
        """
        if opening is not self._opening:
            return
        now_s = self._clock.monotonic_s()
        longest_s = _REST_LATE_S if self._is_late else _REST_MAX_S
        self._rests_until_s = now_s + min(_REST * (now_s - began_s), longest_s)
        self._opening = None
        if not self._is_late:
            self._forget()

    def _forget(self) -> None:
        self._kept = KeptCandidates(self._scheduler.scorer)
