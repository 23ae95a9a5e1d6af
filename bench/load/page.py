"""``python -m bench.load.page SAMPLES [REPORT ...]``: a page about load, with plots, into ``docs/results``.

SAMPLES is what ``bench load --samples`` wrote, a REPORT what another bench printed with ``--json``.
"""

import argparse
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bench import health
from bench.load import nodes, reports, waiting
from bench.load.samples import Course, Sample, read_course
from bench.load.verdict import SETTLED_S, rows_of, windows
from bench.report import Report, Row
from berth.cli.simulation.drawing import WIDTH_IN, rendered, styled

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "results"
_HEIGHT_IN: Final = 3.6
_COLUMNS: Final = 120
_MIB: Final = 1 << 20
_HEAD: Final = "| case | figure | value | unit | target | ok |\n|---|---|---:|---|---:|---|"
_TEXT: Final = """\
# Load

Made by `python -m bench load --samples FILE`, other benches with `--json`, and `python -m bench.load.page FILE ...`;
nothing here is written by hand.

## An hour of jobs that come and go

- cell: nats-server with file storage on one node, two dispatchers of which one stands by, one scorer, the health
  service; all real processes. A client does what users, binder and inventory would do.
- cluster: {nodes:,.0f} nodes of 8 chips; {used:.0%} of the chips are in use. Each node reports its health once a minute.
- jobs: one pod of 1 chip (45 %), one pod of 8 chips (45 %), 4 pods of 8 chips (10 %). Their pods run, and end when
  others need their chips: then the oldest job ends.
- rate: as many jobs as the cell places, for {fast_s:.0f} s: {measured:,.0f} a second in the second half of that time. Then
  0.8 of it, {rate:,.0f} a second, for {seconds:.0f} s, whatever becomes of them. Latency counts from the time at which a job
  was due, so that a client that is late itself counts too.
- What a cell keeps for days was kept for minutes, so that an hour sees its end: requests and facts {kept_s:.0f} s instead
  of seven days, names of jobs that are over 30 s instead of ten minutes, a snapshot for each minute instead of each
  hour. All else is the default.
- Jobs come under {names:,.0f} names in turn, because the latest facts and the status of a job are kept for its name.
- machine: {machine}
{notes}
The steady state is taken to begin after {settled:.0f} s. `at first` is the median of the samples from then to
{early:.0f} s, `at last` the median of the samples from {late:.0f} s on. A row with a target is part of the verdict.

{verdict}

{head}
{rows}

![Memory of each process](load-memory.png)

![Latency from submission to placement](load-latency.png)

![Size of the streams](load-streams.png)
"""
_SECTIONS: Final = {
    "waiting": ("50,000 gangs that wait", waiting),
    "nodes": ("A million nodes", nodes),
    "reports": ("10,000 health reports a second, held for a minute", reports),
    "health": ("Health reports, as many as are taken", health),
}
"""Heading of another bench, and its module, whose text says what it measures."""


def main() -> int:
    """Write page and plots; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.load.page")
    parser.add_argument("samples", type=Path)
    parser.add_argument("--note", action="append", default=[], help="what else is to be said of the hour, a sentence")
    parser.add_argument("--equal-from", type=float, default=SETTLED_S, metavar="S", help="see bench.load.verdict")
    parser.add_argument("--again", type=Path, help="samples of a shorter load that repeats this one")
    parser.add_argument("--again-from", type=float, default=SETTLED_S, metavar="S", help="when that was settled")
    parser.add_argument("--again-note", action="append", default=[], help="what is to be said of that")
    parser.add_argument("reports", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=_FOLDER)
    arguments = parser.parse_args()
    course = read_course(arguments.samples)
    for name, content in pictures(course).items():
        (arguments.out / f"load-{name}.png").write_bytes(content)
    parts = [page(course, arguments.note, arguments.equal_from)]
    if arguments.again is not None:
        parts.append(repetition(read_course(arguments.again), arguments.again_note, arguments.again_from))
    reports = [msgspec.json.decode(path.read_bytes(), type=Report) for path in arguments.reports]
    (arguments.out / "load.md").write_text("\n".join([*parts, *map(section, reports)]), "utf-8")
    return 0


def page(course: Course, notes: Sequence[str] = (), equal_from_s: float = SETTLED_S) -> str:
    """The page.

    Args:
        course: The load.
        notes: What else is to be said of it.
        equal_from_s: When conditions are equal from; see :func:`bench.load.verdict.rows_of`.
    """
    rows = rows_of(course, equal_from_s)
    early, late = windows(course.samples)
    named: dict[str, Any] = course.settings | {
        "measured": course.measured_rate,
        "rate": course.rate,
        "machine": f"{course.machine.processor}, {course.machine.cores} cores, Python {course.machine.python}",
        "settled": early[0].at_s,
        "early": early[-1].at_s,
        "late": late[0].at_s,
        "notes": "".join(textwrap.fill(f"- {note}", _COLUMNS, subsequent_indent="  ") + "\n" for note in notes),
        "verdict": textwrap.fill(f"**Verdict: {_met(rows)}**", _COLUMNS),
        "head": _HEAD,
        "rows": _lines(rows),
    }
    return _TEXT.format(**named)


def repetition(course: Course, notes: Sequence[str], settled_s: float = SETTLED_S) -> str:
    """Part of the page about a shorter load like the one before.

    Args:
        course: The load.
        notes: What is to be said of it.
        settled_s: When the cell was in its steady state.
    """
    rows = rows_of(course, settled_s, settled_s=settled_s)
    lines = "".join(textwrap.fill(f"- {note}", _COLUMNS, subsequent_indent="  ") + "\n" for note in notes)
    text = textwrap.fill(f"**Verdict: {_met(rows)}**", _COLUMNS)
    seconds = course.settings["seconds"]
    return f"## The same again, for {seconds:,.0f} s\n\n{lines}\n{text}\n\n{_HEAD}\n{_lines(rows)}\n"


def _met(rows: Sequence[Row]) -> str:
    judged = [one for one in rows if one.ok is not None]
    missed = [one.metric for one in judged if not one.ok]
    return f"{len(judged) - len(missed)} of {len(judged)} are met" + (f"; not: {', '.join(missed)}" if missed else "")


def section(report: Report) -> str:
    """Part of the page about another bench: what its module says of it, and its rows."""
    heading, module = _SECTIONS[report.bench]
    text = (module.__doc__ or "").replace("``", "`").strip()
    return f"## {heading}\n\n{text}\n\n{_HEAD}\n{_lines(report.rows)}\n"


def _lines(rows: Iterable[Row]) -> str:
    return "\n".join(
        f"| {one.case} | {one.metric} | {one.value:,.2f} | {one.unit} | {'' if one.target is None else f'{one.target:,.2f}'}"
        f" | {'' if one.ok is None else 'yes' if one.ok else 'no'} |"
        for one in rows
    )


def pictures(course: Course) -> dict[str, bytes]:
    """Plots over time as PNG, by name."""
    first = course.samples[0]
    return {
        "memory": _plot(
            course,
            "MiB (PSS)",
            {name: partial(_memory_mib, name) for name in first.processes},
        ),
        "latency": _plot(
            course,
            "ms from submission to placement",
            {
                "p50": lambda one: one.latency.p50_ms,
                "p99": lambda one: one.latency.p99_ms,
                "longest": lambda one: one.latency.most_ms,
            },
            log=True,
        ),
        "streams": _plot(
            course,
            "MiB in the stream",
            {name: partial(_stream_mib, name) for name in first.streams},
        ),
    }


def _memory_mib(process: str, sample: Sample) -> float:
    return sample.processes[process].pss_mib


def _stream_mib(stream: str, sample: Sample) -> float:
    return sample.streams[stream].bytes / _MIB


def _plot(course: Course, unit: str, lines: Mapping[str, Callable[[Sample], float]], *, log: bool = False) -> bytes:
    with styled():
        figure = Figure(figsize=(WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.add_subplot()
        minutes = [one.at_s / 60 for one in course.samples]
        for name, of in lines.items():
            axes.plot(minutes, [of(one) for one in course.samples], label=name, linewidth=1.2)
        axes.set_xlabel("minutes")
        axes.set_ylabel(unit)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:,.0f}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return rendered(figure, "png")


if __name__ == "__main__":
    sys.exit(main())
