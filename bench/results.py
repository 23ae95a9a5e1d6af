"""``python -m bench.results``: simulates real traces and writes tables, plots and settings to ``docs/results``.

The traces are no part of the tree; :func:`tests.support.traces.traces_folder` says where they are looked for.
"""

import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from berth.cli.simulation.pictures import write_file, write_pictures
from berth.cli.simulation.results import Results, settings_lines
from berth.cli.simulation.simulate import Policy, Wanted, prepare, simulated
from berth.core.simulation.comparison import Comparison, ComparisonRow, markdown_of
from berth.core.simulation.statistics import Statistics
from berth.core.simulation.timeline import Timeline
from tests.support.traces import FILES, traces_folder

FOLDER: Final = Path(__file__).parents[1] / "docs" / "results"
_SECTIONS: Final = frozenset(
    {
        "jobs", "waiting time", "waiting time of jobs of 64 chips and more", "use of the chips", "leaf switches",
        "chips blocked while a gang waits", "training under failures", "time from a failure to training",
    }
)  # fmt: skip
_ROWS: Final = {
    "placed", "rejected", "still waiting at the end", "mean", "p50", "p95", "p99", "makespan", "allocation ratio",
    "idle on partly used nodes, mean", "jobs of several nodes", "span over the smallest possible, mean",
    "jobs that span more than they must", "jobs on more than one", "jobs that fit one and use several",
}  # fmt: skip
"""Rows of the tables; ``berth simulate`` shows all rows."""
_BLOCKED: Final = (", mean", ", part of the time")
"""Suffixes of the rows of blocked chips."""
_INTRODUCTION: Final = """\
# Results on real traces

Made by `make results`, which runs `python -m bench.results`; nothing here is written by hand. What each figure means is in
[simulate.md](../simulate.md#metrics). The traces are no part of the tree:

- Kalos: Shanghai AI Laboratory's cluster (InternLM/AcmeTrace, CC BY 4.0), 319 jobs of 90 days of 2023.
- Philly: Microsoft's clusters (msr-fiddle/philly-traces, CC BY 4.0), 82,247 jobs of autumn 2017.

There are no failures in them. Those of the last tables are drawn ([simulate.md](../simulate.md#failures)).
A leaf switch has 16 nodes of 8 chips. Times are seconds of the trace.
`conservative` is left out for Philly: each of its rounds plans for thousands of jobs that wait.
"""
_ORIENTATION: Final = {
    ("kalos-x8-queue", "fifo"): (23_056.0, 1.0),
    ("kalos-x8-queue", "skip"): (15_137.0, 1.0),
    ("kalos-x8-nodes", "skip, random nodes"): (15_137.0, 4.25),
    ("kalos-x8-queue", "easy"): (15_024.0, 1.0),
    ("philly-64-queue", "fifo"): (794_130.0, 1.83),
    ("philly-64-queue", "skip"): (93_928.0, 1.74),
    ("philly-64-queue", "easy"): (240_397.0, 1.69),
}
"""Mean wait in s and ratio of the leaf span, from a small simulator that is published with the traces."""


class _Study(NamedTuple):
    """A table with its plots."""

    name: str
    heading: str
    trace: str
    cluster: str
    wanted: Wanted


def _studies() -> list[_Study]:
    queue: tuple[Policy, ...] = ("skip", "fifo", "easy", "conservative")
    short: tuple[Policy, ...] = ("skip", "fifo", "easy")
    kalos, philly = "nodes=302,leaf=16", "nodes={},leaf=16"
    studies = []
    for factor in (8, 12):
        title = f"Kalos, arrivals {factor} times as dense, 302 nodes"
        studies += [
            _Study(
                f"kalos-x{factor}-nodes",
                f"{title}: which nodes",
                "kalos",
                kalos,
                Wanted(compress=factor, baselines=True),
            ),
            _Study(
                f"kalos-x{factor}-queue",
                f"{title}: queue policies, run times declared exactly",
                "kalos",
                kalos,
                Wanted(compress=factor, policy=queue, declare="exact"),
            ),
            _Study(
                f"kalos-x{factor}-queue-undeclared",
                f"{title}: queue policies, no run times declared",
                "kalos",
                kalos,
                Wanted(compress=factor, policy=queue),
            ),
        ]
    for nodes in (64, 56):
        title = f"Philly, {nodes} nodes"
        where = philly.format(nodes)
        studies += [
            _Study(f"philly-{nodes}-nodes", f"{title}: which nodes", "philly", where, Wanted(baselines=True)),
            _Study(
                f"philly-{nodes}-queue",
                f"{title}: queue policies, run times declared exactly",
                "philly",
                where,
                Wanted(policy=short, declare="exact"),
            ),
        ]
    rates = (("154d", "6.5 failures in 1,000 node days"), ("15d", "about ten times as many"))
    for mtbf, words in rates:
        wanted = Wanted(compress=8, faults=f"mtbf={mtbf},seed=1", recovery=("pods", "job"))
        studies.append(_Study(f"kalos-failures-{mtbf}", f"Kalos with failures: {words}", "kalos", kalos, wanted))
    return studies


def main() -> int:
    """Run all studies, or the named ones, and write them to the folder; returns the exit code."""
    missing = [path for name in FILES.values() if not (path := traces_folder() / name).is_file()]
    if missing:
        print(f"no trace at {missing[0]}; the variable BERTH_TRACES names the folder", file=sys.stderr)
        return 1
    chosen = [study for study in _studies() if not sys.argv[1:] or study.name in sys.argv[1:]]
    found: dict[tuple[str, str], Statistics] = {}
    parts = {study: _part(study, found) for study in chosen}
    if len(chosen) == len(_studies()):
        text = "\n".join([_INTRODUCTION, _beside(found), *parts.values()])
    else:
        text = _replaced((FOLDER / "README.md").read_text("utf-8"), parts, found)
    write_file(FOLDER / "README.md", text.encode())
    return 0


def _replaced(text: str, parts: Mapping[_Study, str], found: Mapping[tuple[str, str], Statistics]) -> str:
    """The document with updated parts of some studies."""
    sections = text.split("\n## ")
    for study, part in parts.items():
        new = part.removeprefix("## ")
        if not any(section.startswith(f"{study.heading}\n") for section in sections):
            sections.append(new)
        sections = [new if section.startswith(f"{study.heading}\n") else section for section in sections]
    lines = "\n## ".join(sections).split("\n")
    anew = {_beside_start(*key): _beside_line(key, found[key]) for key in _ORIENTATION if key in found}
    return "\n".join(next((new for start, new in anew.items() if line.startswith(start)), line) for line in lines)


def _beside(found: Mapping[tuple[str, str], Statistics]) -> str:
    """Comparison with another program."""
    lines = ["## Beside another program", ""]
    lines += [
        "A small simulator by others came with the traces. Why figures differ is in [simulate.md](../simulate.md#results).",
        "",
    ]
    lines += [
        "| run | mean wait, other | mean wait, Berth | leaf span, other | leaf span, Berth |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [_beside_line(key, found[key]) for key in _ORIENTATION]
    return "\n".join([*lines, ""])


def _beside_start(study: str, title: str) -> str:
    return f"| {study}: {title} |"


def _beside_line(key: tuple[str, str], ours: Statistics) -> str:
    wait_s, span = _ORIENTATION[key]
    mean_s, ratio = ours.wait.mean_ms / 1000, ours.leaf_span.ratio_mean
    return f"{_beside_start(*key)} {wait_s:,.0f} | {mean_s:,.0f} | {span:.2f} | {ratio:.2f} |"


def _part(study: _Study, all_found: dict[tuple[str, str], Statistics]) -> str:
    """Run a study; returns its part of the document and adds its statistics to ``all_found``."""
    start_s = time.perf_counter()
    setup = prepare(traces_folder() / FILES[study.trace], study.cluster, study.wanted)
    found, timelines = simulated(setup, study.wanted)
    print(f"{study.name}: {time.perf_counter() - start_s:.0f} s", file=sys.stderr)
    all_found.update({(study.name, figures.title): figures for figures in found.figures})
    titles = [figures.title for figures in found.figures]
    lines = [f"## {study.heading}", ""]
    lines += [f"- {line}" for line in settings_lines(found)]
    lines += [f"- note: {note}" for note in found.notes]
    lines += ["", "Differences in brackets are to the first column.", ""]
    lines += [markdown_of(Comparison(titles, _kept(found)))]
    lines += [f"![{words}]({study.name}-{name})\n" for name, words in _pictures(study, timelines)]
    return "\n".join(lines)


def _kept(found: Results) -> list[ComparisonRow]:
    """Rows of a table, with all rows of blocked chips."""
    return [
        row
        for row in found.rows
        if row.section in _SECTIONS
        and (row.metric in _ROWS or row.metric.endswith(_BLOCKED) or row.section == "training under failures")
    ]


def _pictures(study: _Study, timelines: list[Timeline]) -> list[tuple[str, str]]:
    """Plots of a study, small, each with a caption."""
    wanted = (
        {"failures": "Chip hours that failures cost"}
        if study.wanted.faults
        else {"waiting": "Waiting time by size of the jobs"}
        if "queue" in study.name
        else {"span": "Leaf switches of jobs"}
    )
    wanted |= {"use": "Chips in use and asked for"} if study.trace == "kalos" else {}
    folder = FOLDER / f".{study.name}"
    try:
        write_pictures(timelines, folder, ("png",))
        for name in wanted:
            shutil.copy(folder / f"{name}.png", FOLDER / f"{study.name}-{name}.png")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [(f"{name}.png", f"{words}: {study.heading}") for name, words in wanted.items()]


if __name__ == "__main__":
    sys.exit(main())
