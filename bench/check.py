"""``python -m bench.check [NAME ...]``: every row of every bench in its smallest form; each ends and has its figures.

The figures say nothing about Berth: the benches are too small. What is seen is that they run. Exit code 1 if one does
not end in its time, fails, lacks rows, or has a row whose value or limit was not measured.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from bench.catalogue import BENCHES, Bench
from bench.processes import ROOT
from bench.report import Report, Row

TOTAL_S: Final = 900.0
"""Longest time of all benches."""
_TAIL: Final = 400


class Ended(NamedTuple):
    """How a bench ended.

    Attributes:
        code: Exit code; None if it was killed because its time was over.
        out: What it wrote, which should be a report as JSON.
        log: What else it wrote.
    """

    code: int | None
    out: bytes
    log: str


class Verdict(NamedTuple):
    """What is said of a bench: its name, rows, seconds, and what is wrong, a sentence each."""

    name: str
    rows: int
    took_s: float
    faults: Sequence[str]


def faults_of(ended: Ended, bench: Bench) -> tuple[int, list[str]]:
    """Count of the rows of a bench, and what is wrong with it; pure.

    Args:
        ended: How it ended.
        bench: Its limit and the rows that it must have.
    """
    if ended.code is None:
        return 0, [f"it did not end within its {bench.limit_s:g} s"]
    if ended.code:
        return 0, [f"exit code {ended.code}: {ended.log.strip()[-_TAIL:] or 'it wrote nothing'}"]
    try:
        report = msgspec.json.decode(ended.out, type=Report)
    except msgspec.DecodeError as error:  # a value that is no number is null in JSON
        return 0, [f"its report is not one: {error}"]
    faults = [fault for row in report.rows if (fault := _fault_of(row))]
    if len(report.rows) < bench.rows:
        left_out = f": {ended.log.strip()[-_TAIL:]}" if ended.log.strip() else ""
        faults.append(f"{len(report.rows)} rows, expected {bench.rows}{left_out}")
    return len(report.rows), faults


def _fault_of(row: Row) -> str:
    """What is wrong with a row; empty if nothing is."""
    what = f"{row.case}, {row.metric}"
    if not math.isfinite(row.value) or (row.value <= 0 and not row.can_be_zero):
        return f"{what}: {row.value} {row.unit} is no measured value"
    if row.limit is not None and not (math.isfinite(row.limit) and row.limit > 0):
        return f"{what}: {row.limit} {row.unit} is no measured limit"
    return ""


def _run(name: str, limit_s: float) -> Ended:
    """Run the smallest form of a bench; it and its processes are killed when the time is over."""
    command = [sys.executable, "-m", "bench", name, "--small", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, start_new_session=True) as child:  # noqa: S603  # ourselves
        try:
            out, log = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return Ended(None, b"", "")
        finally:
            with suppress(ProcessLookupError):  # nothing of it is left, as it should be
                os.killpg(child.pid, signal.SIGKILL)
        return Ended(child.returncode, out, log.decode(errors="replace"))


def _checked(name: str, left_s: float) -> Verdict:
    bench = BENCHES[name]
    if left_s <= 0:
        return Verdict(name, 0, 0.0, [f"it was not run: the {TOTAL_S:g} s of all benches are over"])
    began_s = time.perf_counter()
    rows, faults = faults_of(_run(name, min(bench.limit_s, left_s)), bench)
    return Verdict(name, rows, time.perf_counter() - began_s, faults)


def main() -> int:
    """Check benches; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.check")
    parser.add_argument("names", nargs="*", metavar="NAME", help="benches; none: all")
    names = parser.parse_args().names or list(BENCHES)
    if wrong := [name for name in names if name not in BENCHES]:
        parser.error(f"NAME is {wrong[0]!r}, expected one of {', '.join(BENCHES)}")
    end_s = time.perf_counter() + TOTAL_S
    verdicts = []
    for name in names:
        verdicts.append(_checked(name, end_s - time.perf_counter()))
        print(f"{name}: {verdicts[-1].took_s:.0f} s", file=sys.stderr)
    table = Table(title="Benches in their smallest form")
    for heading in ("bench", "rows", "seconds", "verdict"):
        table.add_column(heading, justify="right" if heading in {"rows", "seconds"} else "left")
    for one in verdicts:
        table.add_row(one.name, str(one.rows), f"{one.took_s:.1f}", "\n".join(one.faults) or "ok")
    rows, took_s = sum(one.rows for one in verdicts), sum(one.took_s for one in verdicts)
    failed = sum(bool(one.faults) for one in verdicts)
    table.add_row("all", str(rows), f"{took_s:.1f}", f"{failed} failed" if failed else "ok")
    Console(width=None if sys.stdout.isatty() else 120).print(table, markup=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
