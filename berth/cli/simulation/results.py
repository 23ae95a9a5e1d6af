"""Results of ``berth simulate`` and ``berth what-if``: table, JSON, or a folder with report, pictures, statistics."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from berth.cli.output import emit, listed, print_progress, print_result, print_table, working
from berth.cli.simulation.course_maps import CourseMaps
from berth.cli.simulation.pictures import drawn, write_drawn, write_file
from berth.cli.simulation.report_page import PageText, write_page
from berth.cli.tables import Table
from berth.core.simulation.comparison import Comparison, ComparisonRow, compared, markdown_of
from berth.core.simulation.conclusion import conclusion_of
from berth.core.simulation.simulator import RejectedJob
from berth.core.simulation.statistics import Statistics, statistics_of
from berth.core.simulation.timeline import Timeline
from berth.core.text import pluralize

_TOLD_MAX: Final = 20
"""Rejected jobs that are listed one by one."""
_WITHOUT: Final = "waiting time of jobs by chips"
"""Sections that the terminal shows by their mean and p99 alone."""
_SHORT: Final = ("mean", "p99")


class Results(msgspec.Struct, frozen=True):
    """All results of a command."""

    source: str
    """File of the trace or the recording."""
    cluster: str
    conclusion: list[str]
    """What the figures show, in one to three sentences or short groups of them."""
    notes: list[str]
    """Values that were rounded, left out or assumed."""
    settings: dict[str, dict[str, str]]
    """Settings by title of the timeline."""
    turned_away: list[RejectedJob]
    """Jobs that can never be placed, of the first simulated course."""
    figures: list[Statistics]
    rows: list[ComparisonRow]
    """The figures side by side."""


def results_of(
    courses: Sequence[Timeline],
    *,
    source: str,
    cluster: str,
    notes: Sequence[str],
    turned_away: Sequence[RejectedJob],
    judged_from: int = 0,
    resolution_ms: int = 0,
) -> Results:
    """Figures of courses, side by side.

    Args:
        courses: A column each.
        source: File of the trace or the recording.
        cluster: The cluster in words.
        notes: Values that were rounded, left out or assumed.
        turned_away: Jobs that can never be placed, of the first simulated course.
        judged_from: First column that the conclusion is about.
        resolution_ms: Smaller differences of waiting times are not significant.
    """
    figures = [statistics_of(timeline) for timeline in courses]
    return Results(
        source=source,
        cluster=cluster,
        conclusion=conclusion_of(figures[judged_from:], resolution_ms=resolution_ms),
        notes=list(notes),
        settings={timeline.title: timeline.settings for timeline in courses},
        turned_away=list(turned_away),
        figures=figures,
        rows=compared(*figures).rows,
    )


def give(
    found: Results, courses: Sequence[Timeline], folder: Path | None, maps: CourseMaps | None = None, *, as_json: bool
) -> None:
    """Print results as text or JSON, and write them into a folder if one is named.

    Args:
        found: The results.
        courses: The timelines that they are of.
        folder: The folder.
        maps: Maps of the courses over time.
        as_json: Print JSON.

    Raises:
        CommandError: See :func:`write_folder`.
    """
    if as_json:
        emit(found)
    else:
        show(found)
    if folder is not None:
        write_folder(found, courses, folder, maps)


def show(found: Results) -> None:
    """Print results as text, the conclusion first."""
    for sentence in found.conclusion:
        print_result(sentence)
    for note in found.notes:
        print_result(f"note: {note}")
    for line in settings_lines(found):
        print_result(line)
    for line in turned_away_lines(found.turned_away):
        print_result(line)
    table, left_out = table_of(found)
    print_table(table)
    if left_out:
        print_result(f"left out: {', '.join(left_out)} of {_WITHOUT}; print them with --json")


def table_of(found: Results) -> tuple[Table, list[str]]:
    """The figures side by side, and names of those that are left out of some sections."""
    table = Table("FIGURE", "UNIT", *(figures.title for figures in found.figures))
    left_out: dict[str, None] = {}
    for section, rows in groupby(found.rows, lambda row: row.section):
        is_short = section.startswith(_WITHOUT)
        table.add_section(section)
        for row in rows:
            if is_short and row.metric not in _SHORT:
                left_out[row.metric] = None
            else:
                table.add_row(row.metric, row.unit, *row.texts)
    return table, list(left_out)


def settings_lines(found: Results) -> list[str]:
    """Settings, those that all courses share first."""
    result = list(found.settings.items())
    first = result[0][1]
    shared = {key: value for key, value in first.items() if all(words.get(key) == value for _, words in result)}
    lines = [f"{key}: {value}" for key, value in shared.items()]
    for title, words in result:
        own = [f"{key}={value}" for key, value in words.items() if key not in shared]
        if own:
            lines.append(f"{title}: {', '.join(own)}")
    return lines


def turned_away_lines(jobs: Sequence[RejectedJob]) -> list[str]:
    """A sentence for each job that can never be placed."""
    lines = [
        f"rejected: {job.namespace}/{job.name} ({pluralize(job.chips, 'chip')} in {pluralize(job.pods, 'pod')}): {job.code}"
        + (f", {job.field} is {job.value}" if job.field else "")
        + (f", {job.expected}" if job.expected else "")
        for job in jobs[:_TOLD_MAX]
    ]
    if len(jobs) > _TOLD_MAX:
        lines.append(f"rejected: {len(jobs) - _TOLD_MAX:,} more; list all of them with --json")
    return lines


def markdown(found: Results, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """Results as Markdown; ``pictures`` are files and their captions."""
    titles = [figures.title for figures in found.figures]
    comparison = Comparison(titles, found.rows)
    parts = [f"# {found.source} on {found.cluster}", "", " ".join(found.conclusion), ""]
    parts += [f"- {line}" for line in settings_lines(found)]
    parts += [f"- note: {note}" for note in found.notes]
    parts += [f"- {line}" for line in turned_away_lines(found.turned_away)]
    parts += ["", "Differences in brackets are to the first column.", "", markdown_of(comparison)]
    parts += [f"![{words}]({name})" for name, words in pictures]
    return "\n".join(parts).rstrip() + "\n"


def write_folder(found: Results, courses: Sequence[Timeline], folder: Path, maps: CourseMaps | None) -> None:
    """Write ``report.html``, ``map.html``, pictures, ``results.json`` and ``results.md``, and print the folder.

    Args:
        found: The results.
        courses: The timelines that they are of.
        folder: The folder, which is made.
        maps: Maps of the courses over time; without them there is no ``map.html``.

    Raises:
        CommandError: Matplotlib is missing, or a file cannot be written.
    """
    write_file(folder / "results.json", msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    write_file(folder / "results.md", markdown(found).encode())
    map_file = maps.write(folder) if maps is not None else ""
    with working("drawing pictures"):
        pictures = drawn(courses)
        paths = write_drawn(pictures, folder)
        text = PageText(
            f"{found.source} on {found.cluster}",
            found.conclusion,
            [*found.notes, *turned_away_lines(found.turned_away)],
            map_file,
        )
        write_page(courses, found.rows, text, folder / "report.html")
    names = [
        "report.html",
        *([map_file] if map_file else []),
        "results.json",
        "results.md",
        *(path.name for path in paths),
    ]
    print_progress(f"{folder}: {listed(names, len(names))}")
