"""Output of commands: tables and text for people, JSON for programs, one line per error.

Text is wrapped at words on a terminal, and not at all elsewhere. What comes from outside may be printed as it is:
whatever a command prints is escaped here or by :func:`berth.cli.tables.text_of`, and nothing else writes to stdout or
stderr.
"""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from berth.cli.tables import Span, Styled, Table, filled, text_of, wrapped
from berth.formats.shown import Shown, shown_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

OK: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
LATE: Final = 124
"""What a command waited for did not come in time; the code of ``timeout`` of coreutils."""
INTERRUPTED: Final = 130
"""Ctrl-C; the code that shells give to a command that SIGINT ended."""
_NO_OUTPUT: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
_HELP_WIDTH: Final = 160
"""Cells of a line of a help page without a terminal."""
_LEGEND_GAP: Final = " " * 3
_NODES_SHOWN: Final = 3
_NEAR: Final = 0.5
"""Similarity of names from which on they are near."""
_NEAR_MAX: Final = 3
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


def results() -> "Console":
    """Console for results: stdout."""
    return _console(to_stderr=False)


def progress_console() -> "Console":
    """Console for everything else: stderr."""
    return _console(to_stderr=True)


def _console(*, to_stderr: bool) -> "Console":
    from rich.console import Console  # noqa: PLC0415  # takes time that commands for programs do not need

    width = None if is_terminal(of_stderr=to_stderr) else _HELP_WIDTH
    return Console(stderr=to_stderr, highlight=False, soft_wrap=False, width=width)


def is_terminal(*, of_stderr: bool = False) -> bool:
    """Whether a person reads stdout, or stderr."""
    return (sys.stderr if of_stderr else sys.stdout).isatty()


def line_width(console: "Console") -> int | None:
    """Cells of a line on the terminal; None if there is no terminal, where nothing is wrapped."""
    return console.width if console.file.isatty() else None


def print_table(table: Table) -> None:
    """Print a table as a result."""
    console = results()
    _print_lines(console, table.lines(line_width(console)))


def print_progress(line: str) -> None:
    """Print a line to stderr."""
    _print_wrapped(progress_console(), line)


def print_result(line: Styled) -> None:
    """Print a line of a result."""
    _print_wrapped(results(), line)


def print_legend(items: Iterable[Styled]) -> None:
    """Print items beside one another, as many on a line as fit."""
    console = results()
    _print_lines(console, filled(items, _LEGEND_GAP, line_width(console)))


def emit(value: object) -> None:
    """Print a result as one line of JSON."""
    write([json_line(value)])


def json_line(value: object) -> Shown:
    """A value as one line of JSON."""
    import msgspec  # noqa: PLC0415  # takes time that the list of commands does not need

    return shown_json(msgspec.json.encode(value).decode())


def write(lines: Iterable[Shown], *, to_stderr: bool = False, end: str = "\n") -> None:
    """Write lines as they are, each with ``end``."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.write("".join(f"{line}{end}" for line in lines))
    stream.flush()


def lost_output(error: Exception) -> int | None:
    """Exit code of a command whose output could not be written, after an error that says so; None for other errors.

    Buffered output is then dropped. A reader that closed a pipe has seen enough, which is no error.

    Args:
        error: What ended the command.
    """
    try:
        sys.stdout.flush()
    except OSError as found:
        error = found
    if not isinstance(error, OSError) or error.filename is not None or error.errno not in _NO_OUTPUT:
        return None
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if error.errno == errno.EPIPE:
        return OK
    complain([f"the output cannot be written: {error.strerror}"])
    return FAILED


def complain(lines: Iterable[str]) -> None:
    """Print errors, one per line."""
    for line in lines:
        _print_wrapped(progress_console(), [Span("error:", "bold red"), Span(f" {line}")])


def warn(lines: Iterable[str]) -> None:
    """Print warnings, one per line."""
    for line in lines:
        _print_wrapped(progress_console(), [Span("warning:", "bold yellow"), Span(f" {line}")])


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something takes time; nothing is shown elsewhere."""
    console = progress_console()
    if not console.file.isatty():
        yield
        return
    with console.status(text_of(what)):
        yield


def _print_wrapped(console: "Console", line: Styled) -> None:
    _print_lines(console, wrapped(text_of(line), line_width(console)))


def _print_lines(console: "Console", lines: Iterable["Text"]) -> None:
    from rich.text import Text  # noqa: PLC0415  # as above

    found = list(lines)
    if not console.file.isatty():
        console.file.write("".join(f"{line.plain}\n" for line in found))
        console.file.flush()  # whoever reads a pipe waits for it
    elif found:
        console.print(Text("\n").join(found), soft_wrap=True)  # a call for each line takes several times as long


def moment(at_ms: int) -> str:
    """A time in UTC."""
    return f"{datetime.fromtimestamp(at_ms / _SECOND_MS, UTC):%Y-%m-%d %H:%M:%S}.{at_ms % _SECOND_MS:03} UTC"


def clock_time(at_ms: int, now_ms: int) -> str:
    """A time in UTC to the minute, without the date if that is today."""
    at = datetime.fromtimestamp(at_ms / _SECOND_MS, UTC)
    today = datetime.fromtimestamp(now_ms / _SECOND_MS, UTC).date()
    return f"{at:%H:%M} UTC" if at.date() == today else f"{at:%Y-%m-%d %H:%M} UTC"


def age(since_ms: int, now_ms: int) -> str:
    """Elapsed time, in its largest unit."""
    seconds = max(0, now_ms - since_ms) / _SECOND_MS
    for size, unit in ((_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def listed(names: Iterable[str], most: int = _NODES_SHOWN) -> str:
    """Names, each once in the order of the first mention, cut after ``most``."""
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"{', '.join(known[:most])}{more}"


def known_jobs(count: int) -> str:
    """How many jobs are known, for a hint."""
    return "1 job is known" if count == 1 else f"{count:,} jobs are known"


def near_names(word: str, known: Iterable[str]) -> list[str]:
    """Up to three similar names, the most similar first."""
    import difflib  # noqa: PLC0415  # as above

    return difflib.get_close_matches(word, sorted(known), n=3, cutoff=_NEAR)


def near_jobs(job: str, known: Iterable[str]) -> list[str]:
    """Up to three jobs with similar names, as ``namespace/name``: those of the namespace first, then any of the name.

    A namespace that is equal makes no names similar.
    """
    namespace, _, name = job.rpartition("/")
    of_name: dict[str, list[str]] = {}
    for one in sorted(known, key=lambda other: (other.rpartition("/")[0] != namespace, other)):
        of_name.setdefault(one.rpartition("/")[2], []).append(one)
    return [one for near in near_names(name, of_name) for one in of_name[near]][:_NEAR_MAX]
