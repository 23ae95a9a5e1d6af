"""Sweeps: a trace simulated with failures of several seeds under several settings, a row of means for each.

A job more or less that a failure meets changes what follows, so that two runs with the same failures differ by chance
as well. The ranges over the seeds show how much.
"""

import sys
import time
from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

import msgspec
from matplotlib.figure import Figure

from bench.results.studies import FOLDER, MEASURED_RATE, SEVERAL_RATE
from berth.cli.simulation.drawing import WIDTH_IN, rendered, styled
from berth.cli.simulation.pictures import write_file
from berth.cli.simulation.simulate import Setup, Wanted, prepare, simulated
from berth.core.simulation.fault_plan import Strategy
from berth.core.simulation.statistics import FaultFigures, Statistics
from berth.schemas.workload import PlannedJob
from tests.support.traces import FILES, traces_folder

SEEDS: Final = (1, 2, 3, 4, 5)
_HOLD_4H: Final = "hold_places_ms=14400000"
_CHIPS: Final = 8
"""Chips of a node."""
_SCOPES: Final = ("pod", "superpod", "job")
_POINT: Final = "#0072b2"


class _Row(NamedTuple):
    """A setting.

    Attributes:
        words: The setting in words.
        recovery: What leaves first.
        faults: Costs beside the rate and the seed.
        set: Settings of decisions.
        reserve: Nodes of a SuperPoD in reserve.
    """

    words: str
    recovery: Strategy
    faults: str = ""
    set: tuple[str, ...] = ()
    reserve: int | None = None


class Sweep(NamedTuple):
    """Tables with the same rows.

    Attributes:
        name: Name of its pictures.
        heading: Its heading in the document.
        about: What is compared, as lines of Markdown.
        cluster: The cluster in words.
        loads: A table each: divisor of the arrivals, and rate of failures.
        rows: The rows.
        block_nodes: Nodes of a logical SuperPoD of jobs with a multiple of so many pods; 0: without SuperPoDs.
    """

    name: str
    heading: str
    about: list[str]
    cluster: str
    loads: list[tuple[int, str]]
    rows: list[_Row]
    block_nodes: int = 0


def sweeps() -> list[Sweep]:
    """All sweeps, in the order of the document."""
    rejoin, replica = ",rejoin=1m", ",rejoin=1m,replica=on"
    strategies = [
        _Row("whole job restarts", "job"),
        _Row("whole job restarts, places held for 4 h", "job", set=(_HOLD_4H,)),
        _Row("pods first", "pods"),
        _Row("pods first, places held for 4 h", "pods", set=(_HOLD_4H,)),
        _Row("pods only", "pods-only"),
        _Row("pods first, places held for 4 h, rejoin 1 min", "pods", rejoin, (_HOLD_4H,)),
        _Row("pods only, rejoin 1 min", "pods-only", rejoin),
        _Row("pods only, rejoin 1 min, replica", "pods-only", replica),
    ]
    reserves = [_Row(f"{count} nodes in reserve", "pods", rejoin, reserve=count) for count in (0, 2, 4, 8)]
    return [
        Sweep(
            "kalos-strategies",
            "Kalos with failures: healthy pods stay, or the whole job restarts",
            [
                "- `whole job restarts` is `--recovery job`: the job leaves once its faulty pods have other places, or after"
                " 60 s. `pods first` is `pods`: if a new pod finds no place within 12 s, the whole job restarts. `pods only`"
                " never does that.",
                "- `places held`: the setting `hold_places_ms`, 60 s where nothing is said. A repair takes 4 h.",
                "- `rejoin 1 min` says that training goes on 1 min after the last new pod started if some pods stayed,"
                " instead of 5 min, and `replica` that the work since the last checkpoint is not lost then. Both depend on"
                " the training framework. They are assumptions, not measurements.",
                "- Without these assumptions the strategies differ by little more than chance: most of what is lost is work"
                " since the last checkpoint, and a place is often free at once. One thing costs more: a large job that gives"
                " up its places because a new pod finds none, and then waits until as many are free again. That is the"
                " lowest point of the rows whose places are held for 60 s. It is avoided where places are held as long as a"
                " repair takes, or where healthy pods never leave.",
                "- What counts most is the replica, which only a job can have whose healthy pods stay.",
                "- The rows of pods delete far fewer pods.",
            ],
            "nodes=302,leaf=16",
            [(8, MEASURED_RATE), (8, SEVERAL_RATE), (12, SEVERAL_RATE)],
            strategies,
        ),
        Sweep(
            "kalos-reserve",
            "Kalos with failures, in SuperPoDs of 48 nodes: nodes in reserve",
            [
                "- Jobs of a multiple of 8 pods are in logical SuperPoDs of 8 nodes, all others with chips in one. Jobs"
                " of more than 48 pods that are no multiple of 8 are rejected.",
                "- `--recovery pods`, rejoin 1 min: a pod that finds no place in its SuperPoD within 6 s takes the pods of"
                " its logical SuperPoD along, and after 12 s all.",
                "- With nodes in reserve a new pod finds a place beside the others more often, so that fewer logical"
                " SuperPoDs move, and fewer pods leave. In return jobs span more SuperPoDs. The ETTR differs by no more than"
                " it does from seed to seed.",
            ],
            "nodes=302,superpod=48,product=superpod850x8",
            [(8, SEVERAL_RATE), (12, SEVERAL_RATE)],
            reserves,
            block_nodes=8,
        ),
    ]


def part_of(sweep: Sweep) -> str:
    """Run a sweep and draw it; returns its part of the document."""
    start_s = time.perf_counter()
    lines = [f"## {sweep.heading}", ""]
    lines += [
        f"- trace: {FILES['kalos'].rpartition('/')[2]}; cluster: {sweep.cluster}",
        f"- failures: seeds {SEEDS[0]} to {SEEDS[-1]}, repair 4 h; costs: checkpoint 1 h, grace 30 s, recreate 10 s, restart"
        " 5 min, rejoin 5 min where nothing else is said",
        *sweep.about,
        "",
        "Means over the seeds, and from the smallest to the largest in brackets.",
        "",
    ]
    found = {load: [_runs(sweep, row, *load) for row in sweep.rows] for load in sweep.loads}
    for load, runs in found.items():
        lines += [*_table(_title(*load), sweep, runs), ""]
    name = f"{sweep.name}-ettr.png"
    write_file(FOLDER / name, _picture(sweep, list(found.items())))
    lines += [f"![Effective training time ratio, a point for each seed: {sweep.heading}]({name})\n"]
    print(f"{sweep.name}: {time.perf_counter() - start_s:.0f} s", file=sys.stderr)
    return "\n".join(lines)


def _title(compress: int, rate: str) -> str:
    return f"arrivals {compress} times as dense, mtbf={rate}"


def _runs(sweep: Sweep, row: _Row, compress: int, rate: str) -> list[Statistics]:
    found = []
    for seed in SEEDS:
        wanted = Wanted(
            compress=compress,
            faults=f"mtbf={rate},seed={seed}{row.faults}",
            recovery=(row.recovery,),
            set=row.set,
            reserve_nodes=() if row.reserve is None else (row.reserve,),
            affinity="none" if sweep.block_nodes else "all",
        )
        setup = prepare(traces_folder() / FILES["kalos"], sweep.cluster, wanted)
        found += simulated(_in_blocks(setup, sweep.block_nodes), wanted)[0].figures
    return found


def _in_blocks(setup: Setup, nodes: int) -> Setup:
    """The same with jobs in logical SuperPoDs."""
    if not nodes:
        return setup

    def changed(job: PlannedJob) -> PlannedJob:
        request = job.request
        if sum(task.replicas for task in request.tasks) % nodes:
            return job
        annotations = {**request.annotations, "sp-block": str(nodes * _CHIPS)}
        return msgspec.structs.replace(job, request=msgspec.structs.replace(request, annotations=annotations))

    workload = msgspec.structs.replace(setup.workload, jobs=[changed(job) for job in setup.workload.jobs])
    return msgspec.structs.replace(setup, workload=workload)


def _table(title: str, sweep: Sweep, runs: Sequence[Sequence[Statistics]]) -> list[str]:
    heads = ["ETTR, %", "lost, chip h", "of it stopped", "failure to training, mean s", "pods deleted", "wait, mean s"]
    if sweep.block_nodes:
        heads += ["restarted: pod", "logical SuperPoD", "job", "span over the smallest possible"]
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---|" + "---:|" * len(heads)]
    for row, found in zip(sweep.rows, runs, strict=True):
        lines.append(f"| {row.words} | " + " | ".join(_cells(found, in_blocks=bool(sweep.block_nodes))) + " |")
    return lines


def _cells(found: Sequence[Statistics], *, in_blocks: bool) -> list[str]:
    faults = [_faults(one) for one in found]
    cells = [
        _with_range([_percent(one) for one in faults], "{:.1f}"),
        f"{fmean(one.redone_chip_h + one.stopped_chip_h for one in faults):,.0f}",
        f"{fmean(one.stopped_chip_h for one in faults):,.0f}",
        _with_range([one.restart.mean_ms / 1000 for one in faults], "{:,.0f}"),
        f"{fmean(one.pods for one in faults):,.0f}",
        f"{fmean(one.wait.mean_ms for one in found) / 1000:,.0f}",
    ]
    if in_blocks:
        cells += [f"{fmean(one.by_scope.get(scope, 0) for one in faults):.1f}" for scope in _SCOPES]
        cells.append(f"{fmean(one.superpod_span.ratio_mean for one in found):.2f}")
    return cells


def _with_range(values: Sequence[float], form: str) -> str:
    least, most = form.format(min(values)), form.format(max(values))
    return f"{form.format(fmean(values))} ({least} to {most})"


def _faults(one: Statistics) -> FaultFigures:
    """What failures cost; every run has some.

    Raises:
        ValueError: It has none.
    """
    if one.faults is None:
        raise ValueError(f"{one.title}: expected a run with failures")
    return one.faults


def _percent(one: FaultFigures) -> float:
    return 100 * (one.ettr or 0.0)


def _picture(sweep: Sweep, found: Sequence[tuple[tuple[int, str], Sequence[Sequence[Statistics]]]]) -> bytes:
    """Effective training time ratios, a point for each run and a line for the mean."""
    with styled():
        figure = Figure(figsize=(WIDTH_IN, 0.6 + 0.32 * len(sweep.rows) + 0.6), layout="constrained")
        panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for (load, runs), axes in zip(found, panels, strict=True):
            for place, run in enumerate(runs):
                shares = [_percent(_faults(one)) for one in run]
                axes.plot(shares, [place] * len(shares), "o", color=_POINT, alpha=0.5, markersize=5)
                axes.plot([fmean(shares)], [place], "|", color="#000000", markersize=14)
            axes.set_title(f"x{load[0]}, mtbf={load[1]}", fontsize="small")
            axes.set_xlabel("ETTR, %")
        panels[0].set_yticks(range(len(sweep.rows)), [row.words for row in sweep.rows])
        panels[0].invert_yaxis()
        return rendered(figure, "png")
