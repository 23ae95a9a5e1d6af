"""Statistics of several timelines side by side: one model of rows for the terminal, Markdown and HTML.

Times are in seconds. A time that is a lower bound, because jobs had not ended, has ``>=`` before it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.simulation.durations import Times
from berth.core.simulation.statistics import LARGE_CHIPS, FaultFigures, Span, Statistics, in_order
from berth.core.simulation.timeline import SCOPES, StartFigures

Unit = Literal["", "s", "%", "chips", "gangs", "ratio", "chip h"]
NOTHING: Final = "-"
"""Text for a missing number."""
_SECOND_MS: Final = 1000
_DECIMALS: Final = 2
_NO_FAULTS: Final = FaultFigures({}, 0, {}, 0, None, 0.0, 0.0, 0.0, Times())
_NO_STARTS: Final = StartFigures(0, 0, 0, 0, 0, 0, 0, 0)
_TIMES_FROM: Final = 10
"""Ratio to the first timeline from which it is shown instead of the difference in percent."""
_FINE_BELOW: Final = 100
"""Upper bound of the numbers that are shown with a decimal."""


class ComparisonRow(msgspec.Struct, frozen=True):
    """A number of each timeline."""

    section: str
    metric: str
    unit: Unit
    values: list[float | None]
    """One number for each timeline, in their order; shares in percent; None when there is nothing to measure."""
    texts: list[str]
    """The formatted numbers."""
    changes: list[str]
    """Difference to the first timeline: in percent of it, such as ``12 times`` for much larger numbers, for shares in
    points; empty for the first, or when undefined."""

    def cells(self) -> list[str]:
        """Text of each timeline, with the difference in brackets."""
        return [f"{text} ({change})" if change else text for text, change in zip(self.texts, self.changes, strict=True)]


class Comparison(msgspec.Struct, frozen=True):
    """Statistics of timelines side by side."""

    titles: list[str]
    """Titles of the timelines."""
    rows: list[ComparisonRow]
    """Rows by section."""


class _Line(NamedTuple):
    """A number of one timeline."""

    section: str
    metric: str
    unit: Unit
    value: float | None
    at_least: bool = False


def compared(*statistics: Statistics) -> Comparison:
    """Compare statistics, each with its difference to the first."""
    return Comparison([known.title for known in statistics], rows_of(statistics))


def rows_of(statistics: Sequence[Statistics]) -> list[ComparisonRow]:
    """Rows with one value for each timeline; rows without any value are left out."""
    priorities = sorted({int(group.name) for known in statistics for group in known.wait_by_priority}, reverse=True)
    causes = in_order(blocked.cause for known in statistics for blocked in known.blocked)
    faults = [known.faults for known in statistics if known.faults is not None]
    parts = sorted({part for figures in faults for part in figures.failures})
    queues = sorted({one.name for known in statistics for one in known.queues})
    columns = (_lines(known, [str(priority) for priority in priorities], queues, causes, parts) for known in statistics)
    return [_row(lines) for lines in zip(*columns, strict=True) if any(line.value is not None for line in lines)]


def markdown_of(comparison: Comparison) -> str:
    """A comparison in Markdown, one table for each section."""
    heads = [_escaped(title) for title in comparison.titles]
    lines: list[str] = []
    section = ""
    for row in comparison.rows:
        if row.section != section:
            section = row.section
            lines += ["", f"| {' | '.join([_escaped(section), 'unit', *heads])} |", f"|---|---|{'---:|' * len(heads)}"]
        lines.append(f"| {' | '.join([_escaped(row.metric), row.unit, *row.cells()])} |")
    return "\n".join([*lines[1:], ""])


def _escaped(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").split())


def _row(lines: Sequence[_Line]) -> ComparisonRow:
    first = lines[0]
    return ComparisonRow(
        section=first.section,
        metric=first.metric,
        unit=first.unit,
        values=[line.value for line in lines],
        texts=[_text(line) for line in lines],
        changes=["", *(_change(first, line) for line in lines[1:])],
    )


def _text(line: _Line) -> str:
    if line.value is None:
        return NOTHING
    is_whole = isinstance(line.value, int)
    decimals = 0 if is_whole else _DECIMALS if line.unit == "ratio" else 1 if line.value < _FINE_BELOW else 0
    return f"{'>= ' if line.at_least else ''}{line.value:,.{decimals}f}"


def _change(first: _Line, line: _Line) -> str:
    """Difference to the first; empty when they are equal, or when one is unknown or a lower bound."""
    if first.value is None or line.value is None or first.at_least or line.at_least or first.value == line.value:
        return ""
    if line.unit == "%":
        return f"{line.value - first.value:+.1f} points"
    if first.value <= 0:
        return ""
    ratio = line.value / first.value
    return f"{ratio:,.0f} times" if ratio >= _TIMES_FROM else f"{ratio - 1:+.1%}".replace("%", " %")


def _lines(
    statistics: Statistics,
    priorities: Iterable[str],
    queues: Sequence[str],
    causes: Iterable[str],
    parts: Iterable[str],
) -> Iterator[_Line]:
    """All numbers of a timeline; the same lines for each timeline."""
    yield from _jobs(statistics)
    yield from _failures(statistics.faults, parts)
    yield from _times("waiting time", statistics.wait)
    yield from _times(f"waiting time of jobs of {LARGE_CHIPS} chips and more", statistics.wait_large)
    for group in statistics.wait_by_size:
        yield from _times(f"waiting time of jobs by chips: {group.name}", group.wait)
    waits = {group.name: group.wait for group in statistics.wait_by_priority}
    for name in priorities:
        yield from _times(f"waiting time of jobs of priority {name}", waits.get(name, Times()))
    yield from _queues(statistics, queues)
    yield from _starts(statistics.starts)
    yield from _times("completion time, from the request to the end", statistics.completion)
    yield from _use(statistics)
    yield from _spans("leaf switches", statistics.leaf_span)
    yield from _spans("SuperPoDs", statistics.superpod_span)
    yield from _blocked(statistics, causes)


def _queues(statistics: Statistics, names: Sequence[str]) -> Iterator[_Line]:
    """Waiting times of the jobs of each queue, and what part of the time of chips in use they had."""
    known = {one.name: one for one in statistics.queues}
    whole = sum(one.chip_h for one in statistics.queues)
    for name in names:
        one = known.get(name)
        section = f"jobs of queue {name}"
        yield from _times(f"waiting time of {section}", one.wait if one is not None else Times())
        yield _Line(section, "chip time", "chip h", one.chip_h if one is not None else None)
        yield _Line(
            section, "of that of all queues", "%", one.chip_h / whole * 100 if one is not None and whole else None
        )


def _starts(starts: StartFigures | None) -> Iterator[_Line]:
    """Lines of expected starts, without values where nobody was asked about."""
    section = "expected starts"
    one = starts if starts is not None else _NO_STARTS
    yield _Line(section, "jobs asked about", "", one.asked if starts is not None else None)
    yield _Line(section, "with a range", "%", _part(one.ranges, one.asked))
    yield _Line(section, "with a range: started within it", "%", _part(one.in_range, one.ranges))
    yield _Line(section, "with a range: wait within a factor of 2 of its mean", "%", _part(one.near, one.ranges))
    last_wait = _part(one.last_wait_near, one.last_wait)
    yield _Line(section, "last wait of as many chips: within a factor of 2", "%", last_wait)
    reserved = _part(one.reserved_near, one.reserved)
    yield _Line(section, "reservation of easy: within a factor of 2", "%", reserved)


def _jobs(statistics: Statistics) -> Iterator[_Line]:
    section = "jobs"
    yield _Line(section, "in all", "", statistics.jobs)
    yield _Line(section, "placed", "", statistics.placed)
    yield _Line(section, "rejected", "", statistics.turned_away)
    yield _Line(section, "cancelled before placement", "", statistics.taken_back)
    yield _Line(section, "still waiting at the end", "", statistics.waiting)
    yield _Line(section, "still running at the end", "", statistics.running)


def _times(section: str, times: Times) -> Iterator[_Line]:
    """Lines of times, without values when there are no jobs."""
    is_known = bool(times.jobs)
    yield _Line(section, "jobs", "", times.jobs if is_known else None)
    yield _Line(section, "mean", "s", times.mean_ms / _SECOND_MS if is_known else None, bool(times.unfinished))
    for name, taken_ms in (("p50", times.p50_ms), ("p95", times.p95_ms), ("p99", times.p99_ms), ("max", times.max_ms)):
        at_least = bool(times.unfinished) and (taken_ms >= times.known_below_ms or name == "max")
        yield _Line(section, name, "s", taken_ms / _SECOND_MS if is_known else None, at_least)


def _use(statistics: Statistics) -> Iterator[_Line]:
    section = "use of the chips"
    yield _Line(section, "makespan", "s", statistics.makespan_ms / _SECOND_MS, not statistics.is_over)
    yield _Line(section, "chips there, mean", "chips", statistics.chips_mean)
    yield _Line(section, "allocation ratio", "%", _percent(statistics.allocation_share))
    yield _Line(section, "allocation ratio, first to last request", "%", _percent(statistics.arrival_allocation_share))
    yield _Line(section, "idle, mean", "chips", statistics.idle_chips_mean)
    yield _Line(section, "idle on partly used nodes, mean", "chips", statistics.fragmented_chips_mean)
    yield _Line(section, "waiting, mean", "gangs", statistics.queue_mean)
    yield _Line(section, "waiting, max", "gangs", statistics.queue_max)


def _spans(section: str, span: Span) -> Iterator[_Line]:
    """Lines of the spans of jobs with several nodes."""
    is_known = bool(span.jobs)
    yield _Line(section, "jobs of several nodes", "", span.jobs if is_known else None)
    yield _Line(section, "span over the smallest possible, mean", "ratio", span.ratio_mean if is_known else None)
    yield _Line(section, "span over the smallest possible, p95", "ratio", span.ratio_p95 if is_known else None)
    yield _Line(section, "jobs that span more than they must", "%", _part(span.wider, span.jobs))
    yield _Line(section, "jobs on more than one", "%", _part(span.several, span.jobs))
    yield _Line(section, "jobs that fit one", "", span.could_fit if is_known else None)
    yield _Line(section, "jobs that fit one and use several", "%", _part(span.split, span.could_fit))


def _blocked(statistics: Statistics, causes: Iterable[str]) -> Iterator[_Line]:
    """Lines of idle chips that the first gang in the queue could not use, by cause."""
    known = {blocked.cause: blocked for blocked in statistics.blocked}
    is_measured = statistics.chips_mean is not None
    for cause in causes:
        chips, share = (known[cause].chips_mean, known[cause].time_share) if cause in known else (0.0, 0.0)
        section = "chips blocked while a gang waits"
        yield _Line(section, f"{cause}, mean", "chips", chips if is_measured else None)
        yield _Line(section, f"{cause}, part of the time", "%", _percent(share) if is_measured else None)


def _failures(faults: FaultFigures | None, parts: Iterable[str]) -> Iterator[_Line]:
    """Lines of failures, without values where none were simulated."""
    section = "training under failures"
    is_known = faults is not None
    shown = faults if faults is not None else _NO_FAULTS
    yield _Line(section, "effective training time ratio", "%", _percent(shown.ettr))
    lost_h = shown.redone_chip_h + shown.stopped_chip_h
    yield _Line(section, "lost", "chip h", lost_h if is_known else None)
    yield _Line(section, "lost: redone since a checkpoint", "chip h", shown.redone_chip_h if is_known else None)
    yield _Line(section, "lost: stopped", "chip h", shown.stopped_chip_h if is_known else None)
    yield _Line(section, "lost by ends for other jobs", "chip h", shown.ends_chip_h if shown.ends is not None else None)
    yield _Line(section, "ends for other jobs", "", shown.ends)
    for part in parts:
        yield _Line(section, f"failures: {part}", "", shown.failures.get(part, 0) if is_known else None)
    yield _Line(section, "jobs stopped", "", shown.interruptions if is_known else None)
    for scope in (*SCOPES, "none"):
        count = shown.by_scope.get(scope)
        yield _Line(section, f"jobs stopped, restarted: {scope}", "", count)
    yield _Line(section, "pods deleted", "", shown.pods if is_known else None)
    yield from _times("time from a failure to training", shown.restart)


def _part(count: int, of: int) -> float | None:
    return _percent(count / of) if of else None


def _percent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share
