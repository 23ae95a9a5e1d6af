"""Metrics by which a conclusion judges the columns of a comparison, with their numbers as text."""

from collections.abc import Callable
from typing import Final, NamedTuple

from berth.core.simulation.durations import Times
from berth.core.simulation.statistics import LARGE_CHIPS, FaultFigures, Span, Statistics

_UNITS: Final = ((172_800_000, 86_400_000, "d"), (7_200_000, 3_600_000, "h"), (120_000, 60_000, "min"), (0, 1000, "s"))
"""Units of a duration: smallest that is printed in it, its length, its name; ms."""
_FINE_BELOW: Final = 100
"""Upper bound of the numbers that are printed with a decimal."""


class Number(NamedTuple):
    """A number of a column.

    Attributes:
        value: Smaller is better.
        text: The number as it is printed.
        at_least: It is a lower bound.
    """

    value: float
    text: str
    at_least: bool = False


class Metric(NamedTuple):
    """A number that columns are judged by.

    Attributes:
        name: In a sentence.
        better: Adjective of a better number.
        best: Adjective of the best of several.
        number: Its number of a column; None where there is nothing to measure.
        is_duration: Its numbers are milliseconds.
        is_wait: It is a waiting time, which is only as exact as the resolution.
        jobs: Numbers of the jobs that it is about; columns with different ones are not compared.
    """

    name: str
    better: str
    best: str
    number: Callable[[Statistics], Number | None]
    is_duration: bool = False
    is_wait: bool = False
    jobs: Callable[[Statistics], tuple[int, ...]] = lambda known: (known.jobs, known.turned_away, known.taken_back)


def unit_of(time_ms: float) -> tuple[int, str]:
    """Length and name of the unit in which a duration is printed."""
    return next((scale_ms, unit) for least_ms, scale_ms, unit in _UNITS if time_ms >= least_ms)


def duration_text(time_ms: float, scale_ms: int = 0, unit: str = "") -> str:
    """A duration in a unit (its length in milliseconds, its name), or in its own."""
    if not scale_ms:
        scale_ms, unit = unit_of(time_ms)
    return f"{_decimal(time_ms / scale_ms)} {unit}"


def _decimal(value: float) -> str:
    return f"{value:,.{1 if value < _FINE_BELOW else 0}f}"


def share_text(share: float) -> str:
    """A share, 0 to 1, in percent."""
    return f"{100 * share:.1f} %"


def _mean(times: Times) -> Number | None:
    if not times.jobs:
        return None
    return time_number(times.mean_ms, at_least=bool(times.unfinished))


def _p99(times: Times) -> Number | None:
    if not times.jobs:
        return None
    return time_number(times.p99_ms, at_least=bool(times.unfinished) and times.p99_ms >= times.known_below_ms)


def time_number(time_ms: float, scale_ms: int = 0, unit: str = "", *, at_least: bool) -> Number:
    """A duration as a number, printed in a unit or in its own."""
    return Number(time_ms, f"{'at least ' if at_least else ''}{duration_text(time_ms, scale_ms, unit)}", at_least)


def _span(span: Span) -> Number | None:
    return Number(span.ratio_mean, f"{span.ratio_mean:.2f}") if span.jobs else None


def _ettr(faults: FaultFigures | None) -> Number | None:
    return None if faults is None or faults.ettr is None else Number(-faults.ettr, share_text(faults.ettr))


def _lost(faults: FaultFigures | None) -> Number | None:
    if faults is None:
        return None
    lost_h = faults.redone_chip_h + faults.stopped_chip_h
    return Number(lost_h, _decimal(lost_h))


def _deleted(faults: FaultFigures | None) -> Number | None:
    return None if faults is None else Number(faults.pods, f"{faults.pods:,}")


PLACED: Final = Metric(
    "number of placed jobs",
    "larger",
    "largest",
    lambda known: Number(-known.placed, f"{known.placed:,}"),
    jobs=lambda known: (known.jobs,),
)
_SHORT: Final = ("shorter", "shortest")
_SMALL: Final = ("smaller", "smallest")
METRICS: Final = (
    PLACED,
    Metric("effective training time ratio", "higher", "highest", lambda known: _ettr(known.faults)),
    Metric("mean waiting time", *_SHORT, lambda known: _mean(known.wait), is_duration=True, is_wait=True),
    Metric(
        f"mean waiting time of jobs of {LARGE_CHIPS} chips and more",
        *_SHORT,
        lambda known: _mean(known.wait_large),
        is_duration=True,
        is_wait=True,
    ),
    Metric(
        "mean leaf span over the smallest possible",
        *_SMALL,
        lambda known: _span(known.leaf_span),
        jobs=lambda known: (known.leaf_span.jobs,),
    ),
    Metric(
        "mean SuperPoD span over the smallest possible",
        *_SMALL,
        lambda known: _span(known.superpod_span),
        jobs=lambda known: (known.superpod_span.jobs,),
    ),
    Metric("p99 of the waiting time", *_SHORT, lambda known: _p99(known.wait), is_duration=True, is_wait=True),
    Metric(
        "makespan", *_SHORT, lambda known: time_number(known.makespan_ms, at_least=not known.is_over), is_duration=True
    ),
    Metric("number of lost chip hours", *_SMALL, lambda known: _lost(known.faults)),
    Metric("number of pods deleted after failures", *_SMALL, lambda known: _deleted(known.faults)),
)
"""All metrics; columns are judged by the first one in which they differ."""
