"""Tables and lines of text that are complete at any width.

If a table fits, each row is one line. In a narrower one cells are wrapped at words, the widest columns first, and if
that leaves too little of a column for text, the rows are stacked: a line ``HEADER: value`` for each cell. Nothing is
dropped or cut off: a word that is wider than the line stays whole. Without a width nothing is wrapped. No line ends
with blanks.

A long list has a table with columns that may be shortened instead: each row is one line at any width, and what does
not fit of these columns is cut at words.

The tables of ``rich`` fill lines with blanks, and drop columns where this one stacks; its texts hold styles and know
the width of characters. The library is imported when something is printed.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from berth.formats.shown import shown

if TYPE_CHECKING:
    from rich.style import Style
    from rich.text import Text

_GAP: Final = 2
"""Blanks between columns."""
_NARROW: Final = 16
"""No column of long texts is made narrower than this to fit: rows are stacked instead."""
_SHORT: Final = 10
"""Columns of at most so many cells are not narrowed."""
_INDENT: Final = 2
_WORD: Final = re.compile(r"\s*\S+")
_PART: Final = re.compile(r"[\s/,.:;-]+")
"""Between the parts of a name or a sentence."""


class Span(NamedTuple):
    """A part of a text with a style of ``rich``, such as ``bold red``."""

    text: str
    style: str = ""


class Drawing(NamedTuple):
    """Lines below one another in one cell."""

    lines: list[list[Span]]


Styled: TypeAlias = str | Span | list[Span] | Drawing
"""A text, of one style or of several; all of it may come from outside, see :func:`text_of`."""


class Table:
    """Rows under headers, in sections if there are any."""

    def __init__(self, *headers: str, short: Mapping[str, int] | None = None) -> None:
        """A table without rows.

        Args:
            headers: Headers of the columns; none may be empty, since stacked rows are read by them.
            short: Columns that are shortened where the table does not fit, each with the cells that it keeps if there
                is room at all; the last column loses its end, others their begin. None: cells are wrapped.
        """
        self.headers = headers
        self._short = {headers.index(header): least for header, least in (short or {}).items()}
        self._rows: list[Sequence[Styled] | str] = []
        """Cells of a row, or the title of a section."""

    def add_section(self, title: str) -> None:
        """Begin a section; its rows are indented below its title."""
        self._rows.append(title)

    def add_row(self, *cells: Styled) -> None:
        """Add a row.

        Raises:
            ValueError: It does not have as many cells as the table has columns.
        """
        if len(cells) != len(self.headers):
            raise ValueError(f"a row has {len(cells)} cells, expected {len(self.headers)}")
        self._rows.append(cells)

    def lines(self, width: int | None) -> list["Text"]:
        """The lines of the table.

        Args:
            width: Cells of a line on the terminal; None to wrap nothing.
        """
        has_sections = any(isinstance(row, str) for row in self._rows)
        rows = [
            _bold(row) if isinstance(row, str) else _texts(row, indent=_INDENT if has_sections else 0)
            for row in self._rows
        ]
        cells = [_texts([Span(header, "bold") for header in self.headers])]
        cells += [row for row in rows if isinstance(row, list)]
        columns = list(zip(*cells, strict=True))
        widths = [max(map(_cells_wide, column)) for column in columns]
        gap = _GAP
        if width is not None and _total(widths) > width and self._short:
            gap, widths = _shortened(widths, self._short, width)
            for texts in cells:  # the lists that are in ``rows``
                for at in self._short:
                    texts[at] = _cut(texts[at], widths[at], keeps_end=at < len(texts) - 1)
        elif width is not None and _total(widths) > width:
            floors = [max(map(_narrowest, column)) for column in columns]
            fitting = _fitting(widths, floors, width)
            if fitting is None:
                return _stacked(self.headers, self._rows, width)
            widths = fitting
        rows.insert(0, cells[0])
        found: list[Text] = []
        for row in rows:
            found += _row_lines(row, widths, gap) if isinstance(row, list) else wrapped(row, width)
        return found


def text_of(styled: Styled) -> "Text":
    """The text as one of ``rich``, of printable characters: whatever else it contains is escaped.

    All that is printed passes this function or :func:`berth.cli.output.write`. Only a drawing has several lines.
    """
    from rich.text import Text  # noqa: PLC0415  # takes time that commands without tables do not need

    match styled:
        case Drawing(lines):
            return Text("\n").join(map(text_of, lines))
        case str():
            return Text(shown(styled))
        case Span():
            return Text(shown(styled.text), styled.style)
        case _:
            return Text.assemble(*((shown(span.text), span.style) for span in styled))


def shows_unicode() -> bool:
    """Whether stdout takes the characters of drawings."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def wrapped(text: "Text", width: int | None) -> list["Text"]:
    """The lines of a text, wrapped at words; a line that continues another one is indented below it."""
    if width is None:
        return [_stripped(line) for line in text.split(allow_blank=True)]
    found: list[Text] = []
    for line in text.split(allow_blank=True):
        lead = len(line.plain) - len(line.plain.lstrip()) + _INDENT
        first, *others = _divided(line, width, width - lead)
        found += [first, *(_indented(other, lead) for other in others)]
    return found


def filled(items: Iterable[Styled], gap: str, width: int | None) -> list["Text"]:
    """Items in lines, none of them broken, with a gap between two on a line."""
    lines: list[Text] = []
    for item in map(text_of, items):
        if lines and (width is None or lines[-1].cell_len + len(gap) + item.cell_len <= width):
            lines[-1].append(gap).append_text(item)
        else:
            lines.append(item)
    return lines


def _texts(cells: Sequence[Styled], *, indent: int = 0) -> list["Text"]:
    texts = [text_of(cell) for cell in cells]
    if indent:
        texts[0] = _indented(texts[0], indent)
    return texts


def _bold(title: str) -> "Text":
    return text_of(Span(title, "bold"))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _cells_wide(text: "Text") -> int:
    if "\n" not in text.plain:
        return text.cell_len
    return max((line.cell_len for line in text.split(allow_blank=True)), default=0)


def _narrowest(text: "Text") -> int:
    """Cells that the widest word needs, with the blanks before its line."""
    from rich.cells import cell_len  # noqa: PLC0415  # as above

    return max(
        (len(line) - len(line.lstrip()) + cell_len(word) for line in text.plain.split("\n") for word in line.split()),
        default=0,
    )


def _fitting(widths: Sequence[int], floors: Sequence[int], width: int) -> list[int] | None:
    """Widths with the widest columns narrowed until they fit; None if a column would be narrower than its floor."""
    found = list(widths)
    least = [
        natural if natural <= _SHORT else max(floor, min(_NARROW, natural // 2 + 1))
        for natural, floor in zip(widths, floors, strict=True)
    ]
    while _total(found) > width:
        column = max(range(len(found)), key=lambda at: (found[at] > least[at], found[at]))
        if found[column] == least[column]:
            return None
        found[column] -= 1
    return found


def _shortened(widths: Sequence[int], short: Mapping[int, int], width: int) -> tuple[int, list[int]]:
    """Blanks between columns, and widths with which a row is one line.

    Columns that may be shortened keep the cells that they ask for, and share what is left; the last one goes first.
    """
    found: list[int] = []
    gap = _GAP
    for gap, floor_parts in ((_GAP, (1,)), (1, (1, 2, 4))):
        found = list(widths)
        over = _total(found) - (_GAP - gap) * (len(found) - 1) - width
        for floor_part in floor_parts:
            for at in sorted(short, reverse=True):
                least = min(found[at], max(short[at] // floor_part, 1))
                taken = min(max(over, 0), found[at] - least)
                found[at] -= taken
                over -= taken
        if over <= 0:
            break
    return gap, found


def _cut(text: "Text", width: int, *, keeps_end: bool) -> "Text":
    """A text of one line in so many cells: cut between words or parts of names if that leaves half of it."""
    if text.cell_len <= width:
        return text
    plain, mark = text.plain, "…" if shows_unicode() else "~"
    room = width - 1
    if room <= 0:
        return text_of(mark)
    if keeps_end:
        starts = [match.end() for match in _PART.finditer(plain) if len(plain) - room <= match.end() < len(plain)]
        start = starts[0] if starts and (len(plain) - starts[0]) * 2 >= room else len(plain) - room
        found = text_of(mark).append_text(text[start:])
        found.truncate(width)  # of wide characters
        return found
    ends = [match.end() for match in _WORD.finditer(plain) if match.end() <= room]
    found = text[: ends[-1] if ends and ends[-1] * 2 >= room else room].append(mark)
    found.truncate(width)
    return found


def _row_lines(cells: Sequence["Text"], widths: Sequence[int], gap: int) -> Iterator["Text"]:
    """The lines of a row: cells beside one another."""
    if all("\n" not in cell.plain and cell.cell_len <= width for cell, width in zip(cells, widths, strict=True)):
        yield _one_line(cells, widths, gap)
        return
    parts = [_cell_lines(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, parts))):
        line, used, at = text_of(""), 0, 0
        for part, width in zip(parts, widths, strict=True):
            if number < len(part) and part[number].plain:
                line.append(" " * (at - used)).append_text(part[number])
                used = at + part[number].cell_len
            at += width + gap
        yield line


def _one_line(cells: Sequence["Text"], widths: Sequence[int], gap: int) -> "Text":
    """Cells that fit beside one another, as most do: made at once, which takes a fraction of the time."""
    plain, used, at = "", 0, 0
    spans: list[tuple[str | Style, int, int]] = []
    for cell, width in zip(cells, widths, strict=True):
        if cell.plain:
            plain += " " * (at - used)
            start = len(plain)
            plain += cell.plain
            used = at + cell.cell_len
            if cell.style:
                spans.append((cell.style, start, len(plain)))
            spans += [(span.style, start + span.start, start + span.end) for span in cell.spans]
        at += width + gap
    line = text_of(plain)
    for style, start, end in spans:
        line.stylize(style, start, end)
    return line


def _cell_lines(cell: "Text", width: int) -> list["Text"]:
    found: list[Text] = []
    for line in cell.split(allow_blank=True):
        lead = len(line.plain) - len(line.plain.lstrip())
        first, *others = _divided(line, width, width - lead)
        found += [first, *(_indented(other, lead) for other in others)]
    return found


def _stacked(headers: Sequence[str], rows: Iterable[Sequence[Styled] | str], width: int) -> list["Text"]:
    """A line for each cell, and an empty line after each row."""
    found: list[Text] = []
    for row in rows:
        if isinstance(row, str):
            found += [*wrapped(_bold(row), width), text_of("")]
            continue
        for header, cell in zip(headers, row, strict=True):
            value = text_of(cell)
            head = text_of([Span(f"{header}:", "bold")])
            lines = value.split(allow_blank=True)
            if len(lines) > 1:  # a drawing: its lines stay below one another
                found.append(head)
                found += [part for line in lines for part in wrapped(_indented(line, _INDENT), width)]
            else:
                found += wrapped(head.append(" ").append_text(value), width)
        found.append(text_of(""))
    return found


def _divided(line: "Text", first: int, others: int) -> list["Text"]:
    """A line divided at words, for these widths of its first line and of all others; at least one line."""
    from rich.cells import cell_len  # noqa: PLC0415  # as above

    if line.cell_len <= first:
        return [_stripped(line)]
    offsets: list[int] = []
    used, width = 0, first
    for match in _WORD.finditer(line.plain):
        word = match.group()
        size = cell_len(word)
        if used and used + size > width:
            start = match.end() - len(word.lstrip())
            offsets.append(start)
            used, width = 0, others
            size = cell_len(word.lstrip())
        used += size
    return [_stripped(part) for part in line.divide(offsets)]


def _indented(text: "Text", by: int) -> "Text":
    return text_of(" " * by).append_text(text)


def _stripped(text: "Text") -> "Text":
    text.rstrip()
    return text
