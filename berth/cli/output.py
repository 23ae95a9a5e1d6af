"""Output of commands: tables for people, JSON for programs, one line per error."""

import difflib
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

OK: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
_WIDTH_WITHOUT_TERMINAL: Final = 160
_NODES_SHOWN: Final = 3
_SECOND_MS: Final = 1000
_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400


class CommandError(Exception):
    """A command failed.

    Attributes:
        lines: Errors, one per line.
        code: Exit code.
    """

    def __init__(self, *lines: str, code: int = FAILED) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines
        self.code = code


def results() -> Console:
    """Console for results: stdout."""
    return _console(to_stderr=False)


def progress_console() -> Console:
    """Console for everything else: stderr."""
    return _console(to_stderr=True)


def _console(*, to_stderr: bool) -> Console:
    is_terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
    return Console(
        stderr=to_stderr, highlight=False, soft_wrap=False, width=None if is_terminal else _WIDTH_WITHOUT_TERMINAL
    )


def print_progress(line: str) -> None:
    """Print a line to stderr."""
    progress_console().print(escape(line), soft_wrap=True)


def print_result(line: str) -> None:
    """Print a line of a result."""
    results().print(escape(line), soft_wrap=True)


def emit(value: object) -> None:
    """Print a result as one line of JSON."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def complain(lines: Iterable[str]) -> None:
    """Print errors, one per line."""
    console = progress_console()
    for line in lines:
        console.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True)


def new_table(*columns: str, last_folds: bool = True) -> Table:
    """A table without lines; only the last column may be broken."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_last = column == columns[-1]
        table.add_column(column, no_wrap=not (is_last and last_folds), overflow="fold")
    return table


def moment(at_ms: int) -> str:
    """A time in UTC."""
    return f"{datetime.fromtimestamp(at_ms / _SECOND_MS, UTC):%Y-%m-%d %H:%M:%S}.{at_ms % _SECOND_MS:03} UTC"


def age(since_ms: int, now_ms: int) -> str:
    """Elapsed time, in its largest unit."""
    seconds = max(0, now_ms - since_ms) / _SECOND_MS
    for size, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def plain(text: str) -> str:
    """A text from outside on one line: characters that move a cursor or end a line are escaped."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def listed(names: Iterable[str], most: int = _NODES_SHOWN) -> str:
    """Names, each once in the order of the first mention, cut after ``most``."""
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"


def known_jobs(count: int) -> str:
    """How many jobs are known, for a hint."""
    return "1 job is known" if count == 1 else f"{count} jobs are known"


def near_names(word: str, known: Iterable[str]) -> list[str]:
    """Up to three similar names, the most similar first."""
    return difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.5)
