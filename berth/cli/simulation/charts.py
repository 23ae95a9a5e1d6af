"""Charts of timelines: use over time, waiting times, spans, blocked chips, and what failures cost.

Timelines whose curves are equal share a panel, a line or a bar, and an entry of the legend. Panels without data are
left out; the caption says what is missing. Legends name only what is drawn.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator, StrMethodFormatter

from berth.cli.simulation.drawing import (
    Chart,
    faint,
    legend,
    line_style,
    set_time,
    stacked,
    styled,
    time_unit,
    title_of,
    title_of_all,
)
from berth.cli.simulation.palette import BANDS, BLUE, FAINT, GOLD, GREEN, INK, PINK, RED, USE, VIOLET, Look
from berth.cli.simulation.series import (
    SHORTEST_S,
    Shares,
    alike,
    bytes_of,
    distribution,
    shares_of,
    steps,
    waits_s,
)
from berth.core.simulation.statistics import SIZE_CLASSES, in_order, statistics_of
from berth.core.simulation.timeline import Timeline

_CAUSE_COLOURS: Final = {
    "partial": GOLD,
    "scattered": BLUE,
    "topology": RED,
    "reserved": PINK,
    "behind": VIOLET,
    "constraint": GREEN,
}
_BAND_NAMES: Final = ("as few as possible", "up to 2 times", "up to 4 times", "more")
_LOST: Final = (("stopped", "stopped_chip_h", BLUE), ("redone since a checkpoint", "redone_chip_h", GOLD))
"""Parts of what failures cost: name, field of the statistics, colour."""
_POINTS: Final = 500
"""Maximum number of points of a line; more are averaged over that number of equal intervals."""
_NARROW_POINTS: Final = 250
_TICKS: Final = ((1, "1 s"), (60, "1 min"), (3600, "1 h"), (86_400, "1 d"), (864_000, "10 d"), (8_640_000, "100 d"))
"""Of an axis of waiting times: seconds, words."""
_COLUMNS: Final = 3
"""Panels side by side."""
_FULL: Final = 100.0


def use_over_time(courses: Sequence[Timeline], look: Look) -> Chart:
    """Available chips and chips in use, a panel per course, and below them the chips that waiting gangs ask for."""
    known = [timeline for timeline in courses if timeline.moments]
    if not known:
        return Chart(None, "No use of chips over time is known.")
    points = _NARROW_POINTS if look.is_narrow else _POINTS
    scale, _ = time_unit(known)
    uses = [steps(timeline, lambda moment: (moment.used, moment.chips), points) for timeline in known]
    queues = [steps(timeline, lambda moment: (moment.waiting_chips,), points) for timeline in known]
    panels = alike([bytes_of(*use) for use in uses])
    lines = [places for places in alike([bytes_of(*queue) for queue in queues]) if queues[places[0]][1].any()]
    with styled(look):
        figure, rows = stacked(len(panels) + bool(lines), look)
        most = max(float(values.max()) for _, values in uses)
        in_use: list[Artist] = [Patch(color=look.shade(USE)), Line2D([], [], color=look.shade(INK), linewidth=1)]
        for places, axes in zip(panels, rows, strict=False):
            time, values = uses[places[0]]
            axes.fill_between(time / scale, values[0], step="post", color=look.shade(USE), linewidth=0)
            axes.step(time / scale, values[1], where="post", color=look.shade(INK), linewidth=1)
            axes.set_title(title_of_all(known, places, look))
            _set_chips(axes, most)
        if lines:
            axes = rows[-1]
            for number, places in enumerate(lines):
                time, values = queues[places[0]]
                axes.step(time / scale, values[0], where="post", linewidth=1.3, **line_style(number, look))
            axes.set_title("Chips that waiting gangs ask for")
            _set_chips(axes, max(float(queues[places[0]][1].max()) for places in lines))
        set_time(rows[-1], known, look)
        many = lines if len(known) > 1 else []
        legend(
            figure,
            [*in_use, *_line_keys(len(many), look)],
            ["in use", "available", *(title_of_all(known, places, look) for places in many)],
            look,
        )
        words = "Chips in use and available" + (", and chips that waiting gangs ask for, over time." if lines else ".")
        none_waited = "" if lines else " No gang waited."
        return Chart(figure, f"{words}{none_waited}{_left_out(courses, known)}")


def waiting_by_class(courses: Sequence[Timeline], look: Look) -> Chart:
    """Share of the jobs of each size class that were placed within a time; one line per course."""
    known = [timeline for timeline in courses if any(waits_s(timeline, index)[1] for index in range(len(SIZE_CLASSES)))]
    if not known:
        return Chart(None, "No job waited for a placement.")
    placed = (job for timeline in known for job in timeline.jobs if job.placed_ms >= 0)
    longest_s = 2.0 * max(_TICKS[1][0], max((job.placed_ms - job.asked_ms for job in placed), default=0) / 1000)
    curves = [
        [
            (*distribution(waits, members, longest_s), members) if members else None
            for waits, members in (waits_s(timeline, index) for index in range(len(SIZE_CLASSES)))
        ]
        for timeline in known
    ]
    lines = alike([tuple(curve and bytes_of(*curve[:2]) for curve in found) for found in curves])
    shown = [index for index in range(len(SIZE_CLASSES)) if any(found[index] for found in curves)]
    with styled(look):
        figure, panels = _grid(len(shown), look)
        for index, axes in zip(shown, panels, strict=True):
            counts = set()
            for number, places in enumerate(lines):
                curve = curves[places[0]][index]
                if curve:
                    shares, seconds, _ = curve
                    axes.step(seconds, shares, where="post", linewidth=1.6, **line_style(number, look))
                counts |= {found[2] for found in (curves[place][index] for place in places) if found}
            size = SIZE_CLASSES[index]
            range_ = f"{min(counts):,}" if len(counts) == 1 else f"{min(counts):,} to {max(counts):,}"
            unit = f"chip{'s' * (size.least > 0)}"
            axes.set_title(f"{size.name} {unit}, {range_} job{'s' * (counts != {1})}")
            axes.set_xscale("log")
            axes.set_xlim(SHORTEST_S, longest_s)
            ticks = [tick for tick in _TICKS if tick[0] <= longest_s]
            axes.set_xticks([ticks_s for ticks_s, _ in ticks], [words for _, words in ticks], minor=False)
            axes.xaxis.set_minor_locator(NullLocator())
            axes.set_ylim(0, 105)
        figure.supxlabel("waiting time (logarithmic; 1 s or less at the left)", fontsize="medium")
        figure.supylabel("jobs placed within that time (%)", fontsize="medium")
        if len(known) > 1:
            names = [title_of_all(known, places, look) for places in lines]
            legend(figure, _line_keys(len(lines), look), names, look)
        words = "Waiting time by size of the jobs: share of the jobs that were placed within a time."
        return Chart(figure, f"{words}{_left_out(courses, known)}")


def span_over_minimum(courses: Sequence[Timeline], look: Look) -> Chart:
    """Span of jobs of several nodes over the smallest possible, for leaf switches and for SuperPoDs."""
    shares = [
        [shares_of(timeline, lambda job: (job.leaves, job.leaves_least)) for timeline in courses],
        [shares_of(timeline, lambda job: (job.superpods, job.superpods_least)) for timeline in courses],
    ]
    names = ("Leaf switches", "SuperPoDs")
    shown = [kind for kind, found in enumerate(shares) if any(found)]
    if not shown:
        return Chart(None, "No placed job of several nodes has a known span over leaf switches or SuperPoDs.")
    places = [place for place in range(len(courses)) if any(shares[kind][place] for kind in shown)]
    known = [courses[place] for place in places]
    bars = alike([tuple(shares[kind][place] for kind in shown) for place in places])
    used = [
        band for band in range(len(BANDS)) if any(one.bands[band] > 0 for kind in shown for one in shares[kind] if one)
    ]
    panels = len(shown)
    tall, wide = (panels, 1) if look.is_narrow else (1, panels)
    with styled(look):
        titles = [title_of_all(known, group, look) for group in bars]
        figure = Figure(figsize=(look.width_in, _bars_in(titles) * tall + 0.5), layout="constrained")
        for axes, kind in zip(figure.subplots(tall, wide, squeeze=False).flat, shown, strict=True):
            for row, group in enumerate(bars):
                _share_bar(axes, row, shares[kind][places[group[0]]], look)
                _name_bar(axes, row, titles[row])
            axes.set_title(f"{names[kind]} of jobs of several nodes")
            axes.set_xlim(0, 132 if look.is_narrow else 118)
            axes.set_xticks(range(0, 101, 20))
            axes.set_xlabel("share of these jobs (%)")
            _set_bars(axes, titles)
        keys = [_band_key(band, look) for band in used]
        legend(figure, keys, [_BAND_NAMES[band] for band in used], look)
        words = f"{' and '.join(names[kind] for kind in shown)} of jobs over the fewest possible."
        return Chart(figure, f"{words}{_left_out(courses, known)}")


def blocked_by_cause(courses: Sequence[Timeline], look: Look) -> Chart:
    """Idle chips while a gang waits, by the cause that keeps them from the first gang; a panel per course."""
    blocked = [[found.cause for found in statistics_of(timeline).blocked] for timeline in courses]
    known = [timeline for timeline, causes in zip(courses, blocked, strict=True) if causes]
    if not known:
        return Chart(None, "No chips were idle while a gang waited.")
    causes = in_order(cause for found in blocked for cause in found)
    points = _NARROW_POINTS if look.is_narrow else _POINTS
    scale, _ = time_unit(known)
    series = [
        steps(timeline, lambda moment: tuple(moment.blocked.get(cause, 0) for cause in causes), points)
        for timeline in known
    ]
    panels = alike([bytes_of(*found) for found in series])
    colours = [look.shade(_CAUSE_COLOURS.get(cause, INK)) for cause in causes]
    with styled(look):
        figure, rows = stacked(len(panels), look)
        most = max(float(values.sum(axis=0).max()) for _, values in series)
        for places, axes in zip(panels, rows, strict=True):
            time, values = series[places[0]]
            drawn = [row for row in range(len(causes)) if values[row].any()]
            axes.stackplot(
                time / scale, values[drawn], step="post", colors=[colours[row] for row in drawn], linewidth=0
            )
            axes.set_title(title_of_all(known, places, look))
            _set_chips(axes, most)
        set_time(rows[-1], known, look)
        legend(figure, [Patch(color=colour) for colour in colours], causes, look)
        words = "Idle chips while a gang waits, by what keeps them from it."
        return Chart(figure, f"{words}{_left_out(courses, known)}")


def lost_to_failures(courses: Sequence[Timeline], look: Look) -> Chart:
    """Chip hours that failures cost, by what they went to; one bar per course with failures."""
    known = [timeline for timeline in courses if timeline.faults is not None]
    faults = [figures for timeline in known if (figures := statistics_of(timeline).faults) is not None]
    lost = np.array([[float(getattr(figures, field)) for _, field, _ in _LOST] for figures in faults])
    if not lost.any():
        return Chart(None, "Failures cost no chip hours.")
    parts = [part for part in range(len(_LOST)) if lost[:, part].any()]
    bars = alike([bytes_of(row) for row in lost])
    with styled(look):
        titles = [title_of_all(known, group, look) for group in bars]
        figure = Figure(figsize=(look.width_in, _bars_in(titles) + 0.5), layout="constrained")
        axes = figure.subplots()
        for row, group in enumerate(bars):
            before = 0.0
            for part in parts:
                value = float(lost[group[0], part])
                axes.barh(row, value, left=before, height=0.5, color=look.shade(_LOST[part][2]))
                before += value
            axes.text(before, row, f" {before:,.0f}", va="center")
            _name_bar(axes, row, titles[row])
        axes.set_xlim(0, 1.15 * float(lost.sum(axis=1).max()))
        axes.set_xlabel("chip hours")
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        _set_bars(axes, titles)
        legend(
            figure,
            [Patch(color=look.shade(_LOST[part][2])) for part in parts],
            [_LOST[part][0] for part in parts],
            look,
        )
        return Chart(figure, f"Chip hours that failures cost.{_left_out(courses, known)}")


def _left_out(courses: Sequence[Timeline], known: Sequence[Timeline]) -> str:
    """A sentence on courses without data; empty if there are none."""
    missing = [title_of(timeline) for timeline in courses if all(timeline is not one for one in known)]
    titles = " \N{MIDDLE DOT} ".join(missing)
    return f" Without such data: {titles}." if missing else ""


def _line_keys(count: int, look: Look) -> list[Artist]:
    return [Line2D([], [], linewidth=1.6, **line_style(number, look)) for number in range(count)]


def _set_chips(axes: Axes, most: float) -> None:
    axes.set_ylabel("chips")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_ylim(0, max(1.0, 1.05 * most))


def _grid(count: int, look: Look) -> tuple[Figure, list[Axes]]:
    """Panels of equal axes: several in a row, or below one another."""
    columns = 1 if look.is_narrow else min(_COLUMNS, count)
    rows = -(-count // columns)
    height_in = 1.0 + (1.35 if look.is_narrow else 2.5) * rows
    figure = Figure(figsize=(look.width_in, height_in), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel().tolist()
    for unused in panels[count:]:
        unused.remove()
    for place, axes in enumerate(panels[:count]):
        is_lowest = place + columns >= count
        axes.tick_params(labelbottom=is_lowest, bottom=is_lowest, labelleft=not place % columns)
    return figure, panels[:count]


def _share_bar(axes: Axes, row: int, shares: Shares | None, look: Look) -> None:
    """A bar of shares of spans with their mean."""
    if shares is None:
        axes.text(1, row, "none known", va="center", color=faint(look))
        return
    start = 0.0
    for colour, share in zip(BANDS, shares.bands, strict=True):
        if share:
            axes.barh(
                row, share, left=start, height=0.5, color=look.shade(colour), edgecolor=look.shade(FAINT), linewidth=0.5
            )
        start += share
    axes.text(_FULL + 1, row, f"mean {shares.mean:.2f}", va="center")


def _band_key(band: int, look: Look) -> Artist:
    return Patch(facecolor=look.shade(BANDS[band]), edgecolor=look.shade(FAINT), linewidth=0.5)


def _lines(titles: Sequence[str]) -> int:
    """Lines of the longest name."""
    return max(title.count("\n") + 1 for title in titles)


def _bars_in(titles: Sequence[str]) -> float:
    """Height of a panel of bars."""
    return 0.8 + (0.4 + 0.15 * _lines(titles)) * len(titles)


def _name_bar(axes: Axes, row: int, name: str) -> None:
    """The name of a bar, above it."""
    axes.text(0, row - 0.3, name, va="bottom", ha="left", fontsize="small")


def _set_bars(axes: Axes, titles: Sequence[str]) -> None:
    axes.set_yticks([])
    axes.set_ylim(len(titles) - 0.6, -0.45 - 0.3 * _lines(titles))
    axes.grid(visible=False, axis="y")


CHARTS: Final[dict[str, Callable[[Sequence[Timeline], Look], Chart]]] = {
    "use": use_over_time,
    "waiting": waiting_by_class,
    "span": span_over_minimum,
    "blocked": blocked_by_cause,
    "failures": lost_to_failures,
}
"""All charts by the name of their files."""
