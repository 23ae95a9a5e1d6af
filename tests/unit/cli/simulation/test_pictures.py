"""Pictures of courses and the page about them: real files, drawn with matplotlib."""

import json
import re
import sys
import zipfile
from base64 import b64decode
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest
from hatchling.builders.wheel import WheelBuilder

from berth.cli.output import CommandError
from berth.cli.simulation.cluster_map import ClusterMap, cells_of
from berth.cli.simulation.drawing import rendered, use_over_time
from berth.cli.simulation.pictures import Picture, after_words, drawn, filmed, write_pictures
from berth.cli.simulation.report_page import page_of, write_page
from berth.core.simulation.comparison import rows_of
from berth.core.simulation.statistics import statistics_of
from berth.core.simulation.timeline import Timeline
from tests.support.timelines import HOUR_MS, ODD, made_up

ROOT: Final = Path(__file__).parents[4]
PNG: Final = b"\x89PNG\r\n\x1a\n"
_VOID: Final = {"meta", "img", "input", "br", "link"}


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


def page(*courses: Timeline, pictures: Sequence[Picture] | None = None) -> str:
    return page_of(courses, rows_of([statistics_of(timeline) for timeline in courses]), pictures)


def svg_text(data: bytes) -> str:
    """An SVG that is well formed and refers to nothing outside."""
    root = ET.fromstring(data)  # noqa: S314  # our own
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href"):
                assert value.startswith(("#", "data:")), value
    return data.decode()


@pytest.mark.parametrize("odd", ODD)
def test_odd_courses_are_drawn(odd: str) -> None:
    timeline = ODD[odd]
    pictures = drawn([timeline], ("svg",))
    names = ["use", "waiting", "span", "blocked"] + (["map"] if timeline.frames else [])
    assert [picture.name for picture in pictures] == names
    for picture in pictures:
        svg_text(picture.files["svg"])


def test_odd_courses_stand_side_by_side_on_a_page() -> None:
    read = Page(page(*ODD.values()))
    assert read.open == []
    assert len(read.having("input")) == sum(bool(timeline.frames) for timeline in ODD.values())
    assert Page(page()).open == []


def test_files_are_written_for_several_courses_side_by_side(tmp_path: Path) -> None:
    paths = write_pictures([made_up(), made_up("queue_policy=easy", seed=2)], tmp_path / "new" / "folder", ("png",))
    assert [path.name for path in paths] == [
        "use.png", "waiting.png", "span.png", "blocked.png", "map-1.png", "map-2.png"
    ]  # fmt: skip
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_equal_courses_give_equal_bytes_and_others_do_not() -> None:
    first = page(made_up(jobs=50, frames=3))
    again = made_up(jobs=50, frames=3)
    assert page(again, pictures=drawn([again])) == first
    assert page(made_up(jobs=50, frames=3, seed=2)) != first


def test_svg_holds_no_date_and_no_program() -> None:
    for picture in drawn([made_up(jobs=20)], ("svg",)):
        text = svg_text(picture.files["svg"])
        assert "<dc:date>" not in text
        assert "<dc:creator>" not in text


def test_many_moments_do_not_make_a_large_picture() -> None:
    assert len(rendered(use_over_time([made_up(jobs=20_000, nodes=4, frames=1)]), "svg")) < 300_000


def test_a_format_that_is_not_known_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="format is 'gif', expected one of svg, png"):
        write_pictures([made_up()], tmp_path / "out", ("png", "gif"))  # type: ignore[arg-type]  # as from a user
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=r"cannot write .*file.*use\.svg"):
        write_pictures([made_up(jobs=5)], tmp_path / "file")


def test_without_matplotlib_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for act in (
        lambda: write_pictures([made_up()], tmp_path),
        lambda: write_page([made_up()], [], tmp_path / "page.html"),
        lambda: filmed(made_up(), 3),
    ):
        with pytest.raises(CommandError, match=r"pip install 'berth-npu\[plots\]'"):
            act()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def page_of_two(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of two courses, as it was written."""
    courses = [made_up(), made_up("queue_policy=easy", seed=2)]
    path = tmp_path_factory.mktemp("page") / "deep" / "page.html"
    write_page(courses, rows_of([statistics_of(timeline) for timeline in courses]), path)
    return path.read_text("utf-8")


def test_the_page_needs_nothing_but_itself(page_of_two: str) -> None:
    assert "http://" not in page_of_two
    assert "https://" not in page_of_two
    assert "@import" not in page_of_two
    read = Page(page_of_two)
    assert read.open == []
    assert not read.having("link")
    assert all("src" not in script for script in read.having("script"))
    sources = [image["src"] for image in read.having("img")]
    assert len(sources) == 4 + 2 + 2 * 2
    for source in sources:
        kind, data = source.split(";base64,")
        content = b64decode(data, validate=True)
        assert content.startswith(PNG) if kind == "data:image/png" else svg_text(content)
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
    assert {"<i>", "</script>&'"} <= set(read.texts)


def test_the_page_shows_settings_figures_and_their_differences(page_of_two: str) -> None:
    read = Page(page_of_two)
    assert {"queue_policy", "queue_policy=easy", "waiting time", "allocation ratio (%)", "leaf switches"} <= set(
        read.texts
    )
    assert [text for text in read.texts if re.fullmatch(r"\([+-][\d.]+ (%|points)\)", text)]
    assert all(image["alt"] for image in read.having("img") if "cells" in image.get("class", ""))


def test_the_slider_has_a_frame_for_each_place_and_says_when_it_was() -> None:
    timeline = made_up(frames=7)
    read = Page(page(timeline))
    slider = read.having("input")[0]
    frames = json.loads(read.scripts[0])
    assert (slider["type"], slider["min"], slider["max"], slider["value"]) == ("range", "0", "6", "0")
    assert slider["aria-valuetext"] == frames[0][0] == "at the start"
    assert frames[1][0] == after_words(timeline.frames[1].at_ms)
    assert all(b64decode(data).startswith(PNG) for _, data in frames)
    assert all(first != second for first, second in pairwise(frames))


def test_a_page_of_302_nodes_and_a_hundred_frames_stays_small() -> None:
    timeline = made_up(nodes=302, jobs=1000, frames=100)
    assert len(page(timeline)) < 3_000_000


def test_a_film_is_thinned_out_evenly_with_the_first_and_the_last_frame() -> None:
    timeline = made_up(nodes=4, jobs=10, frames=10)
    words = [after_words(frame.at_ms) for frame in timeline.frames]
    assert [when for when, _ in filmed(timeline, 4).frames] == [words[0], words[3], words[6], words[9]]
    assert [when for when, _ in filmed(timeline, 1).frames] == [words[0]]
    assert len(filmed(timeline, 99).frames) == 10


def test_cells_laid_over_the_ground_change_with_the_frame_alone() -> None:
    timeline = made_up(nodes=40, frames=3)
    cluster = ClusterMap(timeline)
    ground = cluster.ground()
    first, second = cluster.cells(0), cluster.cells(1)
    assert first != second
    assert first == cluster.cells(0)
    assert {data[16:24] for data in (ground, first, second)} == {ground[16:24]}  # width and height in the head of a PNG


def test_a_leaf_is_a_row_and_large_ones_go_on_in_the_next() -> None:
    cells = cells_of(["a"] * 3 + ["b"] * 40, 43)
    assert cells.row.tolist() == [0] * 3 + [1] * 32 + [2] * 8
    assert cells.column[:4].tolist() == [6, 7, 8, 6]
    assert cells.names == [(0, 6, "a"), (1, 6, "b")]


@pytest.mark.parametrize(("nodes", "leaf"), [(1, 1), (302, 16), (1000, 16), (10_000, 48), (500, 0)])
def test_no_two_nodes_share_a_cell(nodes: int, leaf: int) -> None:
    leaves = [f"leaf-{number // leaf}" for number in range(nodes)] if leaf else []
    cells = cells_of(leaves, nodes)
    assert len(set(zip(cells.row.tolist(), cells.column.tolist(), strict=True))) == nodes


@pytest.mark.parametrize(
    ("elapsed_ms", "words"),
    [
        (0, "at the start"),
        (999, "at the start"),
        (61_000, "after 1 min 1 s"),
        (3_600_000, "after 1 h"),
        (183_661_000, "after 2 d 3 h"),
        (86_401_000, "after 1 d"),
    ],
)
def test_time_that_has_passed_is_told_in_its_two_largest_units(elapsed_ms: int, words: str) -> None:
    assert after_words(elapsed_ms) == words


def test_the_page_is_part_of_the_wheel(tmp_path: Path) -> None:
    wheel = next(iter(WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])))
    with zipfile.ZipFile(wheel) as content:
        assert "berth/cli/simulation/report.html" in content.namelist()
