"""``simulate``: real traces on the core, from the first arrival to the last end; the traces are not in the tree."""

import gzip
import sys
import time
from typing import Final, NamedTuple

import msgspec

from bench.limits.replay import first_fit_s
from bench.report import Report, Row, machine, row
from berth.core.simulation.planned_cluster import TimedFact, facts_of
from berth.core.simulation.simulator import Simulation, SimulationPlan
from berth.formats.clusters.cluster_text import read_cluster
from berth.formats.traces.reader import read_trace
from berth.schemas.envelope import encode
from berth.schemas.ledger import Settings
from berth.schemas.subjects import Subjects
from tests.support.traces import FILES, traces_folder


class Case(NamedTuple):
    """A trace, the divisor of its arrival times, and the cluster on which it runs."""

    trace: str
    compress: float
    cluster: str
    target_s: float


CASES: Final = (
    Case("kalos", 8.0, "nodes=302,leaf=16", 5.0),
    Case("kalos", 12.0, "nodes=302,leaf=16", 5.0),
    Case("philly", 1.0, "nodes=64,leaf=16", 60.0),
)


class Size(NamedTuple):
    """Size of a run: the first so many jobs of each trace; 0 for all."""

    jobs: int = 0


FULL: Final = Size()
SMALL: Final = Size(jobs=500)
_CELL: Final = "bench"
_CHIPS: Final = 8
"""Chips of one node in the limit program."""


def run(size: Size = FULL) -> Report:
    """Measure; a missing trace is skipped with a message on stderr."""
    rows: list[Row] = []
    for case in CASES:
        path = traces_folder() / FILES[case.trace]
        if not path.is_file():
            print(f"left out: no trace at {path}; the variable BERTH_TRACES names the folder", file=sys.stderr)
            continue
        rows += _measured(case, size)
    return Report(bench="simulate", machine=machine(), rows=rows)


def _measured(case: Case, size: Size) -> list[Row]:
    start_s = time.perf_counter()
    plan = plan_of(case, size)
    read_s = time.perf_counter() - start_s
    jobs, nodes = len(plan.workload.jobs), len(read_cluster(case.cluster).nodes)
    start_s = time.perf_counter()
    Simulation(plan, on_entry=None).run()
    took_s = time.perf_counter() - start_s
    limit_s = first_fit_s(nodes, _CHIPS, sum(task.replicas for job in plan.workload.jobs for task in job.request.tasks))
    name = f"{case.trace} x{case.compress:g}, {jobs} jobs, {nodes} nodes, skip"
    return [
        row(name, "read the trace", "s", [read_s]),
        row(name, "simulate", "s", [took_s], limits=[limit_s], target=case.target_s),
        row(name, "simulate", "jobs/s", [jobs / took_s], limits=[jobs / limit_s], better="more"),
    ]


def plan_of(case: Case, size: Size) -> SimulationPlan:
    """Plan of a simulation of a trace."""
    with gzip.open(traces_folder() / FILES[case.trace], "rt", encoding="utf-8") as file:
        workload = read_trace(file, compress=case.compress)
    if size.jobs:
        workload = msgspec.structs.replace(workload, jobs=workload.jobs[: size.jobs])
    facts = [
        TimedFact(0, subject, encode(message))
        for subject, message in facts_of(read_cluster(case.cluster), subjects=Subjects(_CELL), at_ms=0)
    ]
    return SimulationPlan(workload=workload, facts=facts, settings=Settings(), cell=_CELL)
