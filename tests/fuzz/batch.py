"""Histories of seeds that follow one another, and the shortest form of those that fail."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import structlog

from tests.fuzz.draws import draw_history
from tests.fuzz.failure import Failure
from tests.fuzz.run import FULL, Depth, live
from tests.fuzz.shrinking import shortest
from tests.fuzz.steps import ranges_of

FULL_EVERY: Final = 10
"""Of so many histories one is looked at closely after each record."""


class Found(NamedTuple):
    """A history that fails."""

    seed: int
    kind: str
    details: str
    steps: list[int]
    of_steps: int


def depth_of(seed: int) -> Depth:
    """How closely a history is looked at."""
    return FULL if seed % FULL_EVERY == 0 else Depth()


def hush() -> None:
    """Let no log line through: shards that are not believed are said to be so each time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def run_batch(first: int, count: int) -> tuple[Counter[str], list[Found]]:
    """Live through histories of seeds that follow one another; the first that fails in a way is made short."""
    hush()
    features: Counter[str] = Counter()
    found: list[Found] = []
    for seed in range(first, first + count):
        history = draw_history(seed)
        try:
            live(history, seed, features, depth_of(seed))
        except Failure as failure:
            is_new = all(one.kind != failure.kind for one in found)
            found.append(_shrunk(seed, failure) if is_new else _as_it_is(seed, failure))
    return features, found


def _failure(seed: int, steps: Sequence[int]) -> Failure | None:
    try:
        live(draw_history(seed).only(steps), seed, Counter(), FULL)
    except Failure as failure:
        return failure
    return None


def _as_it_is(seed: int, failure: Failure) -> Found:
    count = len(draw_history(seed).steps)
    return Found(seed, failure.kind, failure.details, list(range(count)), count)


def _shrunk(seed: int, first: Failure) -> Found:
    """The shortest part of a history that fails alike; observed closely if that finds the error or an earlier one."""
    steps = list(range(len(draw_history(seed).steps)))
    failure = _failure(seed, steps)
    if failure is None:  # what is found depends on how often somebody looks
        return _as_it_is(seed, first)

    def fails(kept: Sequence[int]) -> bool:
        other = _failure(seed, kept)
        return other is not None and other.kind == failure.kind

    kept = shortest(steps, fails)
    last = _failure(seed, kept) or failure
    return Found(seed, last.kind, last.details, kept, len(steps))


def command(found: Found) -> str:
    """What lives through the failing steps again."""
    return f"python -m tests.fuzz --seed {found.seed} --steps {ranges_of(found.steps) or 'none'}"
