"""``berth demo``: a complete cell on this machine, some fifty jobs, and their placements."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from cyclopts import Parameter

from berth.cli.cell import run
from berth.cli.cluster.node_map import show_map
from berth.cli.cluster.node_rows import NodeRow
from berth.cli.jobs.explain_text import ExplainResult, show
from berth.cli.output import (
    FAILED,
    OK,
    emit,
    print_progress,
    print_result,
    print_table,
    progress_console,
)
from berth.cli.recordings.record import may_write, write_recording
from berth.cli.tables import Span, Table
from berth.core.text import pluralize, ranges
from berth.formats.shown import shown
from berth.lab.cells.fleet import DEMO_CLUSTER, Fleet, read_topology, services_words, shards_of
from berth.lab.cells.kube_fleet import KubeFleet
from berth.lab.commands.kube_stage import KubeStage
from berth.lab.commands.scenario import Play
from berth.lab.commands.stage import CellStage, Sight
from berth.lab.commands.story import Story, Tale
from berth.lab.commands.up import Shards, asked_to_stop, ready_bus, unless, watched
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock, SystemClock

if TYPE_CHECKING:
    from rich.progress import Progress

CELL: Final = "demo"
_SECOND_MS: Final = 1000
_RANKS_SHOWN: Final = 4


class Report(msgspec.Struct, frozen=True):
    """Result of ``berth demo --json``."""

    jobs: list[Tale]
    fullest: list[NodeRow]
    """The cluster when most chips were in use."""
    placed: ExplainResult | None
    waited: ExplainResult | None
    double_allocations: int
    overcommits: int
    took_s: float
    swapped: int = 0
    """Pods that got the chips of another."""
    admission_errors: int = 0
    """Pods without chips in an annotation when their node admitted them."""
    kubernetes: Sight | None = None
    """State of the Kubernetes cluster at the end."""


class _Progress:
    """Progress: bars on a terminal, lines elsewhere."""

    def __init__(self, bars: "Progress | None") -> None:
        self._bars = bars
        self._tasks = {name: bars.add_task(name, total=None, news="") for name in ("decided", "ended")} if bars else {}

    def show(self, story: Story) -> None:
        """Show the progress."""
        news, story.news = story.news, []
        if self._bars is None:
            for line in news:
                print_progress(line)
            return
        tales = story.tales
        done = {
            "decided": sum(bool(tale.ranks) or tale.is_done for tale in tales),
            "ended": sum(tale.is_done for tale in tales),
        }
        for name, task in self._tasks.items():
            self._bars.update(task, completed=done[name], total=len(tales))
        for line in news[-1:]:
            self._bars.update(self._tasks["decided"], news=shown(line[:70]))


@contextmanager
def _progress() -> Iterator[_Progress]:
    console = progress_console()
    if not console.file.isatty():
        yield _Progress(None)
        return
    from rich.progress import (  # noqa: PLC0415  # not needed elsewhere
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} jobs"))
    with Progress(
        *columns, TimeElapsedColumn(), TextColumn("{task.fields[news]}", markup=False), console=console
    ) as bars:
        yield _Progress(bars)


def demo(
    *,
    kubernetes: Annotated[bool, Parameter(negative=())] = False,
    one: Annotated[bool, Parameter(negative=())] = False,
    shards: Shards | None = None,
    record: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Start a cell with a simulated cluster, run some fifty jobs on it, show their placements, and stop everything.

    Only the recording remains, if one is requested. Processes run concurrently: two runs may order jobs otherwise and
    place them on other nodes. The decisions of one run follow from its recording.

    Args:
        kubernetes: Use a temporary Kubernetes API server and all services; only the nodes are simulated.
        one: Run all services in one process.
        shards: Number of scorers; with 0 the dispatcher scores in its own process. Default: 2, with --one 0.
        record: File to which the history of the cell is written, for: berth log, replay, explain, what-if.
        json: Print JSON instead of text.
    """

    async def work() -> int:
        clock = SystemClock()
        began_s = clock.monotonic_s()
        if record is not None:
            may_write(record)
        scorers = shards_of(shards, is_one=one)
        plays: list[Play] = []
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-demo-")))
            fleet = _fleet(root, shards=scorers, kubernetes=kubernetes)
            async with asked_to_stop() as stop, watched(fleet):

                async def play() -> None:
                    async with await ready_bus(fleet) as bus, _staged(fleet, bus, clock) as staged:
                        plays.append(staged)
                        print_progress(f"ready after {clock.monotonic_s() - began_s:.1f} s; sending jobs")
                        with _progress() as progress:
                            await staged.run(progress.show)
                        await staged.count()
                        if record is not None:
                            recorded = await write_recording(bus, record)
                            print_progress(f"{record}: {recorded.end.facts} facts and {recorded.end.records} records")

                if not await unless(stop, play):
                    raise stop.early()
        report = _report(plays[0], clock.monotonic_s() - began_s)
        if json:
            emit(report)
        else:
            _show(report)
        return OK if _is_well(report) else FAILED

    return run(work)


def _fleet(root: Path, *, shards: int | None, kubernetes: bool) -> Fleet:
    nodes = pluralize(read_topology(DEMO_CLUSTER), "simulated node")
    words = services_words(shards)
    if kubernetes:
        fleet = KubeFleet(root, topology=DEMO_CLUSTER, shards=shards, cell=CELL, print_progress=print_progress)
        print_progress(f"starting a Kubernetes API server, NATS, {nodes}, inventory, health, summary, {words}")
        return fleet
    print_progress(f"starting NATS, {nodes}, {words}")
    return Fleet(
        root,
        topology=DEMO_CLUSTER,
        shards=shards,
        cell=CELL,
        print_progress=print_progress,
        is_alone=True,
    )


@asynccontextmanager
async def _staged(fleet: Fleet, bus: Bus, clock: Clock) -> AsyncIterator[Play]:
    """The scenario for the kind of the fleet."""
    story = Story()
    if not isinstance(fleet, KubeFleet):
        yield Play(bus, clock, CellStage(bus, clock, story), story)
        return
    async with await fleet.connect() as api, asyncio.TaskGroup() as group:
        stage = KubeStage(api, clock, story)
        await stage.open()
        watching = group.create_task(stage.watch(), name="watch PodGroups")
        try:
            yield Play(bus, clock, stage, story)
        finally:
            watching.cancel()


def _report(play: Play, took_s: float) -> Report:
    return Report(
        jobs=play.story.tales,
        fullest=play.fullest,
        placed=play.placed,
        waited=play.waited,
        double_allocations=play.counts.double_allocations,
        overcommits=play.counts.overcommits,
        took_s=round(took_s, 1),
        swapped=play.counts.swapped,
        admission_errors=play.counts.admission_errors,
        kubernetes=play.sight,
    )


def _is_well(report: Report) -> bool:
    faults = report.double_allocations + report.overcommits + report.swapped + report.admission_errors
    return all(tale.is_well for tale in report.jobs) and not faults


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _show(report: Report) -> None:
    table = Table("JOB", "PODS x CHIPS", "FATE", "WAITED", "WHERE (CHIPS), OR WHY NOT")
    for tale in report.jobs:
        waited = f"{(tale.placed_ms - tale.sent_ms) / _SECOND_MS:.1f} s" if tale.placed_ms else ""
        where = ", ".join(f"{rank.node}({ranges(rank.chips)})" for rank in tale.ranks[:_RANKS_SHOWN])
        where += f" and {len(tale.ranks) - _RANKS_SHOWN} more pods" if len(tale.ranks) > _RANKS_SHOWN else ""
        table.add_row(tale.name, tale.asks, tale.fate, waited, where or tale.reason)
    print_table(table)
    print_result("")
    print_result(Span("The cluster when most chips were in use", "bold"))
    show_map(report.fullest, SystemClock().now_ms())
    for result in (report.placed, report.waited):
        if result is not None:
            print_result("")
            print_result(Span("Why", "bold"))
            show(result)
    ran = sum(tale.fate == "succeeded" for tale in report.jobs)
    queued = sum(tale.fate == "succeeded" and bool(tale.waited_for) for tale in report.jobs)
    rejected = sum(tale.fate in {"rejected", "too large"} for tale in report.jobs)
    cancelled = sum(tale.fate == "cancelled" for tale in report.jobs)
    print_result("")
    print_result(
        f"{pluralize(len(report.jobs), 'job')}: {ran:,} {'has' if ran == 1 else 'have'} run, {queued:,} of them had to wait;"
        f" {rejected:,} {_were(rejected)} refused with a reason, {cancelled:,} {_were(cancelled)} cancelled."
    )
    print_result(f"It took {report.took_s:g} s to start the cell, run the jobs, and stop the cell.")
    print_result(f"Chips given twice: {report.double_allocations}. Nodes overcommitted: {report.overcommits}.")
    sight = report.kubernetes
    if sight is None:
        return
    phases = ", ".join(f"{count:,} {phase}" for phase, count in sight.podgroups.items()) or "none"
    print_result(
        f"Pods with the chips of another: {report.swapped}. Pods whose node knew no chips: {report.admission_errors}."
    )
    print_result(
        f"Kubernetes {sight.version}: {pluralize(sight.pods_bound, 'pod')} bound, {sight.pods_waiting:,} not;"
        f" {'1 job summary' if sight.summaries == 1 else f'{sight.summaries:,} job summaries'}; PodGroups: {phases}."
    )
