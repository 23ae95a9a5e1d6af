"""What a part of the services costs: the rate of ``spine`` with it and without, in pairs that take turns."""

import statistics
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from bench import spine
from bench.ends import until_done
from bench.report import Row, row

Measure = Callable[[bool, spine.Size], Coroutine[Any, Any, Sequence[float]]]
"""Rates in gangs/s with the part (True) or without it."""


class Size(NamedTuple):
    """Size of a run: pairs, and each run of ``spine``."""

    pairs: int = 6
    each: spine.Size = spine.FULL


FULL: Final = Size()
SMALL: Final = Size(pairs=1, each=spine.SMALL)


def paired(part: str, measure: Measure, size: Size, *, least_percent: float) -> list[Row]:
    """Rows of both rates and of their ratio.

    What else the machine does changes from minute to minute, so only the two runs of a pair are compared; every other
    pair begins with the other one.

    Args:
        part: Its name.
        measure: Makes one run.
        size: Size of all.
        least_percent: Target of the rate with the part, in percent of the rate without it in the same pair.
    """
    shares: list[float] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(size.pairs):
        found: dict[bool, float] = {}
        for has_part in (True, False) if pair % 2 else (False, True):
            found[has_part] = statistics.median(until_done(measure(has_part, size.each)))
            rates[has_part].append(found[has_part])
        shares.append(100 * found[True] / found[False])
    case = f"1 shard, {size.pairs} pairs"
    return [
        row(case, f"gangs with {part}", "1/s", rates[True]),
        row(case, f"gangs without {part}", "1/s", rates[False]),
        row(case, f"rate with {part}, of a pair", "%", shares, target=least_percent, better="more"),
        row(case, "lowest of a pair", "%", [min(shares)]),
        row(case, "highest of a pair", "%", [max(shares)]),
    ]
