"""Wiring of the dispatcher: lease, leadership, standby."""

import asyncio
import math
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final, TypeAlias

from berth.runtime.beside import BesideWork, beside
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, TransientError
from berth.runtime.garbage import Garbage, ProcessGarbage
from berth.runtime.identity import process_identity
from berth.runtime.instruments import Instruments
from berth.runtime.waits import pause
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.dead_letters import count_letters
from berth.services.dispatcher.kept_streams import KeptStreams
from berth.services.dispatcher.leadership import Keeper, Standing, Terms
from berth.services.dispatcher.ledger_guard import CannotLeadError
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.sole_leader import SoleLeader
from berth.services.dispatcher.standby import FencedError

_ALIVE_S: Final = 0.25
"""Pause between two signs that the loop which decides is running."""
_AGAIN_S: Final = 1.0
"""Pause after leadership could not be taken."""
Beside: TypeAlias = Callable[[BesideWork], AbstractAsyncContextManager[None]]
"""Runs work beside the loop that decides while a block runs; see :func:`berth.runtime.beside.beside`."""


async def serve(
    bus: Bus,
    clock: Clock,
    config: DispatcherConfig,
    instruments: Instruments[DispatcherMetrics],
    stop: asyncio.Event,
) -> None:
    """Decide while this dispatcher leads, follow the leader while it does not, until asked to stop."""
    on_a_thread = partial(beside, "dispatcher", config.bus, log=instruments.log)
    process, garbage = process_identity(), ProcessGarbage()
    await serve_beside(on_a_thread, bus, clock, config, instruments, stop, process=process, garbage=garbage)


async def serve_beside(
    beside_work: Beside,
    bus: Bus,
    clock: Clock,
    config: DispatcherConfig,
    instruments: Instruments[DispatcherMetrics],
    stop: asyncio.Event,
    *,
    process: str,
    garbage: Garbage,
) -> None:
    """Decide or follow until asked to stop, with the keeper of the lease beside.

    Args:
        beside_work: Runs the keeper; with a lease on a connection of its own.
        bus: The cell.
        clock: Of the process.
        config: Settings.
        instruments: Of the process.
        stop: Set to end the dispatcher.
        process: Identity of this process; that of each process is another.
        garbage: Of the process.
    """
    kept_streams = KeptStreams(bus, config.bus.replicas, clock, instruments.log, waits_for=config.bus.waits_for)
    await kept_streams.begin()
    instruments.metrics.shards.set(config.shards)
    terms = Terms(config.lease_s, config.heartbeat_lost_s, config.heartbeat_answer_s)
    standing = Standing(clock)
    changed = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def keep(own_bus: Bus, asked: asyncio.Event) -> None:
        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        if config.lease:
            await Keeper(
                own_bus,
                clock,
                terms,
                standing,
                holder=config.holder or process,
                process=process,
                instruments=instruments,
                changed=wake,
            ).run(asked)
        else:
            await SoleLeader(
                own_bus, clock, terms, standing, process=process, instruments=instruments, changed=wake
            ).run(asked)

    async with beside_work(keep), asyncio.TaskGroup() as group:
        side_tasks = [
            group.create_task(_show_life(standing, clock), name="show life"),
            group.create_task(_set_on(stop, changed), name="wake on stop"),
            group.create_task(kept_streams.run(), name="keep streams"),
            group.create_task(count_letters(bus, clock, instruments), name="count dead letters"),
        ]
        while not stop.is_set():
            with garbage.short_collections():  # a longer pause would look like the end of the leader
                dispatcher = Dispatcher(bus, clock, config, holder=process, instruments=instruments)
                await _Term(dispatcher, standing, instruments, changed, stop).run()
            if not stop.is_set():
                del dispatcher
                garbage.collect()  # the state of this term, before that of the next one is loaded
        for task in side_tasks:
            task.cancel()


class _Term:
    """A dispatcher from its start until it is fenced, or until the end."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        standing: Standing,
        instruments: Instruments[DispatcherMetrics],
        changed: asyncio.Event,
        stop: asyncio.Event,
    ) -> None:
        self._dispatcher = dispatcher
        self._standing = standing
        self._readiness = instruments.readiness
        self._metrics = instruments.metrics
        self._log = instruments.log
        self._changed = changed
        self._stop = stop

    async def run(self) -> None:
        """Load what is stored, follow the leader until this dispatcher is the leader, then decide."""
        self._readiness.wait("facts and ledger are being read")
        try:
            async with asyncio.TaskGroup() as group:
                waking = group.create_task(self._wake(), name="wake on change")
                await self._dispatcher.load()
                await self._stand_by()
                if not self._stop.is_set():
                    await self._lead(group)
                waking.cancel()
        except* CannotLeadError:
            self._log.warning("leadership ended")  # the next term says why
        except* FencedError as errors:
            self._log.warning("fenced by another dispatcher", by=[str(error) for error in errors.exceptions])
            self._standing.doubt()
        except* TransientError as errors:
            self._log.warning("leadership not taken", reasons=[str(error) for error in errors.exceptions])
            await pause(self._stop, _AGAIN_S)
        finally:
            self._standing.stand(is_candidate=False)
            self._metrics.leads.set(0)
            self._metrics.oldest.set(0)
            await self._dispatcher.stop()

    async def _stand_by(self) -> None:
        """Follow until the lease is held and the ledger is one to decide on."""
        dispatcher, standing = self._dispatcher, self._standing
        obstacle: str | None = None
        shown: str | None = None
        while not self._stop.is_set():
            dispatcher.feeds.arrived.clear()
            await dispatcher.follow(standing.heard)
            found = await dispatcher.obstacle()
            if found != obstacle:
                obstacle = found
                standing.stand(is_candidate=not obstacle, refuses=bool(obstacle))
            if (reason := obstacle or standing.barred) != shown:
                shown = reason
                self._show(reason)
            if standing.leads and not obstacle:
                return
            await _rest(dispatcher)

    def _show(self, obstacle: str) -> None:
        """Say why this dispatcher does not lead; it is not ready then, and nothing is decided by anyone."""
        self._metrics.refuses.set(bool(obstacle))
        if obstacle:
            self._log.error("does not lead", reason=obstacle)
            self._readiness.wait(obstacle)
        else:
            self._readiness.ready()

    async def _lead(self, group: asyncio.TaskGroup) -> None:
        """Decide until the lease is lost, another dispatcher is leader, or the end is asked for."""
        dispatcher, standing = self._dispatcher, self._standing
        await dispatcher.lead()
        self._metrics.leads.set(1)
        forgetting = group.create_task(dispatcher.old_jobs.run(lambda: standing.leads), name="forget old jobs")
        while standing.leads and not self._stop.is_set():
            dispatcher.feeds.arrived.clear()
            try:
                await dispatcher.turn()
            except TransientError as error:
                self._log.warning("dispatch cycle failed", reason=error.reason)
                await pause(self._stop, error.retry_after_s)
                continue
            standing.progress = dispatcher.progress
            if not dispatcher.has_work:
                await _rest(dispatcher)
        forgetting.cancel()

    async def _wake(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._dispatcher.feeds.arrived.set()


async def _rest(dispatcher: Dispatcher) -> None:
    """Wait for something to come in, for the next tick, or until a gang with faults or a write that failed is due."""
    longest_s = DEFAULT_RETRY_AFTER_S if dispatcher.intake.is_paused or dispatcher.views.is_paused else math.inf
    await pause(dispatcher.feeds.arrived, min(longest_s, dispatcher.rest_s))


async def _show_life(standing: Standing, clock: Clock) -> None:
    while True:
        standing.alive_s = clock.monotonic_s()
        await asyncio.sleep(_ALIVE_S)


async def _set_on(stop: asyncio.Event, changed: asyncio.Event) -> None:
    await stop.wait()
    changed.set()
