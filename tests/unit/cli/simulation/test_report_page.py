"""The report page: one file that needs nothing else, follows the theme and fits a phone."""

import re
import zipfile
from base64 import b64decode
from collections.abc import Sequence
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Final

import msgspec
import pytest
from hatchling.builders.wheel import WheelBuilder
from matplotlib.colors import to_hex
from matplotlib.image import imread

from berth.cli.simulation.palette import DARK, GROUND, variable
from berth.cli.simulation.report_page import PageText, page_of, write_page
from berth.core.simulation.comparison import rows_of
from berth.core.simulation.statistics import statistics_of
from berth.core.simulation.timeline import Timeline
from tests.support.timelines import HOUR_MS, ODD, made_up

ROOT: Final = Path(__file__).parents[4]
PNG: Final = b"\x89PNG\r\n\x1a\n"
_VOID: Final = {"meta", "img", "input", "br", "link", "source"}


class Page(HTMLParser):
    """A page read back: text, attributes, and whether tags close in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        assert len(dict(attrs)) == len(attrs)
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif self.open and self.open[-1] != "style":
            self.texts.append(data)

    def having(self, tag: str) -> list[dict[str, str]]:
        """Attributes of all tags of a kind."""
        return [attributes for known, attributes in self.tags if known == tag]


def page(*courses: Timeline, conclusion: Sequence[str] = (), notes: Sequence[str] = ()) -> str:
    text = PageText("trace on <cluster>", conclusion, notes)
    return page_of(courses, rows_of([statistics_of(timeline) for timeline in courses]), text)


def test_odd_courses_stand_side_by_side_on_a_page() -> None:
    read = Page(page(*ODD.values()))
    assert read.open == []
    assert Page(page()).open == []


def test_equal_courses_give_equal_bytes_and_others_do_not() -> None:
    first = page(made_up(jobs=50, frames=3))
    again = made_up(jobs=50, frames=3)
    assert page(again) == first
    assert page(made_up(jobs=50, frames=3, seed=2)) != first


@pytest.fixture(scope="module")
def page_of_two(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two courses, as it was written."""
    courses = [made_up(), made_up("queue_policy=easy", seed=2)]
    path = tmp_path_factory.mktemp("page") / "deep" / "page.html"
    write_page(courses, rows_of([statistics_of(timeline) for timeline in courses]), PageText("two"), path)
    return path.read_text("utf-8")


def test_the_page_needs_nothing_but_itself(page_of_two: str) -> None:
    assert "http://" not in page_of_two
    assert "https://" not in page_of_two
    assert "@import" not in page_of_two
    read = Page(page_of_two)
    assert read.open == []
    assert not read.having("link")
    assert not read.having("img")
    assert not read.having("script")
    assert len(read.having("svg")) == 4 * 2 + 2
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith(("on", "xmlns"))]
    policy = next(meta for meta in read.having("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")


def test_the_page_escapes_all_names() -> None:
    timeline = Timeline('<b>"&', {"<i>": "</script>&'"}, 0, HOUR_MS, [], [])
    mapped = ODD["no jobs"]
    text = page(timeline, Timeline("</script><b>", {}, 0, HOUR_MS, [], [], mapped.nodes, [8], ["<u>"], mapped.frames))
    read = Page(text)
    assert read.open == []
    assert not {"b", "i", "u"} & {tag for tag, _ in read.tags}
    assert '<b>"& · </script><b>' in read.texts
    assert "trace on <cluster>" in read.texts
    assert {"<i>", "</script>&'"} <= set(read.texts)


def test_the_page_shows_settings_figures_and_their_differences(page_of_two: str) -> None:
    read = Page(page_of_two)
    assert {"queue_policy", "queue_policy=easy", "waiting time", "allocation ratio (%)", "leaf switches"} <= set(
        read.texts
    )
    assert [text for text in read.texts if re.fullmatch(r"\([+-][\d.]+ (%|points)\)", text)]


def test_the_page_leads_to_the_map_over_time_beside_it() -> None:
    course = made_up(jobs=5, frames=2)
    rows = rows_of([statistics_of(course)])
    read = Page(page_of([course], rows, PageText("one", map_file="map.html")))
    assert [link["href"] for link in read.having("a")] == ["map.html"]
    assert "Map of the cluster over time" in read.texts
    assert "Map of the cluster over time" not in Page(page(course)).texts


def test_a_page_of_302_nodes_and_a_hundred_frames_stays_small() -> None:
    timeline = made_up(nodes=302, jobs=1000, frames=100)
    assert len(page(timeline)) < 3_000_000


def test_the_page_is_part_of_the_wheel(tmp_path: Path) -> None:
    wheel = next(iter(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])))
    with zipfile.ZipFile(wheel) as content:
        assert "berth/cli/simulation/report.html" in content.namelist()


def test_the_conclusion_is_the_first_section_and_notes_follow() -> None:
    text = page(made_up(jobs=5), conclusion=["<first> line", "second"], notes=["a & b"])
    read = Page(text)
    assert [
        read.texts.index(line) for line in ("<first> line", "second", "a & b", "Charts", "Figures", "Settings")
    ] == (
        sorted(read.texts.index(line) for line in ("<first> line", "second", "a & b", "Charts", "Figures", "Settings"))
    )
    assert "Notes" not in {attributes.get("aria-label") for _, attributes in Page(page(made_up(jobs=5))).tags}


def test_each_chart_is_there_for_wide_and_for_narrow_windows_with_words(page_of_two: str) -> None:
    drawings = Page(page_of_two).having("svg")
    assert [drawing["class"] for drawing in drawings] == ["at-wide", "at-narrow"] * 4 + ["at-all"] * 2
    assert all(drawing["role"] == "img" and drawing["aria-label"].endswith(".") for drawing in drawings)
    widths = {drawing["class"]: float(drawing["viewbox"].split()[2]) for drawing in drawings}
    assert widths["at-narrow"] < 300 < widths["at-wide"]
    assert "<text" in page_of_two
    assert ".at-wide { display: none; }" in page_of_two


def test_ids_are_unique_and_all_references_have_one(page_of_two: str) -> None:
    ids = [attributes["id"] for _, attributes in Page(page_of_two).tags if "id" in attributes]
    assert ids
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page_of_two)) == set(ids)


def test_colours_of_charts_are_variables_with_a_value_for_each_theme(page_of_two: str) -> None:
    used = set(re.findall(r"var\((--c[0-9a-f]{6})\)", page_of_two))
    assert len(used) > 5
    assert used <= {variable(colour) for colour in DARK}
    for name in used:
        values = re.findall(rf"{name}: (#[0-9a-f]{{6}});", page_of_two)
        assert values == [f"#{name[3:]}", DARK[f"#{name[3:]}"]]


def test_a_chart_that_would_be_too_large_is_png_for_each_window_and_theme() -> None:
    text = page(*(made_up(f"column {number}", seed=number, nodes=4, jobs=600, frames=0) for number in range(6)))
    read = Page(text)
    sources = read.having("source")
    assert len(sources) in {3, 6, 9}
    assert [source["media"] for source in sources[:3]] == [
        "(max-width: 640px) and (prefers-color-scheme: dark)", "(max-width: 640px)", "(prefers-color-scheme: dark)"
    ]  # fmt: skip
    data = [source["srcset"] for source in sources[:3]] + [read.having("img")[0]["src"]]
    assert len(set(data)) == 4
    assert all(b64decode(one.removeprefix("data:image/png;base64,"), validate=True).startswith(PNG) for one in data)
    assert all(image["alt"] for image in read.having("img"))
    assert len(text) < 6_000_000


def test_the_map_of_a_large_cluster_is_png_for_each_theme() -> None:
    read = Page(page(made_up(nodes=5_000, jobs=0, frames=1)))
    dark = read.having("source")
    assert [source["media"] for source in dark] == ["(prefers-color-scheme: dark)"]
    grounds = [ground(data) for data in (read.having("img")[0]["src"], dark[0]["srcset"])]
    assert grounds == [GROUND, DARK[GROUND]]


def ground(address: str) -> str:
    """Colour of the upper left corner of an embedded PNG."""
    return to_hex(imread(BytesIO(b64decode(address.removeprefix("data:image/png;base64,"))))[0, 0])


def test_what_has_no_data_is_a_sentence_instead_of_a_chart() -> None:
    read = Page(page(Timeline("empty", {}, 0, HOUR_MS, [], [])))
    assert not read.having("svg")
    assert not read.having("img")
    assert "No job waited for a placement." in read.texts
    assert sum(attributes.get("class") == "none" for _, attributes in read.tags) == 4


def test_settings_that_all_columns_share_are_there_once() -> None:
    one = made_up("one", jobs=5, frames=1)
    other = msgspec.structs.replace(one, title="other", settings={**one.settings, "seed": "seventh"})
    texts = Page(page(one, other)).texts
    assert (texts.count("seed"), texts.count("seventh")) == (1, 1)
    assert texts.count("nodes") == 1
    assert (
        texts.index("settings that differ")
        < texts.index("seed")
        < texts.index("settings of all columns")
        < texts.index("nodes")
    )


def test_every_table_can_be_scrolled_and_has_a_name(page_of_two: str) -> None:
    read = Page(page_of_two)
    boxes = [attributes for tag, attributes in read.tags if tag == "div" and attributes.get("class") == "wide"]
    assert len(boxes) == len(read.having("table")) > 5
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
