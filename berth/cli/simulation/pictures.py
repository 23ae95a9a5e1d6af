"""Pictures of timelines, drawn with matplotlib. The extra ``plots`` installs it; it is loaded when it is needed."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, NamedTuple

from berth.cli.output import WRONG_USE, CommandError
from berth.cli.simulation.palette import WIDE, Look
from berth.core.simulation.statistics import OUT
from berth.core.simulation.timeline import Frame, Timeline
from berth.runtime.release import install_extra

Format = Literal["svg", "png"]
FORMATS: Final[tuple[Format, ...]] = ("svg", "png")
_UNITS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


class Picture(NamedTuple):
    """A picture in each requested format.

    Attributes:
        name: Name of its file, without suffix.
        words: Caption, or why there is nothing to show; sentences.
        files: Content by format; empty if there is nothing to show.
    """

    name: str
    words: str
    files: dict[Format, bytes]


class Sketch(NamedTuple):
    """A picture that is drawn when it is needed, in several looks.

    Attributes:
        name: Name of its file, without suffix.
        words: Caption, or why there is nothing to show; sentences.
        draw: Draws it in a format and a look; None if there is nothing to show.
        has_windows: It is another one for a narrow window.
    """

    name: str
    words: str
    draw: Callable[[Format, Look], bytes] | None
    has_windows: bool = True


def write_pictures(courses: Sequence[Timeline], folder: Path, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """Write the pictures of courses into a folder, which is made; returns the files.

    Raises:
        CommandError: A format is unknown, matplotlib is missing, or a file cannot be written.
    """
    unknown = [form for form in formats if form not in FORMATS]
    if unknown:
        raise CommandError(f"format is {unknown[0]!r}, expected one of {', '.join(FORMATS)}", code=WRONG_USE)
    return write_drawn(drawn(courses, formats), folder)


def write_drawn(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write pictures into a folder, which is made; returns the files.

    Raises:
        CommandError: A file cannot be written.
    """
    files = [
        (folder / f"{picture.name}.{form}", content) for picture in pictures for form, content in picture.files.items()
    ]
    for path, content in files:
        write_file(path, content)
    return [path for path, _ in files]


def write_file(path: Path, content: bytes) -> None:
    """Write a file, and make its folder.

    Raises:
        CommandError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error


def may_draw(folder: Path) -> None:
    """Check that pictures can be drawn and written into a folder, before any other work.

    Raises:
        CommandError: Matplotlib is missing, or the folder is a file, or below one.
    """
    _check_matplotlib()
    for path in (folder, *folder.parents):
        if path.exists():
            if not path.is_dir():
                raise CommandError(
                    f"--out: {path} is a file, expected a folder, or a name that is free", code=WRONG_USE
                )
            return


def drawn(courses: Sequence[Timeline], formats: Sequence[Format] = FORMATS) -> list[Picture]:
    """The pictures of courses as files: charts, and a map of each course with known nodes, at the time of most use.

    Raises:
        CommandError: Matplotlib is missing.
    """
    return [
        Picture(
            sketch.name,
            sketch.words,
            {form: sketch.draw(form, WIDE) for form in formats} if sketch.draw else {},
        )
        for sketch in sketched(courses)
    ]


def sketched(courses: Sequence[Timeline]) -> list[Sketch]:
    """The same pictures, which are drawn when they are needed.

    Raises:
        CommandError: Matplotlib is missing.
    """
    _check_matplotlib()
    from berth.cli.simulation.charts import CHARTS  # noqa: PLC0415  # loads matplotlib

    has_faults = any(timeline.faults is not None for timeline in courses)
    sketches = [_chart(courses, name) for name in CHARTS if has_faults or name != "failures"]
    mapped = [timeline for timeline in courses if has_map(timeline)]
    return sketches + [
        _map(timeline, "map" if len(mapped) == 1 else f"map-{number}") for number, timeline in enumerate(mapped, 1)
    ]


def _chart(courses: Sequence[Timeline], name: str) -> Sketch:
    from berth.cli.simulation.charts import CHARTS  # noqa: PLC0415  # loads matplotlib
    from berth.cli.simulation.drawing import rendered  # noqa: PLC0415  # loads matplotlib

    first = CHARTS[name](courses, WIDE)

    def draw(form: Format, look: Look) -> bytes:
        chart = first if look == WIDE else CHARTS[name](courses, look)
        return rendered(chart.figure, form, look) if chart.figure is not None else b""

    return Sketch(name, first.words, draw if first.figure is not None else None)


def _map(timeline: Timeline, name: str) -> Sketch:
    from berth.cli.simulation.cluster_map import ClusterMap  # noqa: PLC0415  # loads matplotlib
    from berth.cli.simulation.drawing import rendered  # noqa: PLC0415  # loads matplotlib

    index = _fullest(timeline.frames)
    after = after_words(timeline.frames[index].at_ms - timeline.begin_ms)
    words = f"Chips in use on each node at the moment of most use: {timeline.title}, {after}."

    def draw(form: Format, look: Look) -> bytes:
        theme = Look(is_dark=look.is_dark)
        return rendered(ClusterMap(timeline, theme).show(index, after), form, theme)

    return Sketch(name, words, draw, has_windows=False)


def has_map(timeline: Timeline) -> bool:
    """Whether the nodes of a course and their use are known."""
    return bool(timeline.nodes and timeline.frames)


def after_words(elapsed_ms: int) -> str:
    """Such as ``after 2 d 3 h``: the two largest units of a time."""
    parts = []
    rest_ms = max(0, elapsed_ms)
    for size_ms, unit in _UNITS:
        count, rest_ms = divmod(rest_ms, size_ms)
        parts.append((count, unit))
    first = next((place for place, (count, _) in enumerate(parts) if count), None)
    if first is None:
        return "at the start"
    return "after " + " ".join(f"{count} {unit}" for count, unit in parts[first : first + 2] if count)


def _fullest(frames: Sequence[Frame]) -> int:
    """Index of the first frame with most chips in use."""
    used = [sum(frame.used) - OUT * frame.used.count(OUT) for frame in frames]
    return used.index(max(used))


def _check_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises:
        CommandError: It is not installed.
    """
    if find_spec("matplotlib") is None:
        raise CommandError(f"pictures need matplotlib: {install_extra('plots')}")
