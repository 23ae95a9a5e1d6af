"""``python -m bench.against --base COMMIT [--row ROW] [--json]``: is this tree slower than another commit?"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from bench.against.rows import ROWS
from bench.against.trees import BaseError, sides
from bench.against.turns import Budget, measured
from bench.against.verdict import SLOWER, Compared, Ratio
from bench.report import machine

TOTAL_S: Final = 1_200.0
"""When the comparison is to be over. The pairs that a row needs at least are measured in any case."""
_SPARE_S: Final = 60.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison as JSON."""

    base: str
    slower_beyond: float
    machine: object
    rows: list[Compared]


def main() -> int:
    """Compare; returns the exit code: 1 if a row is slower or could not be compared, 2 for a bad argument."""
    parser = argparse.ArgumentParser(prog="python -m bench.against")
    parser.add_argument("--base", required=True, metavar="COMMIT", help="commit to compare with")
    parser.add_argument("--row", action="append", choices=list(ROWS), help="only this row")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)  # all is removed then, too
    began_s = time.perf_counter()
    try:
        rows = _rows(arguments.base, arguments.row or list(ROWS), Budget(began_s + TOTAL_S - _SPARE_S))
    except BaseError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the worktree is removed", file=sys.stderr)
        return 1
    if arguments.json:
        answer = Answer(base=arguments.base, slower_beyond=SLOWER, machine=machine(), rows=rows)
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer), indent=1).decode() + "\n")
    else:
        _show(arguments.base, rows, time.perf_counter() - began_s)
    return 1 if any(one.is_slower or not one.is_measured for one in rows) else 0


def _rows(base: str, names: Sequence[str], budget: Budget) -> list[Compared]:
    """Measure rows.

    Raises:
        BaseError: There is no such base.
    """
    with sides(base) as (this, other), tempfile.TemporaryDirectory(prefix="berth-against-logs-") as folder:
        return measured(names, this, other, Path(folder), budget, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(base: str, rows: Sequence[Compared], took_s: float) -> None:
    title = f"Seconds of this tree over those of {base}, medians of pairs (least to most); {took_s:.0f} s in all"
    table = Table(title=title)
    for heading in ("row", "a round", "pairs", "this, ms", "wall", "CPU", "verdict"):
        table.add_column(heading, justify="right" if heading in {"pairs", "this, ms"} else "left")
    for one in rows:
        this_ms = f"{1000 * one.wall.this_s:,.0f}" if one.wall is not None else ""
        verdict = f"{one.verdict}; {one.note}" if one.note else one.verdict
        table.add_row(one.row, one.work, str(one.pairs), this_ms, _text(one.wall), _text(one.cpu), verdict)
    Console(width=None if sys.stdout.isatty() else 160).print(table, markup=False)
    slower = [one.row for one in rows if one.is_slower]
    print(f"beyond {SLOWER}: {', '.join(slower)}" if slower else f"no row is beyond {SLOWER}")


def _text(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.median:.3f} ({ratio.least:.3f} to {ratio.most:.3f})"


if __name__ == "__main__":
    sys.exit(main())
