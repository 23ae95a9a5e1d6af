"""Rows of a trace: fields of CSV lines with their line and column, which every error names. Pure.

Blank lines and lines that start with ``#`` are skipped. The first other line is the header.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Final, NamedTuple

from berth.formats.quantities import RUN_MS_MAX
from berth.formats.yaml_tree import shown

FAULTS_MAX: Final = 20
"""Most faults that an error lists."""
_SECONDS_MAX: Final = RUN_MS_MAX // 1000
_NUMBER: Final = re.compile(r"\d{1,16}(?:\.\d{0,16})?(?:[eE][+-]?\d{1,2})?|\.\d{1,16}", re.ASCII)
_WHOLE: Final = re.compile(r"-?\d{1,18}(?:\.0{0,16})?", re.ASCII)


class TraceFault(NamedTuple):
    """An error in a trace.

    Attributes:
        line: Line of the file, from 1; 0 for the file as a whole.
        column: Column, or comma-separated columns; empty for the whole row.
        value: The value, shortened.
        expected: Valid values.
    """

    line: int
    column: str
    value: str
    expected: str

    def __str__(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        column = f"column {self.column}: " if self.column else ""
        return f"{place}{column}is {self.value}, expected {self.expected}"


class TraceError(ValueError):
    """A trace that cannot be read.

    Attributes:
        faults: Errors in the order of lines, at most :data:`FAULTS_MAX`.
        count: Number of all errors.
        line: Of the first fault, as are ``column``, ``value`` and ``expected``.
    """

    def __init__(self, *faults: TraceFault) -> None:
        self.faults = faults[:FAULTS_MAX]
        self.count = len(faults)
        self.line, self.column, self.value, self.expected = faults[0]
        words = [str(fault) for fault in self.faults]
        if self.count > len(self.faults):
            words.append(f"and {self.count - len(self.faults)} more of {self.count} faults")
        super().__init__("\n".join(words))


class TraceRow(NamedTuple):
    """A row of a trace.

    Attributes:
        line: Its line, from 1; the last one if a field has several.
        place: Index of each column.
        fields: Its fields, without blanks around them.
    """

    line: int
    place: dict[str, int]
    fields: list[str]

    def check_length(self) -> None:
        """Check that the row has exactly one field for each column.

        Raises:
            TraceError: It has more or fewer fields.
        """
        want, have = len(self.place), len(self.fields)
        if have != want:
            column = list(self.place)[have] if have < want else ""
            raise TraceError(
                TraceFault(self.line, column, f"a row of {have} fields", f"{want} fields, as in the header")
            )

    def text(self, column: str) -> str:
        """Text in a column; empty without the column."""
        index = self.place.get(column)
        return "" if index is None else self.fields[index]

    def wrong(self, column: str, expected: str, *, value: str | None = None) -> TraceError:
        """Error about a column, to be raised; ``value`` is the wrong part if it is not the whole field."""
        text = self.text(column) or None if value is None else value
        return TraceError(TraceFault(self.line, column, shown(text) if value is None else value, expected))

    def seconds(self, column: str) -> Fraction:
        """Seconds, 0 or more, exact.

        Raises:
            TraceError: The field has another form.
        """
        text = self.text(column)
        number = Fraction(text) if _NUMBER.fullmatch(text) else None
        if number is None or number > _SECONDS_MAX:
            raise self.wrong(column, f"a number of seconds from 0 to {_SECONDS_MAX}")
        return number

    def optional_seconds(self, column: str) -> Fraction | None:
        """Seconds as :meth:`seconds`; None for an empty field."""
        return self.seconds(column) if self.text(column) else None

    def whole(self, column: str, *, least: int, most: int) -> int:
        """Whole number from ``least`` to ``most``; ``8.0`` is one.

        Raises:
            TraceError: The field has another form.
        """
        text = self.text(column)
        number = int(text.partition(".")[0]) if _WHOLE.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise self.wrong(column, f"a whole number from {least} to {most}")
        return number

    def optional_whole(self, column: str, *, least: int, most: int) -> int:
        """Whole number as :meth:`whole`; 0 for an empty field."""
        return self.whole(column, least=least, most=most) if self.text(column) else 0

    def pairs(self, column: str) -> dict[str, str]:
        """Keys and values of ``key=value;key=value``; a value may be empty.

        Raises:
            TraceError: A part has no key, no ``=``, or a repeated key.
        """
        out: dict[str, str] = {}
        for part in filter(None, self.text(column).split(";")):
            key, equals, value = (word.strip() for word in part.partition("="))
            if not equals or not key or key in out:
                raise self.wrong(column, "key=value;key=value, each key once")
            out[key] = value
        return out


class Table:
    """Header of a trace, and its rows as they are read.

    Args:
        lines: Lines of the file, with or without their ends.

    Raises:
        TraceError: There is no header, it repeats a column, or the text is not CSV.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self.line = 0
        """Last line that was read."""
        self._reader = csv.reader(self._counted(lines), strict=True)
        header = self._next()
        if header is None:
            raise TraceError(TraceFault(0, "", "empty", "a header that names the columns, and a row for each job"))
        header[0] = header[0].removeprefix("\ufeff").strip()
        repeated = [name for name in dict.fromkeys(header) if header.count(name) > 1]
        if repeated:
            raise TraceError(TraceFault(self.line, ", ".join(repeated), "named twice", "each column once"))
        self.header_line = self.line
        self.columns: Sequence[str] = header

    def rows(self) -> Iterator[TraceRow]:
        """Rows below the header, in order; can be read once.

        Raises:
            TraceError: The text is not CSV; the rest cannot be read.
        """
        place = {name: index for index, name in enumerate(self.columns)}
        while (fields := self._next()) is not None:
            yield TraceRow(self.line, place, fields)

    def _counted(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self.line += 1
            if not line.lstrip("\ufeff").startswith("#") and line.strip():
                yield line

    def _next(self) -> list[str] | None:
        try:
            fields = next(self._reader, None)
        except csv.Error as error:
            raise TraceError(TraceFault(self.line, "", f"wrong: {error}", "well-formed CSV")) from error
        return None if fields is None else [field.strip() for field in fields]
