"""Pictures of courses, drawn with matplotlib: use over time, waits, spans, blocked chips, map of the cluster.

Equal courses give equal bytes with the same release of matplotlib. Drawn without pyplot, so without a window system and
without state between pictures. Import it through :func:`berth.cli.simulation.pictures.drawing`: matplotlib is an
optional extra.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final, Literal

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator
from numpy.typing import NDArray

from berth.core.simulation.statistics import SIZE_CLASSES, in_order, size_class, statistics_of
from berth.core.simulation.timeline import JobTimeline, Moment, Timeline

Format = Literal["svg", "png"]
Columns = NDArray[np.float64]
WIDTH_IN: Final = 10.0
"""Width of every picture; inches."""
_STYLE: Final[dict[str, object]] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.dpi": 100,
    "font.size": 10,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 100,
    "svg.hashsalt": "berth",
    "text.parse_math": False,
}
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours, which colour-blind people can distinguish."""
_DASHES: Final = ("solid", "dashed", "dotted", "dashdot")
_CAUSE_COLOURS: Final = {
    "partial": "#e69f00",
    "scattered": "#56b4e9",
    "topology": "#0072b2",
    "reserved": "#cc79a7",
    "behind": "#999999",
    "constraint": "#009e73",
}
_USE_COLOUR: Final = "#a9b4bf"
_OTHER_COLOUR: Final = "#000000"
_WIDTHS: Final = (
    ("as few as possible", 1.0, "#deebf7"),
    ("up to 2 times", 2.0, "#9ecae1"),
    ("up to 4 times", 4.0, "#4292c6"),
    ("more", float("inf"), "#08306b"),
)
"""Bands of span over the smallest possible: name, maximum, colour."""
_UNITS: Final = ((172_800_000, 86_400_000, "d"), (7_200_000, 3_600_000, "h"), (120_000, 60_000, "min"), (0, 1000, "s"))
"""Units of a time axis: smallest length of the axis, length of the unit, its name; ms."""
_POINTS: Final = 500
"""Maximum number of points of a line; more are averaged over that number of equal intervals."""
_RANKS: Final = 300
"""Points of a distribution."""
_SHORTEST_S: Final = 1.0
_TICKS: Final = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d"))
"""Of an axis of waiting times: seconds, words."""
_TITLE_LETTERS: Final = 60
_NO_MOMENT: Final = Moment(0, 0, 0, 0, 0)
_ROW_IN: Final = 1.7
_HEAD_IN: Final = 0.9


@contextmanager
def styled() -> Iterator[None]:
    """Matplotlib's defaults and our changes to them, independent of the user's settings."""
    with style.context(["default", _STYLE]):
        yield


def rendered(figure: Figure, form: Format, *, transparent: bool = False) -> bytes:
    """A picture as a file: without date and release, so that equal pictures are equal files."""
    target = BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with styled():
        figure.savefig(target, format=form, metadata=metadata, transparent=transparent)
    return target.getvalue()


def use_over_time(courses: Sequence[Timeline]) -> Figure:
    """Existing chips and chips in use, one row per course, and below them the chips that waiting gangs request."""
    with styled():
        figure, rows = _stack(len(courses) + 1)
        scale, _ = _time_unit(courses)
        most = float(max((moment.chips for timeline in courses for moment in timeline.moments), default=0))
        for timeline, axes in zip(courses, rows, strict=False):
            time, values = _steps(timeline, lambda moment: (moment.used, moment.chips))
            axes.fill_between(time / scale, values[0], step="post", color=_USE_COLOUR, linewidth=0)
            axes.step(time / scale, values[1], where="post", color="#000000", linewidth=1)
            axes.set_title(title_of(timeline))
            axes.set_ylabel("chips")
            axes.set_ylim(0, max(1.0, 1.05 * most))
        most = 0.0
        for number, timeline in enumerate(courses):
            time, values = _steps(timeline, lambda moment: (moment.waiting_chips,))
            most = max(most, float(values.max()))
            rows[-1].step(time / scale, values[0], where="post", linewidth=1.2, **_line(number))
        rows[-1].set_title("Chips that waiting gangs ask for")
        rows[-1].set_ylabel("chips")
        rows[-1].set_ylim(0, max(1.0, 1.05 * most))
        _set_time(rows[-1], courses)
        in_use: list[Artist] = [Patch(color=_USE_COLOUR), Line2D([], [], color="#000000", linewidth=1)]
        _legend(figure, [*in_use, *_keys(courses)], ["in use", "there", *_titles(courses)])
        return figure


def waiting_by_class(courses: Sequence[Timeline]) -> Figure:
    """Share of the jobs of each size class that were placed within a time; one line a course."""
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 6.4), layout="constrained")
        grid = figure.subplots(2, 3, sharex=True, sharey=True, squeeze=False).flat
        placed = (job for timeline in courses for job in timeline.jobs if job.placed_ms >= 0)
        longest_s = 2.0 * max(_TICKS[1][0], max((job.placed_ms - job.asked_ms for job in placed), default=0) / 1000)
        for index, (known, axes) in enumerate(zip(SIZE_CLASSES, grid, strict=True)):
            jobs = 0
            for number, timeline in enumerate(courses):
                waits, members = _waits(timeline, index)
                jobs = max(jobs, members)
                if members:
                    shares, seconds = _distribution(waits, members, longest_s)
                    axes.step(seconds, shares, where="post", linewidth=1.5, **_line(number))
            axes.set_title(
                f"{known.name} chip{'s' * (known.least > 0)}" + (f", {jobs:,} jobs" if jobs else ": no jobs")
            )
            axes.set_xscale("log")
            axes.set_xlim(_SHORTEST_S, longest_s)
            axes.set_xticks([ticks_s for ticks_s, _ in _TICKS if ticks_s <= longest_s], minor=False)
            axes.set_xticklabels([words for ticks_s, words in _TICKS if ticks_s <= longest_s])
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(0, 105)
            axes.label_outer()
        figure.supxlabel("waiting time (logarithmic; one second or less at the left edge)", fontsize="medium")
        figure.supylabel("jobs placed within that time (%)", fontsize="medium")
        _legend(figure, _keys(courses), _titles(courses))
        return figure


def span_over_least(courses: Sequence[Timeline]) -> Figure:
    """Span of jobs of several nodes over the smallest possible, for leaf switches and for SuperPoDs."""
    with styled():
        figure = Figure(figsize=(WIDTH_IN, _HEAD_IN + 0.6 + 0.45 * max(1, len(courses))), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        _bars(left, courses, lambda job: (job.leaves, job.leaves_least))
        _bars(right, courses, lambda job: (job.superpods, job.superpods_least))
        left.set_title("Leaf switches")
        right.set_title("SuperPoDs")
        left.set_yticks(range(len(courses)), _titles(courses))
        left.set_ylim(max(1, len(courses)) - 0.4, -0.6)
        keys = [Patch(facecolor=colour, edgecolor="#555555", linewidth=0.5) for _, _, colour in _WIDTHS]
        _legend(figure, keys, [name for name, _, _ in _WIDTHS])
        return figure


def blocked_by_cause(courses: Sequence[Timeline]) -> Figure:
    """Idle chips while a gang waits, by the cause that keeps them from the first gang; one row per course."""
    with styled():
        figure, rows = _stack(max(1, len(courses)), sharey=True)
        scale, _ = _time_unit(courses)
        most = 0.0
        causes = in_order(cause for timeline in courses for moment in timeline.moments for cause in moment.blocked)
        colours = [_CAUSE_COLOURS.get(cause, _OTHER_COLOUR) for cause in causes]
        for timeline, axes in zip(courses, rows, strict=False):
            time, values = _steps(timeline, lambda moment: tuple(moment.blocked.get(cause, 0) for cause in causes))
            if causes:
                most = max(most, float(values.sum(axis=0).max()))
                axes.stackplot(time / scale, values, step="post", colors=colours, linewidth=0)
            axes.set_title(title_of(timeline))
            axes.set_ylabel("chips")
        rows[-1].set_ylim(0, max(1.0, 1.05 * most))
        _set_time(rows[-1], courses)
        _legend(figure, [Patch(color=colour) for colour in colours], causes)
        return figure


def lost_to_failures(courses: Sequence[Timeline]) -> Figure:
    """Chip hours that failures cost, by what they went to; one bar per course with failures."""
    shown = [timeline for timeline in courses if timeline.faults is not None]
    faults = [figures for timeline in shown if (figures := statistics_of(timeline).faults) is not None]
    with styled():
        figure, rows = _stack(1)
        axes = rows[0]
        places = np.arange(len(shown))
        before = np.zeros(len(shown))
        parts = (("stopped", "stopped_chip_h", "#d55e00"), ("redone since a checkpoint", "redone_chip_h", "#e69f00"))
        for _, field, colour in parts:
            lost = np.array([float(getattr(figures, field)) for figures in faults])
            axes.barh(places, lost, left=before, height=0.6, color=colour)
            before = before + lost
        axes.set_yticks(places, _titles(shown))
        axes.invert_yaxis()
        axes.set_xlabel("chip hours")
        _legend(figure, [Patch(color=colour) for _, _, colour in parts], [name for name, _, _ in parts])
        return figure


def title_of(timeline: Timeline) -> str:
    """Title of a course in one line of bounded length."""
    words = " ".join(timeline.title.split())
    return words if len(words) <= _TITLE_LETTERS else f"{words[: _TITLE_LETTERS - 3]}..."


def _titles(courses: Sequence[Timeline]) -> list[str]:
    return [title_of(timeline) for timeline in courses]


def _line(number: int) -> dict[str, Any]:
    """Style of a course's lines: colours first, then dashes."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
    }


def _keys(courses: Sequence[Timeline]) -> list[Artist]:
    return [Line2D([], [], linewidth=1.5, **_line(number)) for number in range(len(courses))]


def _legend(figure: Figure, keys: Sequence[Artist], names: Sequence[str]) -> None:
    """A legend above the picture; a name may begin with a line below, which matplotlib takes for "no name"."""
    if keys:
        names = [f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name for name in names]
        columns = 2 if max(map(len, names)) > _TITLE_LETTERS // 2 else 4
        figure.legend(keys, names, loc="outside upper left", ncols=columns)


def _stack(count: int, *, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A picture with so many rows over one axis of time, of one height if ``sharey``."""
    figure = Figure(figsize=(WIDTH_IN, _HEAD_IN + _ROW_IN * count), layout="constrained")
    return figure, figure.subplots(count, 1, sharex=True, sharey=sharey, squeeze=False)[:, 0].tolist()


def _time_unit(courses: Sequence[Timeline]) -> tuple[float, str]:
    """Length and name of the unit of time for these courses."""
    length_ms = max((timeline.end_ms - timeline.begin_ms for timeline in courses), default=0)
    return next((float(scale_ms), name) for least_ms, scale_ms, name in _UNITS if length_ms >= least_ms)


def _set_time(axes: Axes, courses: Sequence[Timeline]) -> None:
    """Limits and name of an axis of time that all courses share."""
    scale, unit = _time_unit(courses)
    length_ms = max((timeline.end_ms - timeline.begin_ms for timeline in courses), default=0)
    axes.set_xlim(0, length_ms / scale or 1.0)
    axes.set_xlabel(f"time since the start ({unit})")


def _steps(timeline: Timeline, read: Callable[[Moment], tuple[int, ...]]) -> tuple[Columns, Columns]:
    """Values over time as steps: milliseconds since the start, and a row for each value, the last one at the end.

    If there are too many points, they are averaged over equal intervals of time.
    """
    values = np.array([read(moment) for moment in timeline.moments], np.float64).T
    if not values.size:
        return np.zeros(2), np.zeros((len(read(_NO_MOMENT)), 2))
    edges = np.array([*(moment.at_ms for moment in timeline.moments), timeline.end_ms], np.float64) - timeline.begin_ms
    edges = np.clip(edges, 0, timeline.end_ms - timeline.begin_ms)
    if len(timeline.moments) > _POINTS and edges[-1] > edges[0]:
        sums = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * np.diff(edges), axis=1)], axis=1)
        even = np.linspace(edges[0], edges[-1], _POINTS + 1)
        upto = np.array([np.interp(even, edges, row) for row in sums])
        edges, values = even, np.diff(upto, axis=1) / np.diff(even)
    return edges, np.concatenate([values, values[:, -1:]], axis=1)


def _waits(timeline: Timeline, index: int) -> tuple[Columns, int]:
    """Waiting times of the placed jobs of a size class in seconds, ascending, and the number of its unplaced jobs."""
    members = [
        job for job in timeline.jobs if size_class(job.chips) == index and (job.placed_ms >= 0 or job.left_ms < 0)
    ]
    waits = sorted(job.placed_ms - job.asked_ms for job in members if job.placed_ms >= 0)
    return np.array(waits, np.float64) / 1000, len(members)


def _distribution(waits: Columns, members: int, longest_s: float) -> tuple[Columns, Columns]:
    """Percentage of the members that were placed within a time, and that time; reduced to visible points."""
    if not waits.size:
        return np.zeros(2), np.array([_SHORTEST_S, longest_s])
    ranks = np.unique(np.linspace(1, len(waits), min(len(waits), _RANKS)).round().astype(np.int64))
    seconds = np.maximum(waits[ranks - 1], _SHORTEST_S)
    shares = 100 * ranks / members
    return np.concatenate([[0], shares, shares[-1:]]), np.concatenate([seconds[:1], seconds, [longest_s]])


def _bars(axes: Axes, courses: Sequence[Timeline], widths: Callable[[JobTimeline], tuple[int, int]]) -> None:
    """One bar per course: shares of the jobs of several nodes by their span over the smallest possible."""
    for place, timeline in enumerate(courses):
        several_nodes = (widths(job) for job in timeline.jobs if job.placed_ms >= 0 and job.nodes > 1)
        ratios = np.array([width / least for width, least in several_nodes if width > 0 and least > 0])
        if not ratios.size:
            axes.text(1, place, "none of several nodes known", va="center", color="#555555")
            continue
        start, least = 0.0, 0.0
        for _, most, colour in _WIDTHS:
            share = 100 * float(((ratios > least) & (ratios <= most)).mean())
            axes.barh(place, share, left=start, height=0.7, color=colour, edgecolor="#555555", linewidth=0.5)
            start, least = start + share, most
        axes.text(101, place, f"mean {ratios.mean():.2f}", va="center", clip_on=False)
    axes.set_xlim(0, 120)
    axes.set_xticks(range(0, 101, 20))
    axes.set_xlabel("jobs of several nodes (%)")
    axes.grid(visible=False, axis="y")
