"""``simulate``: real traces on the core, from the first arrival to the last end; the traces are not in the tree."""

import gzip
import sys
import time
from typing import Final, NamedTuple

from bench.limits.replay import first_fit_s
from bench.report import Report, Row, machine, row
from berth.core.simulation.planned_cluster import facts_of
from berth.core.simulation.simulator import Simulation, SimulationPlan, TimedFact
from berth.formats.clusters.cluster_text import read_cluster
from berth.formats.traces.reader import read_trace
from berth.schemas.envelope import encode
from berth.schemas.ledger import Settings
from berth.schemas.subjects import Subjects
from tests.support.traces import FILES, traces_folder


class _Case(NamedTuple):
    trace: str
    compress: float
    cluster: str
    target_s: float


_CASES: Final = (
    _Case("kalos", 8.0, "nodes=302,leaf=16", 5.0),
    _Case("kalos", 12.0, "nodes=302,leaf=16", 5.0),
    _Case("philly", 1.0, "nodes=64,leaf=16", 60.0),
)
_CELL: Final = "bench"
_CHIPS: Final = 8
"""Chips of one node in the limit program."""


def run() -> Report:
    """Measure; a missing trace is skipped with a message on stderr."""
    rows: list[Row] = []
    for case in _CASES:
        path = traces_folder() / FILES[case.trace]
        if not path.is_file():
            print(f"left out: no trace at {path}; the variable BERTH_TRACES names the folder", file=sys.stderr)
            continue
        rows += _measured(case)
    return Report(bench="simulate", machine=machine(), rows=rows)


def _measured(case: _Case) -> list[Row]:
    start_s = time.perf_counter()
    with gzip.open(traces_folder() / FILES[case.trace], "rt", encoding="utf-8") as file:
        workload = read_trace(file, compress=case.compress)
    read_s = time.perf_counter() - start_s
    cluster = read_cluster(case.cluster)
    facts = [
        TimedFact(0, subject, encode(message))
        for subject, message in facts_of(cluster, subjects=Subjects(_CELL), at_ms=0)
    ]
    start_s = time.perf_counter()
    Simulation(SimulationPlan(workload=workload, facts=facts, settings=Settings(skims_classes=True), cell=_CELL)).run()
    took_s = time.perf_counter() - start_s
    limit_s = first_fit_s(
        len(cluster.nodes), _CHIPS, sum(task.replicas for job in workload.jobs for task in job.request.tasks)
    )
    name = f"{case.trace} x{case.compress:g}, {len(workload.jobs)} jobs, {len(cluster.nodes)} nodes, skip"
    return [
        row(name, "read the trace", "s", [read_s]),
        row(name, "simulate", "s", [took_s], limits=[limit_s], target=case.target_s),
        row(
            name,
            "simulate",
            "jobs/s",
            [len(workload.jobs) / took_s],
            limits=[len(workload.jobs) / limit_s],
            better="more",
        ),
    ]
