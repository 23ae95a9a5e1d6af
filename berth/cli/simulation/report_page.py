"""Report page of timelines: conclusion, charts, a link to the map over time, figures, settings.

It is one HTML file that needs no network: pictures are embedded, and its policy forbids loading anything else. Charts
are SVG elements, whose colours follow the theme of the reader. There are two of each, for a wide and for a narrow
window. Where these are too large, the page has PNG for each window and theme.
"""

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

from berth.cli.simulation.inline_svg import inlined
from berth.cli.simulation.palette import WIDE, Look, css
from berth.cli.simulation.pictures import Sketch, sketched, write_file
from berth.core.simulation.comparison import ComparisonRow
from berth.core.simulation.timeline import Timeline

_TEMPLATE: Final = Path(__file__).with_name("report.html")
_SVG_LETTERS_MAX: Final = 500_000
"""Maximum size of a chart as SVG elements, which are sharp at any size; a larger one is PNG."""
_NARROW: Final = "(max-width: 640px)"
_DARK: Final = "(prefers-color-scheme: dark)"
_PHONE: Final = Look(is_narrow=True)
_LOOKS: Final = (
    (f"{_NARROW} and {_DARK}", Look(is_narrow=True, is_dark=True)),
    (_NARROW, _PHONE),
    (_DARK, Look(is_dark=True)),
)
"""Looks of PNG by the windows and themes that they are for, the first that fits is shown."""
_NO_VALUE: Final = "-"


class PageText(NamedTuple):
    """What the page says besides charts and figures.

    Attributes:
        heading: Heading of the page.
        conclusion: What the figures show.
        notes: What else the reader has to know: what was assumed, and which jobs were rejected.
        map_file: File with the map over time, beside the page; empty without one.
    """

    heading: str
    conclusion: Sequence[str] = ()
    notes: Sequence[str] = ()
    map_file: str = ""


def write_page(courses: Sequence[Timeline], rows: Sequence[ComparisonRow], text: PageText, path: Path) -> None:
    """Write the page of courses.

    Args:
        courses: Side by side.
        rows: Their figures, in the order of the courses.
        text: What it says besides.
        path: Of the page; its folder is made.

    Raises:
        CommandError: Matplotlib is missing, or the file cannot be written.
    """
    write_file(path, page_of(courses, rows, text).encode())


def page_of(courses: Sequence[Timeline], rows: Sequence[ComparisonRow], text: PageText) -> str:
    """The page as HTML; equal courses give equal text.

    Raises:
        CommandError: Matplotlib is missing.
    """
    titles = [timeline.title for timeline in courses]
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        title=escape(text.heading),
        light=css(WIDE),
        dark=css(Look(is_dark=True)),
        columns=escape(" \N{MIDDLE DOT} ".join(titles)),
        conclusion="\n".join(f"<p>{escape(line)}</p>" for line in text.conclusion),
        notes=_notes(text.notes),
        settings=_settings(courses),
        figures="\n".join(
            _table(section, titles, list(part)) for section, part in groupby(rows, lambda row: row.section)
        ),
        pictures="\n".join(_picture(sketch) for sketch in sketched(courses)),
        map=_map(text.map_file),
    )


def _notes(notes: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f'<section aria-label="Notes" class="notes"><ul>{items}</ul></section>' if items else ""


def _settings(courses: Sequence[Timeline]) -> str:
    """Settings that differ side by side, then those that all courses share."""
    names = list(dict.fromkeys(name for timeline in courses for name in timeline.settings))
    if not names:
        return "<p>No settings are known.</p>"
    values = {name: [timeline.settings.get(name, _NO_VALUE) for timeline in courses] for name in names}
    shared = [name for name in names if len(set(values[name])) == 1]
    own = [name for name in names if name not in shared]
    titles = [timeline.title for timeline in courses]
    tables = _setting_table("settings that differ", titles, {name: values[name] for name in own}) if own else ""
    words = "settings of all columns" if len(courses) > 1 else "settings"
    return tables + (_setting_table(words, ["value"], {name: values[name][:1] for name in shared}) if shared else "")


def _setting_table(caption: str, heads: Sequence[str], values: dict[str, list[str]]) -> str:
    lines = [
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in found)}</tr>'
        for name, found in values.items()
    ]
    cells = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    return _scrolled(caption, f'<thead><tr><th scope="col">setting</th>{cells}</tr></thead>', lines)


def _table(section: str, titles: Sequence[str], rows: Sequence[ComparisonRow]) -> str:
    """Figures of a section."""
    lines = []
    for row in rows:
        unit = f" ({row.unit})" if row.unit else ""
        cells = "".join(_cell(text, change) for text, change in zip(row.texts, row.changes, strict=True))
        lines.append(f'<tr><th scope="row">{escape(row.metric + unit)}</th>{cells}</tr>')
    cells = "".join(f'<th scope="col" class="number">{escape(title)}</th>' for title in titles)
    return _scrolled(section, f'<thead><tr><th scope="col">figure</th>{cells}</tr></thead>', lines)


def _cell(text: str, change: str) -> str:
    behind = f' <span class="change">({escape(change)})</span>' if change else ""
    return f'<td class="number">{escape(text)}{behind}</td>'


def _scrolled(caption: str, head: str, lines: Sequence[str]) -> str:
    """A table that may be wider than the window; it is focusable and so can be scrolled by keyboard."""
    words = escape(caption)
    body = f"<table><caption>{words}</caption>{head}<tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="wide" tabindex="0" role="group" aria-label="{words}">{body}</div>'


def _picture(sketch: Sketch) -> str:
    """A chart for wide and for narrow windows, or a sentence if there is nothing to show."""
    words = escape(sketch.words)
    draw = sketch.draw
    if draw is None:
        return f'<p class="none">{words}</p>'
    looks = ((WIDE, "at-wide"), (_PHONE, "at-narrow")) if sketch.has_windows else ((WIDE, "at-all"),)
    content = "".join(
        inlined(draw("svg", look), sketch.words, prefix=f"{sketch.name}-{css_class}-", css_class=css_class)
        for look, css_class in looks
    )
    if len(content) > _SVG_LETTERS_MAX:
        content = _photos(sketch)
    return f"<figure>{content}<figcaption>{words}</figcaption></figure>"


def _photos(sketch: Sketch) -> str:
    """A chart as PNG for each theme, and for each window if it is another one there."""
    draw = sketch.draw
    if draw is None:
        return ""
    looks = [(media, look) for media, look in _LOOKS if sketch.has_windows or not look.is_narrow]
    sources = "".join(f'<source media="{media}" srcset="{_data(draw("png", look))}">' for media, look in looks)
    return f'<picture>{sources}<img src="{_data(draw("png", WIDE))}" alt="{escape(sketch.words)}"></picture>'


def _data(png: bytes) -> str:
    return f"data:image/png;base64,{b64encode(png).decode()}"


def _map(file: str) -> str:
    """Section with a link to the map over time; nothing without one."""
    if not file:
        return ""
    return (
        "<section>\n<h2>Map of the cluster over time</h2>\n"
        f'<p><a href="{escape(file)}">{escape(file)}</a>, a file beside this one, shows nodes and chips, queue and jobs of'
        " each column at each moment, with a slider and a play button.</p>\n</section>"
    )
