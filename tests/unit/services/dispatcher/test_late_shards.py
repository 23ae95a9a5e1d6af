"""A shard that stands still costs a round its whole deadline now and then only, and is used again when it answers."""

import asyncio
from collections.abc import Mapping

from berth.core.scheduling.turn import Opening
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.runtime.bus.port import Gathered
from berth.runtime.logs import DEFAULT_LOG
from berth.schemas.offers import Shape
from berth.schemas.subjects import Subjects
from berth.services.dispatcher.late_shards import LateShards
from berth.services.dispatcher.scatter import Scatter
from tests.support.clock import ManualClock

SHAPE = Shape("module910bx8", "huawei.com/Ascend910", 1, 1)


def test_a_late_shard_is_asked_briefly_until_it_gets_a_whole_deadline_again() -> None:
    late = LateShards(timeout_s=2.0)
    assert late.brief(100.0) == frozenset()
    late.note([1, 3], now_s=100.0)
    assert late.brief(100.0) == {1, 3}
    assert late.brief(109.9) == {1, 3}
    assert late.brief(110.0) == frozenset(), "after five deadlines"
    late.note([3], now_s=112.0)
    assert late.brief(112.0) == {3}


def test_a_shard_that_answered_is_not_late() -> None:
    late = LateShards(timeout_s=1.0)
    late.note([0, 1], now_s=0.0)
    late.answered([1, 2])
    assert late.brief(0.1) == {0}


class _Line:
    """The part of a bus that gathering needs: time goes by until the deadline for shards that stand still."""

    def __init__(self, clock: ManualClock) -> None:
        self.subjects = Subjects("cell")
        self.still: set[int] = set()
        self.dead: set[int] = set()
        self.asked: list[tuple[list[int], float]] = []
        self._clock = clock

    async def gather(self, subjects: Mapping[int, str], data: bytes, *, timeout_s: float) -> Gathered:
        del data
        if subjects:
            self.asked.append((sorted(subjects), timeout_s))
        if self.still & set(subjects):
            self._clock.advance(timeout_s)
        missing = sorted(set(subjects) & (self.still | self.dead))
        return Gathered({shard: b"no offer" for shard in subjects if shard not in missing}, missing)


def rounds(
    line: _Line, clock: ManualClock, scatter: Scatter, count: int
) -> tuple[list[tuple[list[int], float]], float]:
    """What rounds ask of which shards, and how long they take in all."""
    line.asked.clear()
    began_s = clock.monotonic_s()
    for number in range(count):
        asyncio.run(scatter.gather(None, {SHAPE: 1}, Opening(number, 0, (), Due(), {SHAPE: 1})))  # type: ignore[arg-type]  # shards score
    return line.asked, clock.monotonic_s() - began_s


def test_rounds_wait_for_a_shard_that_stands_still_only_now_and_then() -> None:
    clock = ManualClock()
    line = _Line(clock)
    scatter = Scatter(line, clock, State(), shards=3, timeout_s=1.0, log=DEFAULT_LOG)  # type: ignore[arg-type]  # as above
    everyone, others = [0, 1, 2], [0, 2]
    assert rounds(line, clock, scatter, 2) == ([(everyone, 1.0)] * 2, 0.0)
    line.still = {1}
    asked, took_s = rounds(line, clock, scatter, 11)
    assert asked == [(everyone, 1.0), *[(others, 1.0), ([1], 0.1)] * 10]
    assert took_s == 2.0
    clock.advance(4.0)
    assert rounds(line, clock, scatter, 2)[0] == [(everyone, 1.0), (others, 1.0), ([1], 0.1)]
    line.still = set()
    assert rounds(line, clock, scatter, 2)[0] == [(others, 1.0), ([1], 0.1), (everyone, 1.0)], (
        "it answered, and is prompt"
    )


def test_a_shard_without_a_process_is_not_late() -> None:
    clock = ManualClock()
    line = _Line(clock)
    scatter = Scatter(line, clock, State(), shards=2, timeout_s=1.0, log=DEFAULT_LOG)  # type: ignore[arg-type]  # as above
    line.dead = {0}
    assert rounds(line, clock, scatter, 3)[0] == [([0, 1], 1.0)] * 3


def test_shards_that_all_stand_still_are_all_asked_briefly() -> None:
    clock = ManualClock()
    line = _Line(clock)
    scatter = Scatter(line, clock, State(), shards=2, timeout_s=1.0, log=DEFAULT_LOG)  # type: ignore[arg-type]  # as above
    line.still = {0, 1}
    assert rounds(line, clock, scatter, 2)[0] == [([0, 1], 1.0), ([0, 1], 0.1)]
