"""``berth demo``: a whole cell on this machine, some fifty jobs, and where they went."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from berth.cli.cell import run
from berth.cli.explaining import Told, show, told_of
from berth.cli.fleet import DEMO_CLUSTER, EXAMPLES, Fleet
from berth.cli.nodes import NodeRow, rows_of, show_map
from berth.cli.output import FAILED, OK, CommandError, chip_ranges, emit, new_table, results, say, talk, tell
from berth.cli.story import Story, Tale
from berth.cli.submit import stamped
from berth.cli.up import Shards, asked_to_stop, ready_bus, unless, watched
from berth.core.state import State
from berth.formats.manifests import parse_jobs
from berth.runtime.clock import Clock, SystemClock
from berth.runtime.feeds import Feeds
from berth.runtime.port import Bus
from schemas.envelope import decode, encode
from schemas.intake import JobCancel
from schemas.simulation import SimCounts
from schemas.status import JobStatus
from schemas.subjects import StreamName

CELL: Final = "demo"
_LIMIT_S: Final = 120.0
_REST_S: Final = 0.5
_SECOND_MS: Final = 1000
_MUST: Final = frozenset({"cancel", "taken", "again"})
"""Steps of the scenario without which it is not over."""
_RANKS_SHOWN: Final = 4
_CANCELLED: Final = "night-batch"
_TAKEN: Final = "ring-4"
_AGAIN: Final = "ring-1"
_EXPLAINED: Final = "a2-2x8"


class Report(msgspec.Struct, frozen=True):
    """Result of ``berth demo --json``."""

    jobs: list[Tale]
    fullest: list[NodeRow]
    """The cluster when most chips were in use."""
    placed: Told | None
    waited: Told | None
    double_allocations: int
    overcommits: int
    took_s: float


class _Play:
    """The scenario: all jobs at once, then one cancelled, one with a name in use, one with a name that is free again."""

    def __init__(self, bus: Bus, clock: Clock) -> None:
        self.bus = bus
        self.story = Story()
        self.fullest: list[NodeRow] = []
        self.placed: Told | None = None
        self.waited: Told | None = None
        self.counts = SimCounts(nodes=0)
        self._clock = clock
        self._state = State()
        self._feeds = Feeds(bus, clock, self._state)
        self._most = -1
        self._to_do = set(_MUST)

    async def run(self, progress: "_Progress") -> None:
        """Play to the end.

        Raises:
            CommandError: The jobs do not end in time.
        """
        await self._feeds.start()
        self._state.changed.clear()
        self._state.moved.clear()
        try:
            async with asyncio.timeout(_LIMIT_S):
                await self._send("demo-jobs.yaml")
                while True:
                    self._feeds.arrived.clear()
                    self._learn()
                    progress.show(self.story)
                    await self._act()
                    if self.story.is_done and not self._to_do & _MUST:
                        break
                    await self._rest()
        except TimeoutError as error:
            open_ = [
                f"{tale.name} is {tale.fate}: {tale.reason}" for tale in self.story.tales.values() if not tale.is_done
            ]
            raise CommandError(f"not everything has ended after {_LIMIT_S:g} s", *open_) from error
        finally:
            await self._feeds.stop()
        self.counts = decode(await self.bus.request(self.bus.subjects.sim("counts"), b"", timeout_s=5.0), SimCounts)

    async def _rest(self) -> None:
        """Wait for something to come, but not for long."""
        try:
            async with asyncio.timeout(_REST_S):
                await self._feeds.arrived.wait()
        except TimeoutError:
            return

    def _learn(self) -> None:
        self._feeds.apply_facts()
        for _, folded in self._feeds.apply_records():
            self.story.take_record(folded)
            used = sum(pod.mask.bit_count() for key in self._state.fold.holdings for pod in self._state.owned(key))
            if used > self._most:
                self._most = used
                self.fullest = rows_of(self._state)
        self.story.take_facts(self._state)

    async def _act(self) -> None:
        """Do what it is time for."""
        fate_of = self.story.fate_of
        if self.waited is None and (waiting := self._waiting()):
            self.waited = await self._told(waiting, "waiting")
        if self.placed is None and fate_of(_EXPLAINED) == "running":
            self.placed = await self._told(_EXPLAINED, "running")
        if self._is_due("taken", fate_of(_TAKEN) in {"placed", "running"}):
            await self._send("demo-taken.yaml")
        if self._is_due("cancel", fate_of(_CANCELLED) in {"waiting", "placed", "running"}):
            wish = JobCancel("default", _CANCELLED, reason="the demo shows it", created_at_ms=self._clock.now_ms())
            await self.bus.publish(self.bus.subjects.intake_cancel("default", _CANCELLED), encode(wish))
        if self._is_due("again", fate_of(_AGAIN) == "succeeded"):
            await self._send("demo-again.yaml")

    def _is_due(self, step: str, due: bool) -> bool:  # noqa: FBT001  # a condition
        if not due or step not in self._to_do:
            return False
        self._to_do.discard(step)
        return True

    def _waiting(self) -> str:
        waiting = (
            tale.name for tale in self.story.tales.values() if tale.fate == "waiting" and tale.name != _CANCELLED
        )
        return next(waiting, "")

    async def _told(self, name: str, phase: str) -> Told | None:
        """Explanation of a job in a phase; None while its status does not say so yet."""
        stored = await self.bus.last(StreamName.STATUS, self.bus.subjects.status("default", name))
        status = decode(stored.data, JobStatus) if stored is not None else None
        return await told_of(self.bus, self._clock, status) if status is not None and status.phase == phase else None

    async def _send(self, file: str) -> None:
        now_ms = self._clock.now_ms()
        for job in parse_jobs((EXAMPLES / file).read_text("utf-8")):
            request = stamped(job, now_ms=now_ms)
            self.story.sent(request, at_ms=now_ms)
            await self.bus.publish(self.bus.subjects.intake_request(request.namespace, request.name), encode(request))


class _Progress:
    """Progress: bars on a terminal, lines elsewhere."""

    def __init__(self, bars: Progress | None) -> None:
        self._bars = bars
        self._tasks = {name: bars.add_task(name, total=None, news="") for name in ("decided", "ended")} if bars else {}

    def show(self, story: Story) -> None:
        """Show where the story is."""
        news, story.news = story.news, []
        if self._bars is None:
            for line in news:
                say(line)
            return
        tales = story.tales.values()
        done = {
            "decided": sum(bool(tale.ranks) or tale.is_done for tale in tales),
            "ended": sum(tale.is_done for tale in tales),
        }
        for name, task in self._tasks.items():
            self._bars.update(task, completed=done[name], total=len(tales))
        for line in news[-1:]:
            self._bars.update(self._tasks["decided"], news=escape(line[:70]))


@contextmanager
def _progress() -> Iterator[_Progress]:
    console = talk()
    if not console.is_terminal:
        yield _Progress(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} jobs"))
    with Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[news]}"), console=console) as bars:
        yield _Progress(bars)


def demo(*, shards: Shards = 2, json: Annotated[bool, Parameter(negative=())] = False) -> int:
    """Start a cell with a simulated cluster, run some fifty jobs on it, show where they went, stop everything.

    Nothing is left behind. What happens does not depend on chance.

    Args:
        shards: Number of scorers; 0 lets the dispatcher score in its own process.
        json: Print JSON instead of text.
    """

    async def work() -> int:
        clock = SystemClock()
        began_s = clock.monotonic_s()
        plays: list[_Play] = []
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-demo-")))
            fleet = Fleet(root, topology=DEMO_CLUSTER, shards=shards, cell=CELL, say=say, is_alone=True)
            async with asked_to_stop() as stop, watched(fleet):
                say(f"starting NATS, a simulated cluster, {shards} scorers, dispatcher and binder")

                async def play() -> None:
                    bus = await ready_bus(fleet)
                    async with bus:
                        plays.append(_Play(bus, clock))
                        say(f"ready after {clock.monotonic_s() - began_s:.1f} s; sending jobs")
                        with _progress() as progress:
                            await plays[0].run(progress)

                if not await unless(stop, play):
                    raise CommandError("stopped before the end")
        report = _report(plays[0], clock.monotonic_s() - began_s)
        if json:
            emit(report)
        else:
            _show(report)
        return OK if _is_well(report) else FAILED

    return run(work)


def _report(play: _Play, took_s: float) -> Report:
    return Report(
        jobs=list(play.story.tales.values()),
        fullest=play.fullest,
        placed=play.placed,
        waited=play.waited,
        double_allocations=play.counts.double_allocations,
        overcommits=play.counts.overcommits,
        took_s=round(took_s, 1),
    )


def _is_well(report: Report) -> bool:
    return all(tale.is_well for tale in report.jobs) and not report.double_allocations and not report.overcommits


def _show(report: Report) -> None:
    table = new_table("JOB", "PODS x CHIPS", "FATE", "WAITED", "WHERE (CHIPS), OR WHY NOT")
    for tale in report.jobs:
        waited = f"{(tale.placed_ms - tale.sent_ms) / _SECOND_MS:.1f} s" if tale.placed_ms else ""
        where = ", ".join(f"{rank.node}({chip_ranges(rank.chips)})" for rank in tale.ranks[:_RANKS_SHOWN])
        where += f" and {len(tale.ranks) - _RANKS_SHOWN} more pods" if len(tale.ranks) > _RANKS_SHOWN else ""
        table.add_row(escape(tale.name), tale.asks, tale.fate, waited, escape(where or tale.reason))
    console = results()
    console.print(table)
    console.print("\n[bold]The cluster when most chips were in use[/]")
    show_map(report.fullest)
    for told in (report.placed, report.waited):
        if told is not None:
            console.print("\n[bold]Why[/]", end=" ")
            show(told)
    ran = sum(tale.fate == "succeeded" for tale in report.jobs)
    queued = sum(bool(tale.waited_for) and bool(tale.ranks) for tale in report.jobs)
    away = sum(tale.fate in {"turned away", "too large"} for tale in report.jobs)
    tell("")
    tell(
        f"{len(report.jobs)} jobs in {report.took_s:g} s: {ran} have run, {queued} of them had to wait; {away} were"
        f" refused with a reason, {sum(tale.fate == 'cancelled' for tale in report.jobs)} cancelled."
    )
    tell(f"Chips given twice: {report.double_allocations}. Nodes overcommitted: {report.overcommits}.")
