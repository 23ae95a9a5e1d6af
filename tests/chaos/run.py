"""One run: rounds of faults over a cell under load, each healed and recovered from, and a judgement at the end."""

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from berth.runtime.clock import SystemClock
from berth.runtime.errors import ShellError, TransientError
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import StreamName
from tests.chaos.cell import ChaosCell
from tests.chaos.checker import Verdict, check
from tests.chaos.evidence import Observer
from tests.chaos.fault import Setup
from tests.chaos.schedule import LONG, Length, Plan, Strike
from tests.chaos.users import STAYS_S, Users, short
from tests.support.waiting import pause, until, until_true
from tests.support.watch import at_rest, verify

_RECOVERS_S = 60.0
_SETTLES_S = 60.0
_CALM_S = 1.0
_ENDED = frozenset({"finished", "failed", "cancelled", "refused"})


class ChaosError(Exception):
    """A run that failed, with all that is known of why."""


@dataclass(frozen=True)
class Options:
    """What a run is made of.

    Attributes:
        seconds: Rounds begin for so long ...
        rounds_min: ... and until there were so many.
        faults: Kinds of faults; none for all that suit the cell.
        pace_s: Mean pause of a user between two requests.
    """

    setup: Setup
    seed: int
    seconds: float
    rounds_min: int = 1
    faults: tuple[str, ...] = ()
    length: Length = LONG
    pace_s: float = 1.0


@dataclass(frozen=True)
class Recovery:
    """How long a cell took after all faults of a round were healed.

    Attributes:
        kinds: Of the faults.
        next_s: Until anything was placed.
        probe_s: Until a job was placed that was submitted after that.
    """

    kinds: tuple[str, ...]
    next_s: float
    probe_s: float


@dataclass
class Figures:
    """What a run did and found.

    Attributes:
        injected: Faults by kind.
        overlaps: Pairs of faults that were there at the same time.
        restarts: Components that ended by themselves and were started again.
        operations: Of users, by action and outcome.
        records: Messages in the ledger.
        looks: Looks at the cluster that were answered.
    """

    options: Options
    injected: Counter[str] = field(default_factory=Counter)
    overlaps: int = 0
    rounds: int = 0
    recoveries: list[Recovery] = field(default_factory=list)
    restarts: Counter[str] = field(default_factory=Counter)
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    pieces: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    records: int = 0
    looks: int = 0
    took_s: float = 0.0


async def run(options: Options, folder: Path, say: Callable[[str], None]) -> Figures:
    """Let a cell live through a run.

    Raises:
        ChaosError: It does not recover, does not settle, breaks a rule, raises, or nothing was tried.
    """
    figures = Figures(options)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    plan = Plan(options.seed, options.setup, options.faults, options.length)
    try:
        async with (
            ChaosCell(options.setup, folder, options.seed) as cell,
            Users(cell, options.seed, clock, pace_s=options.pace_s) as users,
        ):
            say(f"the cell stands after {clock.monotonic_s() - began_s:.1f} s")
            observer = Observer(cell)
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(users.run(), name="users")
                group.create_task(observer.run(), name="observer")
                end_s = clock.monotonic_s() + options.seconds
                while clock.monotonic_s() < end_s or figures.rounds < options.rounds_min:
                    await _round(cell, users, plan.next_round(), figures, say)
                users.stop()
                await asking  # what they still ask for has to be accounted for, too
                await _settle(cell, users, observer)
                observer.stop()
            await _judge(cell, users, observer, figures)
    except (AssertionError, TimeoutError, ShellError, ExceptionGroup) as error:
        raise ChaosError(_flat(error)) from error
    except Exception as error:
        raise ChaosError("".join(traceback.format_exception(error))) from error
    figures.took_s = clock.monotonic_s() - began_s
    see_it_tried(figures)
    return figures


def _flat(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(_flat(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


async def _round(
    cell: ChaosCell, users: Users, strikes: list[Strike], figures: Figures, say: Callable[[str], None]
) -> None:
    """Faults with overlapping times, all healed; then a job must be placed."""
    figures.rounds += 1
    words = [f"{s.fault.kind} ({', '.join(s.fault.victims[:2])}) {s.at_s:.1f}-{s.until_s:.1f}" for s in strikes]
    say(f"round {figures.rounds}: {'; '.join(words)}")
    async with asyncio.TaskGroup() as group:
        for strike in strikes:
            group.create_task(_strike(cell, strike, figures), name=strike.fault.kind)
    figures.overlaps += sum(
        1 for n, one in enumerate(strikes) for other in strikes[n + 1 :] if other.at_s < one.until_s
    )
    cell.check()
    kinds = tuple(sorted({strike.fault.kind for strike in strikes}))
    recovery = await _recover(cell, users, f"probe-{figures.rounds:04d}", kinds)
    figures.recoveries.append(recovery)
    say(f"  healed; next placement after {recovery.next_s:.2f} s, of a new job after {recovery.probe_s:.2f} s")


async def _strike(cell: ChaosCell, strike: Strike, figures: Figures) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await pause(strike.at_s)
    await strike.fault.inject(cell)
    figures.injected[strike.fault.kind] += 1
    await pause(max(0.0, strike.until_s - (loop.time() - began_s)))
    await strike.fault.heal(cell)


async def _recover(cell: ChaosCell, users: Users, name: str, kinds: tuple[str, ...]) -> Recovery:
    """How long it takes until the cell places jobs again.

    Raises:
        AssertionError: It does not; shows the logs.
    """
    loop, watch = asyncio.get_running_loop(), cell.watch
    before, healed_s = len(watch.history), loop.time()
    found: list[float] = []

    async def first() -> None:
        await until(lambda: len(watch.history) > before, deadline_s=_RECOVERS_S, what=f"a placement after {kinds}")
        found.append(loop.time() - healed_s)

    def placed() -> bool:
        cell.check()
        return any(short(holding.name) == name for holding in watch.history[before:])

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(first(), name="first")
            await users.probe(name)
            await until(placed, deadline_s=_RECOVERS_S, what=f"{name} is placed after {kinds}")
            probe_s = loop.time() - healed_s
    except* (AssertionError, TimeoutError) as error:
        raise AssertionError(f"{_flat(error)}{cell.logs()}") from error
    return Recovery(kinds, found[0], probe_s)


async def _settle(cell: ChaosCell, users: Users, observer: Observer) -> None:
    """Wait until every job is accounted for, as far as it will be; what is not is for the checker to say.

    Raises:
        AssertionError: Programs are not told what the ledger says; shows the logs.
    """
    wanted, watch = users.wanted, cell.watch
    before = (-1, -1)

    async def is_settled() -> bool:
        """Whether all is accounted for, twice: a job that waits gets the chips of one that has just ended."""
        nonlocal before
        cell.check()
        try:
            ends = await observer.ends()
        except TransientError:
            return False
        live = {name for name, end in ends.items() if end.fate not in _ENDED}
        stays = {name for name in live if ends[name].fate == "placed" and wanted[name].run_ms >= STAYS_S * 1000}
        given = {one.job for one in users.history.operations if (one.action, one.outcome) == ("submit", "ok")}
        asked = {one.job for one in users.history.operations if one.action == "cancel" and one.outcome != "failed"}
        now, last = (len(watch.facts), len(watch.records)), before
        before = now
        if now != last:
            await pause(_CALM_S)
        deleted = asked if cell.api is not None else frozenset[str]()
        return now == last and live == stays and given - deleted <= ends.keys()

    try:
        await until_true(is_settled, deadline_s=_SETTLES_S, what="every job is accounted for")
    except AssertionError:
        cell.check()
    try:
        await until_true(observer.is_told, deadline_s=_SETTLES_S, what="events and gateway say what the ledger says")
    except AssertionError as error:
        raise AssertionError(f"{error}; last seen: {observer.untold}{cell.logs()}") from error


async def _judge(cell: ChaosCell, users: Users, observer: Observer, figures: Figures) -> None:
    """Compare all that was told with all that was done.

    Raises:
        AssertionError: The streams contradict one another, or a service does not end well.
    """
    figures.verdict = check(users.history.operations, await observer.evidence())
    for name in reversed(cell.setup.services):
        component = cell.service(name)
        component.is_down = True
        await component.service.stop()
    await at_rest(cell.watch)
    if not figures.verdict.violations:
        # Those that are stored must have their verdicts, whoever wrote them; those of users must be there as well.
        await verify(cell.watch, sorted({**await _stored(cell), **users.acknowledged()}.items()))
    for one in users.history.operations:
        figures.operations[one.action, one.outcome] += 1
    figures.restarts = cell.ended
    figures.records = len(cell.watch.records)
    figures.looks = observer.asked
    for proxy in cell.proxies.values():
        counts = proxy.counts
        figures.pieces.update(
            passed=counts.pieces, delayed=counts.delayed, lost=counts.lost, connections_cut=counts.cut
        )


async def _stored(cell: ChaosCell) -> dict[int, JobRequest | JobCancel | None]:
    """All requests that are stored, by sequence."""
    found: dict[int, JobRequest | JobCancel | None] = {}
    for one in await cell.bus.read(StreamName.INTAKE):
        envelope = open_envelope(one.data)
        is_request = envelope.kind == JobRequest.KIND
        found[one.sequence] = body_of(envelope, JobRequest) if is_request else body_of(envelope, JobCancel)
    return found


def see_it_tried(figures: Figures) -> None:
    """A run that tried nothing shows nothing.

    Raises:
        ChaosError: It is one.
    """
    verdict = figures.verdict
    if not figures.injected:
        raise ChaosError("no fault was injected")
    if not verdict.acknowledged:
        raise ChaosError("no submit was acknowledged")
    if figures.options.setup.world == "bus" and not verdict.sequences:
        raise ChaosError("no sequence of a request was told")
    if not verdict.placings or not figures.looks:
        raise ChaosError("nothing was placed, or nobody looked")
    if not verdict.events:
        raise ChaosError("no event was stored")
    if figures.options.setup.world == "kube" and not verdict.pods:
        raise ChaosError("no live pod was seen")


def seeds(seed: int, count: int) -> list[int]:
    """Seeds of several runs that follow from one."""
    random = Random(seed)  # noqa: S311  # the same runs every time
    return [seed, *(random.randrange(1_000_000) for _ in range(count - 1))]
