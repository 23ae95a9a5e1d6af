"""Tables and lines of text at any width: complete, wrapped at words, without blanks at the end."""

import io
import re

import pytest
from rich.console import Console

from berth.cli import output
from berth.cli.output import print_legend, print_result, print_table
from berth.cli.tables import Drawing, Span, Styled, Table, filled, text_of, wrapped

HEADERS = ("JOB", "PODS", "CHIPS", "SINCE", "WHERE, OR WHY NOT")
WHY = "1234 of 5678 nodes have 16 chips, and 17 are free at most: 90210 are needed"
ROWS = (
    ("default/short", "1", "8", "12 min", "node-00001, node-00002, node-00003 and 253 more"),
    ("a-namespace/a-job-of-some-length", "4096", "65536", "365 d", WHY),
)
WIDTHS = (40, 60, 80, 100, 200)


def a_table() -> Table:
    table = Table(*HEADERS)
    for row in ROWS:
        table.add_row(*row)
    return table


def plain(table: Table, width: int | None) -> list[str]:
    return [line.plain for line in table.lines(width)]


def words_in(text: str) -> list[str]:
    return re.findall(r"[\w/-]+", text)


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(
        output, "results", lambda: Console(file=terminal, width=width, force_terminal=True, color_system="standard")
    )
    return terminal


@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_every_word_and_number_is_there_at_any_width(width: int | None) -> None:
    lines = plain(a_table(), width)
    there = words_in("\n".join(lines))
    for word in words_in(" ".join(cell for row in (HEADERS, *ROWS) for cell in row)):
        assert word in there, (word, width)
    assert [line for line in lines if line != line.rstrip()] == []
    if width is not None:
        assert max(map(len, lines)) <= width


def test_a_row_is_one_line_where_the_table_fits() -> None:
    lines = plain(a_table(), None)
    assert len(lines) == 3
    needed = max(map(len, lines))
    assert plain(a_table(), needed) == lines
    assert len(plain(a_table(), needed - 1)) == 4
    assert lines[0].index("PODS") == lines[1].index("1") == lines[2].index("4096")


def test_the_widest_columns_are_wrapped_first() -> None:
    lines = plain(a_table(), 100)
    assert lines[0].split() == ["JOB", "PODS", "CHIPS", "SINCE", "WHERE,", "OR", "WHY", "NOT"]
    assert "4096  65536  365 d" in lines[3]
    at = lines[0].index("WHERE")
    assert " ".join(line[at:] for line in lines[3:]) == WHY
    assert all(line[:at].strip() == "" for line in lines[4:])


def test_short_texts_are_wrapped_to_two_lines_and_shorter_ones_not_at_all() -> None:
    table = Table("FIGURE", "skip, random nodes", "AGE")
    table.add_row("jobs", "1234", "12345 min")
    assert plain(table, 31) == [
        "FIGURE  skip, random  AGE",
        "        nodes",
        "jobs    1234          12345 min",
    ]
    assert plain(table, 28)[0] == "FIGURE: jobs"


def test_rows_are_stacked_where_columns_would_be_too_narrow_for_words() -> None:
    assert plain(a_table(), 40) == [
        "JOB: default/short",
        "PODS: 1",
        "CHIPS: 8",
        "SINCE: 12 min",
        "WHERE, OR WHY NOT: node-00001,",
        "  node-00002, node-00003 and 253 more",
        "",
        "JOB: a-namespace/a-job-of-some-length",
        "PODS: 4096",
        "CHIPS: 65536",
        "SINCE: 365 d",
        "WHERE, OR WHY NOT: 1234 of 5678 nodes",
        "  have 16 chips, and 17 are free at",
        "  most: 90210 are needed",
        "",
    ]


def test_a_row_without_all_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="a row has 1 cells, expected 5"):
        a_table().add_row("x")


def test_sections_have_titles_and_indented_rows() -> None:
    table = Table("FIGURE", "UNIT", "skip")
    table.add_section("waiting time")
    table.add_row("mean", "s", "1234567.8")
    assert plain(table, None) == ["FIGURE  UNIT  skip", "waiting time", "  mean  s     1234567.8"]
    table.add_row("from a failure to training", "s", "12")
    assert plain(table, 40)[-2:] == ["  from a failure to      s     12", "  training"]
    assert plain(table, 20)[:6] == ["waiting time", "", "FIGURE: mean", "UNIT: s", "skip: 1234567.8", ""]


@pytest.mark.parametrize("width", [20, 100])
def test_titles_are_bold_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = on_terminal(monkeypatch, width)
    table = Table("FIGURE", "UNIT")
    table.add_section("waiting time")
    table.add_row("from a failure to training", "s")
    print_table(table)
    bold = re.findall(r"\x1b\[1m(.*?)\x1b\[0m", terminal.getvalue())
    assert sorted(text.strip(" :") for text in bold) == ["FIGURE", "UNIT", "waiting time"]


def test_lines_of_a_drawing_stay_below_one_another() -> None:
    table = Table("SUPERPOD", "NODES", "FREE")
    table.add_row("a", Drawing([[Span("##", "red"), Span("..")], [Span("##..", "green")]]), "4/8")
    assert plain(table, None) == ["SUPERPOD  NODES  FREE", "a         ##..   4/8", "          ##.."]
    assert plain(table, 12) == ["SUPERPOD: a", "NODES:", "  ##..", "  ##..", "FREE: 4/8", ""]


def test_a_wide_character_takes_two_cells() -> None:
    table = Table("A", "B")
    table.add_row("作业", "x")
    table.add_row("job", "y")
    assert plain(table, None) == ["A     B", "作业  x", "job   y"]


@pytest.mark.parametrize("width", [12, 30, 60])
def test_text_is_wrapped_at_words_and_goes_on_indented(width: int) -> None:
    text = f"  {WHY}"
    lines = [line.plain for line in wrapped(text_of(text), width)]
    assert max(map(len, lines)) <= width
    assert " ".join(line.strip() for line in lines) == WHY
    assert lines[0].startswith("  1")
    assert {len(line) - len(line.lstrip()) for line in lines[1:]} == {4}


def test_a_word_wider_than_the_line_stays_whole() -> None:
    word = "https://berth.example/a-path-of-some-length"
    assert [line.plain for line in wrapped(text_of(f"see {word} there"), 20)] == ["see", f"  {word}", "  there"]


def test_items_of_a_legend_are_not_broken() -> None:
    items: list[Styled] = ["x not healthy", [Span("#", "blue"), Span(" used")], ". free"]
    assert [line.plain for line in filled(items, "   ", 24)] == ["x not healthy   # used", ". free"]
    assert [line.plain for line in filled(items, "   ", None)] == ["x not healthy   # used   . free"]


def test_a_terminal_gets_wrapped_lines_with_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch, 60)
    print_table(a_table())
    print_result(WHY)
    print_legend(["a" * 40, "b" * 40])
    out = terminal.getvalue()
    assert "\x1b[1mJOB" in out
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert max(map(len, shown)) <= 60
    assert shown[-4:] == [WHY[:60].rpartition(" ")[0], f"  {WHY[:60].rpartition(' ')[2]}{WHY[60:]}", "a" * 40, "b" * 40]


def test_without_a_terminal_nothing_is_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    table = a_table()
    table.add_row("x" * 300, "1", "2", "", "")
    print_table(table)
    print_result(" ".join([WHY] * 10))
    print_legend(["a" * 300, "b" * 300])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 3 + 1 + 1
    assert [line for line in lines if line != line.rstrip()] == []
