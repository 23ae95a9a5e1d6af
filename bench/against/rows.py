"""Rows of a comparison: each sets up a cell or a state once, and does the same work again and again.

Rows of services have the client of this tree and services of either tree, which speak with each other over the bus.
Rows of the core call functions of the tree that is first on the path. Sizes are chosen so that a round takes about a
second: rounds of both trees follow one another so closely that what else the machine does changes little between them.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from bench import gang, replay, restart, simulate, spine, superpod, switch
from bench.cell import Running, cell
from berth.core.simulation.simulator import Simulation

_SPINE: Final = spine.Size(gangs=2_000)
_GANG: Final = gang.Size()
_GANGS: Final = 5
_SWITCH: Final = switch.Case(640, "half", "2.0", switch.FULL.replicas, 0.0)
_SWITCHED: Final = 10
_SUPERPOD: Final = superpod.Case(50_000, is_busy=True, replicas=superpod.FULL.replicas, target_ms=0.0)
_IN_SUPERPODS: Final = 4
_DECISIONS: Final = 30
_EVENTS: Final = 6_000
_NODES: Final = 10_000
_REST_S: Final = 0.5


class Cost(NamedTuple):
    """Cost of a round: wall seconds, and CPU seconds of what is measured."""

    wall_s: float
    cpu_s: float


class Rounds(NamedTuple):
    """What a row measures: its work in words, with counts that are equal if the work is, and one round of it."""

    work: str
    once: Callable[[], Awaitable[Cost]]


class Against(NamedTuple):
    """A row.

    Attributes:
        rounds: Sets it up, with the tree of the services.
        has_services: Whether it measures services, and not functions of the core.
    """

    rounds: Callable[[Path], AbstractAsyncContextManager[Rounds]]
    has_services: bool


@asynccontextmanager
async def _spine(code: Path, shards: int) -> AsyncIterator[Rounds]:
    async with cell(shards=shards, code=code) as running:
        load = spine.Load(running.bus, _SPINE)
        await load.fill()
        yield Rounds(f"{_SPINE.gangs:,} gangs, {shards} shards", _of_services(running, load.gangs, 1))


@asynccontextmanager
async def _gang(code: Path) -> AsyncIterator[Rounds]:
    async with cell(shards=1, code=code) as running:
        load = gang.Load(running.bus, _GANG)
        await load.fill()
        yield Rounds(f"{_GANGS} gangs of {_GANG.pods:,} pods, 1 shard", _of_services(running, load.gang, _GANGS))


@asynccontextmanager
async def _switch(code: Path) -> AsyncIterator[Rounds]:
    async with cell(shards=4, decisions=switch.settings_of(_SWITCH), code=code) as running:
        load = switch.Load(running.bus, _SWITCH)
        await load.fill()
        yield Rounds(f"{_SWITCHED} gangs on {_SWITCH}, 4 shards", _of_services(running, load.gang, _SWITCHED))


@asynccontextmanager
async def _superpod(code: Path) -> AsyncIterator[Rounds]:
    async with cell(shards=4, code=code) as running:
        load = superpod.Load(running.bus, _SUPERPOD.nodes, _SUPERPOD.replicas)
        await load.fill()
        what = f"{_IN_SUPERPODS} gangs on {_SUPERPOD.nodes:,} nodes, 4 shards"
        yield Rounds(what, _of_services(running, load.gang, _IN_SUPERPODS))


@asynccontextmanager
async def _restart(code: Path, dispatchers: int) -> AsyncIterator[Rounds]:
    async with restart.started(code, _NODES, dispatchers) as found:

        async def once() -> Cost:
            cost = Cost(*await found.next_after_kill(_REST_S))
            found.start_again()
            return cost

        with_standby = "the leader killed" if dispatchers > 1 else "killed and started"
        yield Rounds(f"{_NODES:,} nodes, {with_standby}, to the next placement", once)


def _of_services(running: Running, once: Callable[[], Awaitable[float]], times: int) -> Callable[[], Awaitable[Cost]]:
    """A round of some requests, each in seconds, with the CPU of all services meanwhile."""

    async def done() -> Cost:
        before_s = running.cpu_s()
        took_s = sum([await once() for _ in range(times)])
        return Cost(took_s, running.cpu_s() - before_s)

    return done


@asynccontextmanager
async def _decided(_: Path, decisions: Iterator[switch.Decision], work: str) -> AsyncIterator[Rounds]:
    yield Rounds(f"{_DECISIONS} decisions on {work}", _of_core(lambda: list(itertools.islice(decisions, _DECISIONS))))


@asynccontextmanager
async def _replay(_: Path) -> AsyncIterator[Rounds]:
    entries = list(replay.BusyCell(1).entries(_EVENTS))
    found, _took_s = replay.timed(entries)
    work = f"{found.events:,} events, {found.decisions:,} decisions, {found.refused:,} refusals"
    yield Rounds(work, _of_core(lambda: replay.timed(entries)))


@asynccontextmanager
async def _simulate(_: Path) -> AsyncIterator[Rounds]:
    plan = simulate.plan_of(simulate.CASES[0], simulate.FULL)
    work = f"Kalos, {len(plan.workload.jobs):,} jobs"
    yield Rounds(work, _of_core(lambda: Simulation(plan, on_entry=None).run()))


def _of_core(work: Callable[[], object]) -> Callable[[], Awaitable[Cost]]:
    """A round of pure computation."""

    async def done() -> Cost:
        began_s, used_s = time.perf_counter(), time.process_time()
        work()
        cost = Cost(time.perf_counter() - began_s, time.process_time() - used_s)
        await asyncio.sleep(0)
        return cost

    return done


ROWS: Final = {
    "spine-1": Against(lambda code: _spine(code, 1), has_services=True),
    "spine-4": Against(lambda code: _spine(code, 4), has_services=True),
    "gang": Against(_gang, has_services=True),
    "switch": Against(_switch, has_services=True),
    "switch-core": Against(lambda code: _decided(code, switch.decisions(_SWITCH), str(_SWITCH)), has_services=False),
    "superpod": Against(_superpod, has_services=True),
    "superpod-core": Against(
        lambda code: _decided(code, superpod.decisions(superpod.state_of(_SUPERPOD.nodes), _SUPERPOD), str(_SUPERPOD)),
        has_services=False,
    ),
    "replay": Against(_replay, has_services=False),
    "simulate": Against(_simulate, has_services=False),
    "restart-alone": Against(lambda code: _restart(code, 1), has_services=True),
    "restart-standby": Against(lambda code: _restart(code, 2), has_services=True),
}
