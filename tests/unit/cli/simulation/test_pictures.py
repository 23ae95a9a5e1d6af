"""Pictures of courses and the map of a cluster: real files, drawn with matplotlib."""

import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

from berth.cli.output import CommandError
from berth.cli.simulation.cluster_map import cells_of
from berth.cli.simulation.pictures import after_words, drawn, write_pictures
from berth.cli.simulation.report_page import PageText, write_page
from tests.support.timelines import ODD, made_up

ROOT: Final = Path(__file__).parents[4]
PNG: Final = b"\x89PNG\r\n\x1a\n"


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
        assert picture.words.endswith(".")
        for data in picture.files.values():
            svg_text(data)


def test_files_are_written_for_several_courses_side_by_side(tmp_path: Path) -> None:
    paths = write_pictures([made_up(), made_up("queue_policy=easy", seed=2)], tmp_path / "new" / "folder", ("png",))
    assert [path.name for path in paths] == [
        "use.png", "waiting.png", "span.png", "blocked.png", "map-1.png", "map-2.png"
    ]  # fmt: skip
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())
    assert all(path.read_bytes().startswith(PNG) for path in paths)


def test_svg_holds_no_date_and_no_program() -> None:
    for picture in drawn([made_up(jobs=20)], ("svg",)):
        text = svg_text(picture.files["svg"])
        assert "<dc:date>" not in text
        assert "<dc:creator>" not in text


def test_many_moments_do_not_make_a_large_picture() -> None:
    assert len(drawn([made_up(jobs=20_000, nodes=4, frames=1)], ("svg",))[0].files["svg"]) < 300_000


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
        lambda: write_page([made_up()], [], PageText("page"), tmp_path / "page.html"),
    ):
        with pytest.raises(CommandError, match=r"pip install 'berth-npu\[plots\]'"):
            act()
    assert list(tmp_path.iterdir()) == []


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
