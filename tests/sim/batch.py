"""Some seeds, one after another, and the shortest form of those that fail."""

from collections import Counter
from typing import Final

import msgspec

from tests.fuzz.shrinking import shortest
from tests.fuzz.steps import ranges_of
from tests.sim.run import Lived, live

TWICE_EVERY: Final = 20
"""One in so many seeds is lived through twice, and must leave the same trace."""


class Result(msgspec.Struct):
    """How some seeds went: figures, and those that failed, the first of each kind as short as it gets.

    Attributes:
        steps: Of each seed.
    """

    count: Counter[str]
    failed: list[Lived]
    seeds: int
    steps: list[int] = []


def run_batch(seeds: list[int]) -> Result:
    """Live through some seeds."""
    result = Result(Counter(), [], len(seeds))
    for seed in seeds:
        lived = live(seed)
        if not lived.kind and seed % TWICE_EVERY == 0:
            again = live(seed)
            result.count["check: the same trace twice"] += 1
            if again.trace != lived.trace:
                lived.kind, lived.details = "the same seed leaves another trace", f"{lived.trace} and {again.trace}"
        result.count.update(lived.count)
        result.steps.append(lived.steps)
        result.count.update(
            {"steps": lived.steps, "callbacks": lived.callbacks, "virtual ms": round(lived.virtual_s * 1000)}
        )
        if lived.kind:
            is_new = all(one.kind != lived.kind for one in result.failed)
            result.failed.append(shrunk(lived) if is_new else lived)
    return result


def shrunk(lived: Lived) -> Lived:
    """The smallest part of a failing seed that fails alike."""

    def fails(kept: object) -> bool:
        assert isinstance(kept, list)
        return live(lived.seed, kept).kind == lived.kind

    if not fails(list(lived.events)):
        return lived  # it does not fail again: the trace itself is what is wrong
    return live(lived.seed, shortest(lived.events, fails))


def command(lived: Lived) -> str:
    """What lives through a failing seed again."""
    some = f" --events {ranges_of(lived.events) or 'none'}" if len(lived.events) < lived.of_events else ""
    return f"python -m tests.sim --seed {lived.seed}{some}"
