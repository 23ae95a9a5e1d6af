"""Report page of timelines: settings, statistics, pictures, and the map of the cluster over time with a slider.

It is one HTML file that needs no network: pictures are embedded, and its policy forbids loading anything else.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Final

import msgspec

from berth.cli.simulation.pictures import Film, Picture, drawn, filmed, has_map, write_file
from berth.core.simulation.comparison import ComparisonRow
from berth.core.simulation.timeline import Timeline

_TEMPLATE: Final = Path(__file__).with_name("report.html")
_FRAMES_MAX: Final = 240
"""Maximum number of frames of all maps together; they are most of the page."""
_FRAMES_LEAST: Final = 20
"""Minimum number of frames of each map."""
_SVG_BYTES_MAX: Final = 300_000
"""Maximum size of a picture as SVG, which is sharp at any size; a larger one uses the smaller format."""


def write_page(
    courses: Sequence[Timeline], rows: Sequence[ComparisonRow], path: Path, pictures: Sequence[Picture] | None = None
) -> None:
    """Write the page of courses.

    Args:
        courses: Side by side.
        rows: Their figures, in the order of the courses.
        path: Of the page; its folder is made.
        pictures: Of these courses; None if they are not drawn yet.

    Raises:
        CommandError: Matplotlib is missing, or the file cannot be written.
    """
    write_file(path, page_of(courses, rows, pictures).encode())


def page_of(
    courses: Sequence[Timeline], rows: Sequence[ComparisonRow], pictures: Sequence[Picture] | None = None
) -> str:
    """The page as HTML; equal courses give equal text, whether their pictures are drawn already or not.

    Raises:
        CommandError: Matplotlib is missing.
    """
    titles = [timeline.title for timeline in courses]
    mapped = [timeline for timeline in courses if has_map(timeline)]
    frames_max = max(_FRAMES_LEAST, _FRAMES_MAX // max(1, len(mapped)))
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(" · ".join(titles) or "no course"),
        settings=_settings(courses),
        figures="\n".join(
            _table(section, titles, list(part)) for section, part in groupby(rows, lambda row: row.section)
        ),
        pictures="\n".join(_picture(picture) for picture in (drawn(courses) if pictures is None else pictures)),
        films=_films([filmed(timeline, frames_max) for timeline in mapped]),
    )


def _settings(courses: Sequence[Timeline]) -> str:
    names = dict.fromkeys(name for timeline in courses for name in timeline.settings)
    if not names:
        return "<p>None are result.</p>"
    lines = []
    for name in names:
        cells = "".join(f"<td>{escape(timeline.settings.get(name, '-'))}</td>" for timeline in courses)
        lines.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    cells = "".join(f'<th scope="col">{escape(timeline.title)}</th>' for timeline in courses)
    head = f'<thead><tr><th scope="col">setting</th>{cells}</tr></thead>'
    return _scrolled(f"<table>{head}<tbody>{''.join(lines)}</tbody></table>")


def _table(section: str, titles: Sequence[str], rows: Sequence[ComparisonRow]) -> str:
    """Figures of a section."""
    lines = []
    for row in rows:
        unit = f" ({row.unit})" if row.unit else ""
        cells = "".join(_cell(text, change) for text, change in zip(row.texts, row.changes, strict=True))
        lines.append(f'<tr><th scope="row">{escape(row.metric + unit)}</th>{cells}</tr>')
    cells = "".join(f'<th scope="col" class="number">{escape(title)}</th>' for title in titles)
    head = f'<thead><tr><th scope="col">figure</th>{cells}</tr></thead>'
    return _scrolled(f"<table><caption>{escape(section)}</caption>{head}<tbody>{''.join(lines)}</tbody></table>")


def _cell(text: str, change: str) -> str:
    behind = f' <span class="change">({escape(change)})</span>' if change else ""
    return f'<td class="number">{escape(text)}{behind}</td>'


def _scrolled(table: str) -> str:
    """A table that may be wider than the window; it is focusable and so can be scrolled by keyboard."""
    return f'<div class="wide" tabindex="0" role="group">{table}</div>'


def _picture(picture: Picture) -> str:
    svg, png = picture.files["svg"], picture.files["png"]
    kind, content = ("svg+xml", svg) if len(svg) <= max(_SVG_BYTES_MAX, len(png)) else ("png", png)
    words = escape(picture.words)
    source = f"data:image/{kind};base64,{b64encode(content).decode()}"
    return f'<figure><img src="{source}" alt="{words}"><figcaption>{words}</figcaption></figure>'


def _films(films: Sequence[Film]) -> str:
    if not films:
        return ""
    parts = "\n".join(_film(film) for film in films)
    return f"<section>\n<h2>Map of the cluster over time</h2>\n{parts}\n</section>"


def _film(film: Film) -> str:
    """A map with its slider; all frames are in the page as JSON, the first is shown without script too."""
    frames = [(words, b64encode(png).decode()) for words, png in film.frames]
    result = msgspec.json.encode(frames).decode().replace("<", "\\u003c")
    title = escape(film.title)
    words, first = frames[0]
    return (
        f'<figure class="film"><figcaption>{title}</figcaption>'
        f'<div class="map"><img src="data:image/png;base64,{b64encode(film.ground).decode()}" alt="">'
        f'<img class="cells" src="data:image/png;base64,{first}" alt="Chips in use on each node: {title}"></div>'
        f'<div class="time"><label>moment <input type="range" min="0" max="{len(frames) - 1}" value="0" '
        f'aria-valuetext="{escape(words)}"></label><output>{escape(words)}</output></div>'
        f'<script type="application/json">{result}</script></figure>'
    )
