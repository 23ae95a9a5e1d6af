"""Whether a cell under load stays as it is: memory, streams, latency and rate, each with its figures. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from bench.load.samples import WATCHED, Course, Sample
from bench.report import Row, row
from berth.schemas.subjects import StreamName

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


def windows(samples: Sequence[Sample], from_s: float = SETTLED_S) -> Windows:
    """Split the samples.

    Args:
        samples: In order of time.
        from_s: When the first window begins; in shorter runs after a sixth of the time.

    Raises:
        ValueError: Too few for two windows that do not overlap.
    """
    end_s = samples[-1].at_s if samples else 0.0
    settled_s, length_s = (min(SETTLED_S, end_s / 6) if from_s == SETTLED_S else from_s), min(_WINDOW_S, end_s / 6)
    early = [one for one in samples if settled_s <= one.at_s < settled_s + length_s]
    late = [one for one in samples if one.at_s > end_s - length_s]
    if not early or not late or early[-1].at_s >= late[0].at_s:
        raise ValueError(f"{len(samples)} samples over {end_s:.0f} s are too few for a verdict")
    return Windows(early, late)


def rows_of(course: Course, equal_from_s: float = SETTLED_S, *, settled_s: float = SETTLED_S) -> list[Row]:
    """The verdict: a row for each process, stream and figure; one without a target is for information.

    Args:
        course: The load.
        equal_from_s: When conditions are equal from, such as the priority of the processes: streams and latency are
            compared from then on.
        settled_s: When the cell is in its steady state: memory is compared from then on.

    Raises:
        ValueError: There are too few samples.
    """
    early, late = windows(course.samples, settled_s)
    first_s, last_s = early[0].at_s, late[-1].at_s
    case = f"second {first_s:.0f} to {last_s:.0f}"
    lasted_s = last_s - course.samples[0].at_s
    placed = (course.samples[-1].placed - course.samples[0].placed) / lasted_s
    is_measured = not course.settings.get("rate")
    rows = [row("before", "jobs placed, as many as it can", "1/s", [course.measured_rate])] if is_measured else []
    rows += [
        row("whole run", "jobs submitted", "1/s", [course.rate]),
        row("whole run", "jobs placed", "1/s", [placed], target=_RATE_SHARE * course.rate, better="more"),
        row("whole run", "jobs placed in all", "1", [course.samples[-1].placed - course.samples[0].placed]),
        row("whole run", "messages not stored", "1", [course.samples[-1].failed], target=0.0, can_be_zero=True),
    ]
    for name in course.samples[-1].processes:
        rows += _memory(case, name, early, late)
    early, late = windows(course.samples, equal_from_s)
    if early[0].at_s > first_s:
        case = f"second {early[0].at_s:.0f} to {last_s:.0f}"
        for name in course.samples[-1].processes:
            growth = _memory(case, name, early, late)[2]
            rows.append(msgspec.structs.replace(growth, target=None, ok=None))
    for stream in WATCHED:
        rows += _stream(case, stream.value, early, late)
    rows += _latency(case, "p50", early, late, lambda one: one.latency.p50_ms, _P50_FACTOR)
    rows += _latency(case, "p99", early, late, lambda one: one.latency.p99_ms, _P99_FACTOR)
    most = max(one.latency.most_ms for one in course.samples if one.at_s >= early[0].at_s)
    rows.append(row(case, "longest latency", "ms", [most]))
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
            can_be_zero=True,
        ),
        row(case, f"CPU of {name}", "% of a core", [100 * cpu]),
    ]


def _stream(case: str, name: str, early: list[Sample], late: list[Sample]) -> list[Row]:
    before, after = (_median(part, lambda one: one.streams[name].bytes) for part in (early, late))
    slack = _STREAM_SLACK
    if name == StreamName.SNAPSHOT:  # one more or one fewer is kept, depending on the moment
        slack += max(round(one.streams[name].bytes / max(one.snapshots, 1)) for one in late)
    growth = 100 * (after - before - slack) / max(before, 1)
    least_lag = min(one.streams[name].lag for one in late)
    return [
        row(case, f"{name}, at first", "MiB", [before / (1 << 20)]),
        row(case, f"{name}, at last", "MiB", [after / (1 << 20)]),
        row(
            case,
            f"{name}, growth beyond {'a snapshot' if name == StreamName.SNAPSHOT else '1 MiB'}",
            "%",
            [max(growth, 0.0)],
            target=_STREAM_GROWTH,
            can_be_zero=True,
        ),
        row(case, f"{name}, messages at last", "1", [_median(late, lambda one: one.streams[name].messages)]),
        row(case, f"{name}, least lag at last", "messages", [least_lag], target=0.0, can_be_zero=True),
        row(
            case,
            f"{name}, most lag at last",
            "messages",
            [max(one.streams[name].lag for one in late)],
            can_be_zero=True,
        ),
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
