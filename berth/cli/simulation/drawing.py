"""Figures of matplotlib in the style of Berth: their looks, legends and files.

Equal figures give equal bytes with the same release of matplotlib. Drawn without pyplot, so without a window system and
without state between figures. Import it when it is needed: matplotlib is an optional extra.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from textwrap import fill
from typing import Any, Final, Literal, NamedTuple

from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from berth.cli.simulation.palette import FAINT, GRID, GROUND, INK, LINES, WIDE, Look
from berth.core.simulation.timeline import Timeline

Format = Literal["svg", "png"]
WIDTH_IN: Final = WIDE.width_in
"""Width of a wide figure; inches."""
_STYLE: Final[dict[str, object]] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "figure.dpi": 100,
    "font.size": 10,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.dpi": 100,
    "svg.fonttype": "none",
    "svg.hashsalt": "berth",
    "text.parse_math": False,
}
_INKED: Final = ("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color")
_PAINTED: Final = ("axes.facecolor", "figure.facecolor", "savefig.facecolor")
_NARROW_STYLE: Final[dict[str, object]] = {"font.size": 9, "savefig.dpi": 200}
_DASHES: Final = ("solid", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
_UNITS: Final = ((172_800_000, 86_400_000, "d"), (7_200_000, 3_600_000, "h"), (120_000, 60_000, "min"), (0, 1000, "s"))
"""Units of a time axis: smallest length of the axis, length of the unit, its name; ms."""
_TITLE_LETTERS: Final = 60
_ROW_IN: Final = 1.7
_HEAD_IN: Final = 0.9


class Chart(NamedTuple):
    """A figure with its caption.

    Attributes:
        figure: The figure; None if there is nothing to show.
        words: Caption, or why there is no figure; sentences.
    """

    figure: Figure | None
    words: str


@contextmanager
def styled(look: Look = WIDE) -> Iterator[None]:
    """Matplotlib's defaults and our changes to them, independent of the user's settings."""
    colours = dict.fromkeys(_INKED, look.shade(INK)) | dict.fromkeys(_PAINTED, look.shade(GROUND))
    own = {**_STYLE, **colours, "grid.color": look.shade(GRID), **(_NARROW_STYLE if look.is_narrow else {})}
    with style.context(["default", own]):
        yield


def rendered(figure: Figure, form: Format, look: Look = WIDE, *, transparent: bool = False) -> bytes:
    """A figure as a file: without date and release, so that equal figures are equal files."""
    target = BytesIO()
    metadata = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
    with styled(look):
        figure.savefig(target, format=form, metadata=metadata, transparent=transparent)
    return target.getvalue()


def title_of(timeline: Timeline) -> str:
    """Title of a course in one line of bounded length."""
    words = " ".join(timeline.title.split())
    return words if len(words) <= _TITLE_LETTERS else f"{words[: _TITLE_LETTERS - 3]}..."


def title_of_all(courses: Sequence[Timeline], places: Sequence[int], look: Look) -> str:
    """Title of courses that look the same, in lines that have room."""
    titles = " \N{MIDDLE DOT} ".join(title_of(courses[place]) for place in places)
    words = f"{titles} (equal)" if len(places) > 1 else titles
    return fill(words, look.letters, break_on_hyphens=False)


def line_style(number: int, look: Look) -> dict[str, Any]:
    """Style of a line; neighbours differ in colour and in dashes."""
    return {"color": look.shade(LINES[number % len(LINES)]), "linestyle": _DASHES[number % len(_DASHES)]}


def legend(target: Figure, keys: Sequence[Artist], names: Sequence[str], look: Look) -> None:
    """A legend above a figure; a name may begin with a line below, which matplotlib takes for "no name"."""
    if keys:
        names = [f"\N{ZERO WIDTH SPACE}{name}" if name.startswith("_") else name for name in names]
        longest = max(len(line) for name in names for line in name.splitlines() or [""])
        columns = max(1, min(4, len(names), look.letters // (longest + 6)))
        target.legend(keys, names, loc="outside upper left", ncols=columns, columnspacing=1.2, borderaxespad=0.2)


def stacked(count: int, look: Look) -> tuple[Figure, list[Axes]]:
    """A figure with so many rows over one axis of time."""
    row_in = _ROW_IN * (0.85 if look.is_narrow else 1)
    figure = Figure(figsize=(look.width_in, _HEAD_IN + row_in * count), layout="constrained")
    return figure, figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0].tolist()


def time_unit(courses: Sequence[Timeline]) -> tuple[float, str]:
    """Length and name of the unit of time for these courses."""
    length_ms = max((timeline.end_ms - timeline.begin_ms for timeline in courses), default=0)
    return next((float(scale_ms), name) for least_ms, scale_ms, name in _UNITS if length_ms >= least_ms)


def set_time(axes: Axes, courses: Sequence[Timeline], look: Look) -> None:
    """Limits and name of an axis of time that all courses share."""
    scale, unit = time_unit(courses)
    length_ms = max((timeline.end_ms - timeline.begin_ms for timeline in courses), default=0)
    axes.set_xlim(0, length_ms / scale or 1.0)
    axes.set_xlabel(f"time since the start ({unit})")
    if look.is_narrow:
        axes.xaxis.set_major_locator(MaxNLocator(5))


def faint(look: Look) -> str:
    """Colour of words that are less important."""
    return look.shade(FAINT)
