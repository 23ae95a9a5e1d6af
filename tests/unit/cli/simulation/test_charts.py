"""Charts: equal curves are drawn once, legends name what is drawn, and panels without data are left out."""

import re
from itertools import combinations, pairwise
from math import dist

import msgspec
import numpy as np
import pytest
from matplotlib.colors import is_color_like, to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from berth.cli.simulation.charts import CHARTS
from berth.cli.simulation.cluster_map import ClusterMap
from berth.cli.simulation.drawing import Chart, line_style, rendered
from berth.cli.simulation.inline_svg import inlined
from berth.cli.simulation.palette import BANDS, DARK, FAINT, GRID, GROUND, INK, LINES, WIDE, Look
from berth.core.simulation.timeline import FaultHistory, Frame, JobTraining, Timeline
from tests.support.timelines import HOUR_MS, ODD, a_job, a_moment, a_timeline, made_up

PHONE = Look(is_narrow=True)


def copy_of(timeline: Timeline, title: str) -> Timeline:
    return msgspec.structs.replace(timeline, title=title)


def figure_of(chart: Chart) -> Figure:
    assert chart.figure is not None
    return chart.figure


def entries(figure: Figure) -> list[str]:
    """Texts of all legends of a figure."""
    return [text.get_text() for legend in figure.findobj(Legend) for text in legend.get_texts()]


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def drawn_colours(figure: Figure) -> set[str]:
    """Colours in the data of a figure, without its legends."""
    for legend in figure.findobj(Legend):
        legend.set_visible(False)
    text = rendered(figure, "svg").decode()
    return {colour for colour in DARK if f"fill: {colour}" in text or f"stroke: {colour}" in text}


@pytest.mark.parametrize("look", [WIDE, PHONE, Look(is_dark=True)])
def test_equal_curves_share_a_panel_and_an_entry_of_the_legend(look: Look) -> None:
    first, other = made_up("a", jobs=80), made_up("b", jobs=80, seed=2)
    courses = [first, other, copy_of(first, "c")]
    use = figure_of(CHARTS["use"](courses, look))
    assert titles(use) == ["a · c (equal)", "b", "Chips that waiting gangs ask for"]
    assert len(use.axes[-1].lines) == 2
    assert entries(use) == ["in use", "available", "a · c (equal)", "b"]
    waiting = figure_of(CHARTS["waiting"](courses, look))
    assert entries(waiting) == ["a · c (equal)", "b"]
    assert all(len(axes.lines) == 2 for axes in waiting.axes)
    assert titles(figure_of(CHARTS["blocked"](courses, look))) == ["a · c (equal)", "b"]
    span = figure_of(CHARTS["span"](courses, look))
    assert [text.get_text() for text in span.axes[0].texts if "mean" not in text.get_text()] == ["a · c (equal)", "b"]


def test_curves_that_differ_in_one_point_are_not_merged() -> None:
    moments = (a_moment(0, 8), a_moment(50, 4, waiting=1))
    first = a_timeline(moments=moments, title="a")
    other = a_timeline(moments=(*moments[:1], a_moment(50, 5, waiting=1)), title="b")
    figure = figure_of(CHARTS["use"]([first, other], WIDE))
    assert titles(figure) == ["a", "b", "Chips that waiting gangs ask for"]
    assert entries(figure) == ["in use", "available", "a · b (equal)"]


def test_one_course_needs_no_legend_for_its_line() -> None:
    assert entries(figure_of(CHARTS["waiting"]([made_up(jobs=30)], WIDE))) == []
    assert entries(figure_of(CHARTS["use"]([made_up(jobs=30)], WIDE))) == ["in use", "available"]


def test_panels_without_data_are_left_out_and_the_figure_shrinks() -> None:
    some = a_timeline(a_job(placed=5000, ended=9000, chips=1), moments=(a_moment(0, 1),), title="a")
    more = a_timeline(a_job(placed=5000, ended=9000, chips=1), a_job("b", placed=0, ended=1, chips=64), title="b")
    one = figure_of(CHARTS["waiting"]([some], WIDE))
    assert titles(one) == ["1 chip, 1 job"]
    two = figure_of(CHARTS["waiting"]([more], PHONE))
    assert titles(two) == ["1 chip, 1 job", "64-255 chips, 1 job"]
    assert two.get_figheight() > figure_of(CHARTS["waiting"]([some], PHONE)).get_figheight()
    chart = CHARTS["use"]([some, more], WIDE)
    assert titles(figure_of(chart)) == ["a"]
    assert chart.words == "Chips in use and available. No gang waited. Without such data: b."


def test_a_span_that_no_job_has_gets_no_panel() -> None:
    job = a_job(placed=0, ended=1, chips=16, leaves=2, leaves_least=1)
    chart = CHARTS["span"]([a_timeline(job)], WIDE)
    assert titles(figure_of(chart)) == ["Leaf switches of jobs of several nodes"]
    assert chart.words == "Leaf switches of jobs over the fewest possible."
    assert entries(figure_of(chart)) == ["up to 2 times"]


def test_causes_that_never_block_a_chip_are_not_in_the_legend() -> None:
    moments = (
        a_moment(0, 8, waiting=1, partial=0, scattered=4),
        a_moment(50, 8),
        a_moment(100, 8, waiting=1, behind=2),
    )
    figure = figure_of(CHARTS["blocked"]([a_timeline(moments=moments)], WIDE))
    assert entries(figure) == ["scattered"]


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("look", [WIDE, PHONE])
def test_colours_of_a_legend_are_drawn(name: str, look: Look) -> None:
    courses = [with_failures("a", 2), with_failures("b", 0), copy_of(made_up(seed=5, jobs=40), "c")]
    figure = figure_of(CHARTS[name](courses, look))
    handles = [handle for legend in figure.findobj(Legend) for handle in legend.legend_handles]
    colours = {
        colour
        for handle in handles
        if handle is not None
        for colour in DARK
        if colour
        in {_hex(getattr(handle, "get_facecolor", lambda: None)()), _hex(getattr(handle, "get_color", lambda: None)())}
    }
    assert len(colours) == len(handles)
    assert colours <= drawn_colours(figure)


def _hex(colour: object) -> str:
    return to_hex(colour) if is_color_like(colour) else ""  # type: ignore[arg-type]  # it is like a colour


def with_failures(title: str, redone_h: int, stopped_h: int = 1) -> Timeline:
    whole_ms = 10 * HOUR_MS
    productive_ms = whole_ms - (stopped_h + redone_h) * HOUR_MS
    training = JobTraining("team", "a", 8, 0, whole_ms, productive_ms, redone_h * HOUR_MS)
    history = FaultHistory({"chip": 1}, [training], [], 1)
    return msgspec.structs.replace(made_up(title, jobs=40), faults=history)


def test_failures_are_bars_of_what_was_lost() -> None:
    figure = figure_of(CHARTS["failures"]([with_failures("a", 0), made_up("without", jobs=5)], WIDE))
    assert entries(figure) == ["stopped"]
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["8", "a"]
    assert CHARTS["failures"]([with_failures("a", 0, 0)], WIDE) == Chart(None, "Failures cost no chip hours.")


@pytest.mark.parametrize("name", [name for name in CHARTS if name != "failures"])
def test_charts_without_any_data_are_a_sentence(name: str) -> None:
    chart = CHARTS[name]([ODD["nothing"]], WIDE)
    assert chart.figure is None
    assert chart.words.startswith("No ")


def test_many_lines_differ_in_colour_or_dashes_and_neighbours_in_both() -> None:
    styles = [line_style(number, WIDE) for number in range(28)]
    assert len({repr(style) for style in styles}) == 28
    for first, second in pairwise(styles):
        assert first["color"] != second["color"]
        assert first["linestyle"] != second["linestyle"]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def perceived(colour: str, blindness: str) -> list[float]:
    """A colour in CIE Lab as seen with a kind of colour blindness (Machado, Oliveira and Fernandes 2009)."""
    light = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(light <= 0.04045, light / 12.92, ((light + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(BLINDNESS[blindness]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    relative = to_xyz @ seen / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(relative > 0.008856, np.cbrt(relative), 7.787 * relative + 16 / 116).tolist()
    return [116 * y - 16, 500 * (x - y), 200 * (y - z)]


BLINDNESS = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("look", [WIDE, Look(is_dark=True)])
def test_colours_of_lines_can_be_told_apart(look: Look, blindness: str) -> None:
    seen = [perceived(look.shade(colour), blindness) for colour in LINES]
    assert min(dist(first, second) for first, second in combinations(seen, 2)) > 25


@pytest.mark.parametrize("look", [WIDE, Look(is_dark=True)])
def test_marks_and_words_stand_out_from_the_ground(look: Look) -> None:
    ground = look.shade(GROUND)
    assert all(contrast(look.shade(colour), ground) >= 7 for colour in (INK,))
    assert contrast(look.shade(FAINT), ground) >= 4.5
    marks = set(DARK) - {GROUND, GRID, *BANDS}
    assert {
        colour: contrast(look.shade(colour), ground) for colour in marks if contrast(look.shade(colour), ground) < 3
    } == {}
    assert len({look.shade(colour) for colour in LINES}) == len(LINES)


def test_an_svg_element_has_text_variables_and_short_paths() -> None:
    figure = figure_of(CHARTS["use"]([made_up(jobs=100)], WIDE))
    svg = rendered(figure, "svg")
    text = inlined(svg, 'say "x"', prefix="p-", css_class="c")
    assert text.startswith('<svg class="c" viewBox="0 0 720 ')
    assert 'aria-label="say &quot;x&quot;"' in text
    assert ">available</text>" in text
    assert "font-family" not in text
    assert "#1b1b1b" not in text
    assert "var(--c1b1b1b)" in text
    assert len(text) < 0.6 * len(svg)


def test_numbers_of_an_svg_element_have_one_digit_where_they_need_it() -> None:
    path = "M 10.04 20.06\nL 30.96 -0.01"
    svg = f'<svg viewBox="0 0 10.04 20"><path d="{path}"/></svg>'.encode()
    text = inlined(svg, "x", prefix="p-", css_class="c").partition(' d="')[2].partition('"')[0]
    assert re.findall(r"-?[0-9]+(?:\.[0-9]+)?", text) == ["10", "20.1", "31", "0"]


def test_a_map_names_nodes_that_take_no_work_only_where_there_are_some() -> None:
    timeline = made_up(nodes=4, jobs=5, frames=2)
    frames = [Frame(0, bytes([0, 2, 4, 8])), Frame(1, bytes([0, 2, 4, 255]))]
    timeline = msgspec.structs.replace(timeline, frames=frames)
    assert entries(ClusterMap(timeline).show(0, "at the start")) == []
    assert entries(ClusterMap(timeline).show(1, "after 1 s")) == ["takes no work"]


@pytest.mark.parametrize("title", ["rate of $a_b$", r"$\frac$ is no formula"])
def test_a_title_with_dollar_signs_is_no_formula(title: str) -> None:
    moments = (a_moment(0, 8), a_moment(50, 4, waiting=1))
    figure = figure_of(CHARTS["use"]([a_timeline(moments=moments, title=title)], WIDE))
    assert f">{title}<" in rendered(figure, "svg").decode()
