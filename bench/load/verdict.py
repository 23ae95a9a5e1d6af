"""Whether a cell under load stays as it is: memory, streams, latency and rate, each with its figures. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from bench.load.samples import WATCHED, Course, Sample
from bench.report import Row, row

SETTLED_S: Final = 600.0
"""After so long a cell is in its steady state; in shorter runs after a sixth of the time."""
_WINDOW_S: Final = 600.0
_MEMORY_GROWTH: Final = 2.0
"""Percent by which the memory of a process may grow."""
_STREAM_GROWTH: Final = 5.0
_STREAM_SLACK: Final = 1 << 20
"""Bytes by which any stream may grow: a small one is a few messages more or fewer."""
_P50_FACTOR: Final = 1.25
_P99_FACTOR: Final = 1.5
_RATE_SHARE: Final = 0.99
CLIENT: Final = "client"
"""The process that is no part of the cell."""


class Windows(NamedTuple):
    """Samples at the beginning of the steady state, and at the end."""

    early: list[Sample]
    late: list[Sample]


def windows(samples: Sequence[Sample]) -> Windows:
    """Split the samples.

    Raises:
        ValueError: Too few for two windows that do not overlap.
    """
    end_s = samples[-1].at_s if samples else 0.0
    settled_s, length_s = min(SETTLED_S, end_s / 6), min(_WINDOW_S, end_s / 6)
    early = [one for one in samples if settled_s <= one.at_s < settled_s + length_s]
    late = [one for one in samples if one.at_s > end_s - length_s]
    if not early or not late or early[-1].at_s >= late[0].at_s:
        raise ValueError(f"{len(samples)} samples over {end_s:.0f} s are too few for a verdict")
    return Windows(early, late)


def rows_of(course: Course) -> list[Row]:
    """The verdict: a row for each process, stream and figure; one without a target is for information.

    Raises:
        ValueError: There are too few samples.
    """
    early, late = windows(course.samples)
    first_s, last_s = early[0].at_s, late[-1].at_s
    case = f"second {first_s:.0f} to {last_s:.0f}"
    lasted_s = last_s - course.samples[0].at_s
    placed = (course.samples[-1].placed - course.samples[0].placed) / lasted_s
    rows = [
        row("before", "jobs placed, as many as it can", "1/s", [course.measured_rate]),
        row("whole run", "jobs submitted", "1/s", [course.rate]),
        row("whole run", "jobs placed", "1/s", [placed], target=_RATE_SHARE * course.rate, better="more"),
        row("whole run", "jobs placed in all", "1", [course.samples[-1].placed - course.samples[0].placed]),
        row("whole run", "messages not stored", "1", [course.samples[-1].failed], target=0.0),
    ]
    for name in course.samples[-1].processes:
        rows += _memory(case, name, early, late)
    for stream in WATCHED:
        rows += _stream(case, stream.value, early, late)
    rows += _latency(case, "p50", early, late, lambda one: one.latency.p50_ms, _P50_FACTOR)
    rows += _latency(case, "p99", early, late, lambda one: one.latency.p99_ms, _P99_FACTOR)
    rows.append(row(case, "longest latency", "ms", [max(one.latency.most_ms for one in _from(course, first_s))]))
    return rows


def _memory(case: str, name: str, early: list[Sample], late: list[Sample]) -> list[Row]:
    before, after = (_median(part, lambda one: one.processes[name].pss_mib) for part in (early, late))
    seconds = late[-1].at_s - early[0].at_s
    cpu = (late[-1].processes[name].cpu_s - early[0].processes[name].cpu_s) / seconds
    return [
        row(case, f"memory of {name}, at first", "MiB", [before]),
        row(case, f"memory of {name}, at last", "MiB", [after]),
        row(
            case,
            f"memory of {name}, growth",
            "%",
            [100 * (after / before - 1)],
            target=None if name == CLIENT else _MEMORY_GROWTH,
        ),
        row(case, f"CPU of {name}", "% of a core", [100 * cpu]),
    ]


def _stream(case: str, name: str, early: list[Sample], late: list[Sample]) -> list[Row]:
    before, after = (_median(part, lambda one: one.streams[name].bytes) for part in (early, late))
    growth = 100 * (after - before - _STREAM_SLACK) / max(before, 1)
    least_lag = min(one.streams[name].lag for one in late)
    return [
        row(case, f"{name}, at first", "MiB", [before / (1 << 20)]),
        row(case, f"{name}, at last", "MiB", [after / (1 << 20)]),
        row(case, f"{name}, growth beyond 1 MiB", "%", [max(growth, 0.0)], target=_STREAM_GROWTH),
        row(case, f"{name}, messages at last", "1", [_median(late, lambda one: one.streams[name].messages)]),
        row(case, f"{name}, least lag at last", "messages", [least_lag], target=0.0),
        row(case, f"{name}, most lag at last", "messages", [max(one.streams[name].lag for one in late)]),
    ]


def _latency(
    case: str, what: str, early: list[Sample], late: list[Sample], of: Callable[[Sample], float], factor: float
) -> list[Row]:
    before, after = _median(early, of), _median(late, of)
    return [
        row(case, f"latency {what}, at first", "ms", [before]),
        row(case, f"latency {what}, at last", "ms", [after]),
        row(case, f"latency {what}, last over first", "ratio", [after / before], target=factor),
    ]


def _median(samples: Iterable[Sample], of: Callable[[Sample], float]) -> float:
    return statistics.median(of(one) for one in samples)


def _from(course: Course, at_s: float) -> list[Sample]:
    return [one for one in course.samples if one.at_s >= at_s]
