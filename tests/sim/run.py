"""One seed, lived through from the first event to the verdict."""

import asyncio
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from berth.core.explain.job_status import status_of
from tests.sim.errors import Failure, SimulationError, kind_of
from tests.sim.heavy import heavy_gangs
from tests.sim.log import told
from tests.sim.loop import SimLoop
from tests.sim.steady import Steady
from tests.sim.story import HORIZON_S, Story, draw
from tests.sim.verdict import is_led, scored, see_rest, unrest
from tests.sim.world import World

QUIET_S: Final = 16.0
"""A cell is at rest when nothing new was decided for so long, and nothing is to be done.

A write whose answer was lost is given up after 10 s, and what waits behind it is written after a pause.
"""
REST_MAX_S: Final = 700.0
"""Jobs whose pods cannot be bound fail only after attempts in as many minutes as ``attempts_max`` says."""
CALLBACKS_MAX: Final = 3_000_000
STEPS_MIN: Final = 1_000
"""Fewer steps of a whole seed are an error of its story."""
_CALLS_TOLD: Final = 8
_CHARACTERS_TOLD: Final = 2_000
FATAL_LINES: Final = frozenset({"decision failed, gang set aside", "unexpected error"})


class Lived(msgspec.Struct):
    """How a seed went.

    Attributes:
        seed: The seed.
        events: How many of its events were there.
        of_events: How many it has.
        failure: Kind and details of what is wrong; empty if nothing is.
        trace: Hash of all steps.
    """

    seed: int
    events: list[int]
    of_events: int
    kind: str = ""
    details: str = ""
    trace: str = ""
    steps: int = 0
    callbacks: int = 0
    virtual_s: float = 0.0
    count: dict[str, int] = {}
    """Figures by name: events, kills, checks, fault points, refusal codes, ends of processes."""
    story: list[str] = []


def live(
    seed: int,
    kept: Sequence[int] | None = None,
    *,
    is_told: bool = False,
    change: Callable[[Story], Story] | None = None,
    on_end: Callable[[World], object] | None = None,
) -> Lived:
    """Live through a seed, or through some of its events.

    Args:
        seed: The seed.
        kept: Numbers of events; None for all.
        is_told: Whether to tell what happened.
        change: Makes another story of the one of the seed.
        on_end: Is given the world when all went well.
    """
    loop = SimLoop(seed, callbacks_max=CALLBACKS_MAX)
    try:
        whole = draw(seed)
        if change is not None:
            whole = change(whole)
        numbers = list(range(len(whole.events))) if kept is None else list(kept)
        world = World(loop, seed, whole.only(numbers))
    except Exception as error:  # noqa: BLE001  # whatever it is, the other seeds go on
        loop.close()
        return Lived(seed, list(kept or ()), 0, *_raised(error))
    lived = Lived(seed, numbers, len(whole.events))
    try:
        with warnings.catch_warnings(), heavy_gangs(loop, world.story.settings.shape_s):
            # What a dead process was about to start never runs.
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            loop.run_until_complete(_go_through(world))
            if on_end is not None:
                on_end(world)
    except Failure as failure:
        lived.kind, lived.details = failure.kind, _details(failure)
    except SimulationError as error:
        lived.kind, lived.details = f"simulation: {type(error).__name__}", f"{error}; {unrest(world)[:10]}"
    except Exception as error:  # noqa: BLE001  # as above
        lived.kind, lived.details = _raised(error)
    finally:
        _figure(lived, world, loop)
        if not lived.kind and kept is None:
            lived.kind, lived.details = _thin(lived)
        if is_told:
            lived.story = _tell(world)
        for process in list(world.cell.processes.values()):
            process.die("the end")
        loop.kill(loop.main)
        loop.bury()
        world.clean()
        loop.close()
    return lived


def _thin(lived: Lived) -> tuple[str, str]:
    """Why a whole seed that went well says nothing; empty if it does."""
    if lived.steps < STEPS_MIN:
        return "a seed of too few steps", f"{lived.steps} of {STEPS_MIN}"
    missing = [
        name for name in ("records", "looks", "replay", "sleepers", "starts") if not lived.count.get(f"check: {name}")
    ]
    return ("a seed in which nothing was checked", ", ".join(missing)) if missing else ("", "")


def _raised(error: Exception) -> tuple[str, str]:
    """Kind and details of an error that is neither a rule's nor the simulation's own: the end of its traceback."""
    text = "".join(traceback.format_exception(error, limit=-_CALLS_TOLD))
    return f"the simulation raises {kind_of(error)}", text[-_CHARACTERS_TOLD:]


def _details(failure: Failure) -> str:
    cause = failure.__cause__
    return f"{failure.details} {cause!r}" if cause is not None else failure.details


async def _go_through(world: World) -> None:
    """Live through a story, then wait for rest.

    Raises:
        Failure: Something is wrong.
    """
    await world.begin()
    loop = world.loop
    while loop.now_s < HORIZON_S:
        await asyncio.sleep(0.5)
        _see_nothing_failed(world)
    world.repair()
    quiet_s = 0.0
    before: tuple[object, int] = ((), -1)
    steady = Steady(world)
    known: set[tuple[str, str]] = set()
    while quiet_s < QUIET_S or unrest(world, known):
        if loop.now_s > HORIZON_S + REST_MAX_S:
            raise Failure("the cell does not come to rest", f"{unrest(world, known)[:20]}")
        await asyncio.sleep(1.0)
        _see_nothing_failed(world)
        steady.look(is_led=is_led(world))
        known |= scored(world)
        # Who could not store a message tries again after retry_wait_max_s, which is a little less.
        unstored = sum(process.log.said["warning", "message not stored"] for process in world.cell.logs)
        now = (_fates(world), unstored)
        quiet_s = quiet_s + 1.0 if now == before else 0.0
        before = now
    await see_rest(world)


def _fates(world: World) -> list[object]:
    """What has become of the jobs. A live fact that is stored again, because it is old, makes records that say nothing
    new. A heavy gang that waits is tried again and again, and in between refused as ``late``.
    """
    world.observer.catch_up()
    state = world.observer.state
    found = [(key, status_of(state, key, at_ms=0)) for key in sorted(state.jobs)]
    fates = [(key, said.phase, said.attempt, said.refusal) for key, said in found if said is not None]
    return [(*fate, None if refusal is not None and refusal.retry_ms else refusal) for *fate, refusal in fates]


def _see_nothing_failed(world: World) -> None:
    for failures in (world.observer.failures, world.cell.failures):
        if failures:
            raise failures[0]
    world.see_codes()
    if world.loop.errors:
        raise Failure("an error in a callback", world.loop.errors[0])
    world.middle.look(world.loop.steps, world.cell.clocks["bus"].now_ms())
    for process in world.cell.logs:
        for level, event in process.log.said:
            if level == "error" and event in FATAL_LINES:
                raise Failure(f"{process.name.rstrip('-0123456789')}: {event}", str(told(process.log.lines, 3)))


def _figure(lived: Lived, world: World, loop: SimLoop) -> None:
    lived.trace, lived.steps, lived.callbacks = loop.trace_hash, loop.steps, loop.callbacks
    lived.virtual_s = loop.now_s
    count: Counter[str] = Counter()
    cell, observer = world.cell, world.observer
    count["kills"] = cell.kills
    count["facts"], count["records"] = len(observer.facts), len(observer.records)
    count.update({f"event: {verb}": number for verb, number in world.told.items()})
    count.update({f"check: {name}": number for name, number in observer.count.items()})
    count.update({f"point: {name}": number for name, number in cell.passed.items()})
    count.update({f"death: {name}": number for name, number in cell.deaths.items()})
    count.update({f"refusal: {code}": number for code, number in observer.codes.items()})
    count.update({f"trouble: {name}": number for name, number in cell.kube.refusals.items()})
    count.update({f"end: {reason}": number for reason, number in cell.ends.items()})
    lived.count = dict(count)


def _tell(world: World) -> list[str]:
    lines = [line for process in world.cell.logs for line in process.log.lines]
    events = [(event.at_s, str(event)) for event in world.story.events]
    texts = [
        (line[0], told(type(process.log.lines)([line]))[0]) for process in world.cell.logs for line in process.log.lines
    ]
    del lines
    return [text for _, text in sorted([*events, *texts], key=lambda pair: pair[0])]
