"""Reads tables back from what commands print on a terminal, whatever their form at its width."""

import io
import re
import sys
from collections.abc import Sequence

import pytest

WIDTHS = (60, 80, 100, 200)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What was printed, without styles."""
        return _STYLE.sub("", self.getvalue()).splitlines()


def open_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> Terminal:
    """Make standard output a terminal of a width."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm-256color")
    return terminal


def columns_in(lines: Sequence[str], headers: Sequence[str], titles: Sequence[str] = ()) -> dict[str, list[str]]:
    """The words of each column, from top to bottom.

    Args:
        lines: What was printed; the table begins with its first header and ends with an empty line or the last line.
        headers: Headers of the columns.
        titles: Titles of sections, which belong to no column.
    """
    inside = [line for line in lines if line not in titles]
    first = headers[0]
    start = next(at for at, line in enumerate(inside) if line.startswith((f"{first} ", f"{first}:")))
    if inside[start].startswith(f"{first}:"):
        return _stacked(inside[start:], headers)
    begins = [match.start() for match in re.finditer(r"(?:^|(?<=\s\s))\S", inside[start])]
    assert len(begins) == len(headers), inside[start]
    found: dict[str, list[str]] = {}
    for header, begin, end in zip(headers, begins, [*begins[1:], None], strict=True):
        words = [word for line in inside[start:] for word in line[begin:end].split()]
        head = header.split()
        assert words[: len(head)] == head
        found[header] = words[len(head) :]
    return found


def _stacked(lines: Sequence[str], headers: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {header: [] for header in headers}
    words: list[str] | None = None
    for line in lines:
        head = next((header for header in headers if line.startswith(f"{header}:")), None)
        if head is not None:
            words = found[head]
            words += line.removeprefix(f"{head}:").split()
        elif words is not None and line.startswith("  "):
            words += line.split()
        else:
            words = None
    return found


def words_of(cells: Sequence[object]) -> list[str]:
    """The words of the cells of a column."""
    return [word for cell in cells for word in str(cell).split()]
