"""Studies: real traces simulated under several settings, one run a column, as parts of the document with pictures."""

import shutil
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from berth.cli.simulation.pictures import write_pictures
from berth.cli.simulation.results import Results, settings_lines
from berth.cli.simulation.simulate import Policy, Wanted, prepare, simulated
from berth.core.simulation.comparison import Comparison, ComparisonRow, markdown_of
from berth.core.simulation.fault_plan import Strategy
from berth.core.simulation.statistics import Statistics
from berth.core.simulation.timeline import Timeline
from tests.support.traces import FILES, traces_folder

FOLDER: Final = Path(__file__).parents[2] / "docs" / "results"
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
MEASURED_RATE: Final = "154d"
SEVERAL_RATE: Final = "42d"
"""Rates of failures: docs/simulate.md says where they come from."""


class Study(NamedTuple):
    """A table with its plots."""

    name: str
    heading: str
    trace: str
    cluster: str
    wanted: Wanted


def studies() -> list[Study]:
    """All studies, in the order of the document."""
    queue: tuple[Policy, ...] = ("skip", "fifo", "easy", "conservative")
    short: tuple[Policy, ...] = ("skip", "fifo", "easy")
    kalos, philly = "nodes=302,leaf=16", "nodes={},leaf=16"
    studies = []
    for factor in (8, 12):
        title = f"Kalos, arrivals {factor} times as dense, 302 nodes"
        studies += [
            Study(
                f"kalos-x{factor}-nodes",
                f"{title}: which nodes",
                "kalos",
                kalos,
                Wanted(compress=factor, baselines=True),
            ),
            Study(
                f"kalos-x{factor}-queue",
                f"{title}: queue policies, run times declared exactly",
                "kalos",
                kalos,
                Wanted(compress=factor, policy=queue, declare="exact"),
            ),
            Study(
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
            Study(f"philly-{nodes}-nodes", f"{title}: which nodes", "philly", where, Wanted(baselines=True)),
            Study(
                f"philly-{nodes}-queue",
                f"{title}: queue policies, run times declared exactly",
                "philly",
                where,
                Wanted(policy=short, declare="exact"),
            ),
        ]
    strategies: tuple[Strategy, ...] = ("pods-only", "pods", "job")
    rates = ((MEASURED_RATE, "6.5 failures in 1,000 node days"), (SEVERAL_RATE, "23.8 failures in 1,000 node days"))
    for mtbf, words in rates:
        wanted = Wanted(compress=12, faults=f"mtbf={mtbf},rejoin=1m,seed=1", recovery=strategies)
        studies.append(Study(f"kalos-failures-{mtbf}", f"Kalos with failures: {words}", "kalos", kalos, wanted))
    wanted = Wanted(faults=f"mtbf={SEVERAL_RATE},rejoin=1m,seed=1", recovery=("pods", "job"))
    title = f"Philly with failures: {rates[1][1]}"
    studies.append(Study(f"philly-failures-{SEVERAL_RATE}", title, "philly", philly.format(64), wanted))
    return studies


def part_of(study: Study) -> tuple[str, dict[tuple[str, str], Statistics]]:
    """Run a study and draw it; returns its part of the document, and its statistics by study and title."""
    start_s = time.perf_counter()
    setup = prepare(traces_folder() / FILES[study.trace], study.cluster, study.wanted)
    found, timelines = simulated(setup, study.wanted)
    print(f"{study.name}: {time.perf_counter() - start_s:.0f} s", file=sys.stderr)
    titles = [figures.title for figures in found.figures]
    lines = [f"## {study.heading}", ""]
    lines += [f"- {line}" for line in settings_lines(found)]
    lines += [f"- note: {note}" for note in found.notes]
    lines += ["", "Differences in brackets are to the first column.", ""]
    lines += [markdown_of(Comparison(titles, _kept(found)))]
    lines += [f"![{words}]({study.name}-{name})\n" for name, words in _pictures(study, timelines)]
    return "\n".join(lines), {(study.name, figures.title): figures for figures in found.figures}


def _kept(found: Results) -> list[ComparisonRow]:
    """Rows of a table, with all rows of blocked chips."""
    return [
        row
        for row in found.rows
        if row.section in _SECTIONS
        and (row.metric in _ROWS or row.metric.endswith(_BLOCKED) or row.section == "training under failures")
    ]


def _pictures(study: Study, timelines: list[Timeline]) -> list[tuple[str, str]]:
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
