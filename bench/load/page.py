"""``python -m bench.load.page SAMPLES``: plots of a load, and the page with its verdict, into ``docs/results``."""

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from bench.load.samples import Course, Sample, read_course
from bench.load.verdict import rows_of, windows
from berth.cli.simulation.drawing import WIDTH_IN, rendered, styled

_FOLDER: Final = Path(__file__).parents[2] / "docs" / "results"
_HEIGHT_IN: Final = 3.6
_MIB: Final = 1 << 20
_TEXT: Final = """\
# An hour of load

Made by `python -m bench load --samples FILE` and `python -m bench.load.page FILE`; nothing here is written by hand.

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
- machine: {machine}. Other work of lower priority ran beside it.

The steady state is taken to begin after {settled:.0f} s. `at first` is the median of the samples from then to
{early:.0f} s, `at last` the median of the samples from {late:.0f} s on. A row with a target is part of the verdict.

**Verdict: {verdict}**

| when | figure | value | unit | target | ok |
|---|---|---:|---|---:|---|
{rows}

![Memory of each process](load-memory.png)

![Latency from submission to placement](load-latency.png)

![Size of the streams](load-streams.png)
"""


def main() -> int:
    """Write page and plots; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.load.page")
    parser.add_argument("samples", type=Path)
    parser.add_argument("--out", type=Path, default=_FOLDER)
    arguments = parser.parse_args()
    course = read_course(arguments.samples)
    for name, content in pictures(course).items():
        (arguments.out / f"load-{name}.png").write_bytes(content)
    (arguments.out / "load.md").write_text(page(course), "utf-8")
    return 0


def page(course: Course) -> str:
    """The page."""
    rows = rows_of(course)
    early, late = windows(course.samples)
    judged = [one for one in rows if one.ok is not None]
    missed = [one.metric for one in judged if not one.ok]
    lines = [
        f"| {one.case} | {one.metric} | {one.value:,.2f} | {one.unit} | {'' if one.target is None else f'{one.target:,.2f}'}"
        f" | {'' if one.ok is None else 'yes' if one.ok else 'no'} |"
        for one in rows
    ]
    return _TEXT.format(
        **course.settings,
        measured=course.measured_rate,
        rate=course.rate,
        machine=f"{course.machine.processor}, {course.machine.cores} cores, Python {course.machine.python}",
        settled=early[0].at_s,
        early=early[-1].at_s,
        late=late[0].at_s,
        verdict=f"{len(judged) - len(missed)} of {len(judged)} are met"
        + (f"; not: {', '.join(missed)}" if missed else ""),
        rows="\n".join(lines),
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
        else:
            axes.set_ylim(bottom=0)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
        return rendered(figure, "png")


if __name__ == "__main__":
    sys.exit(main())
