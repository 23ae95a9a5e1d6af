"""Wiring of the dispatcher: lease, leadership, standby."""

import asyncio
from typing import Final

from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.errors import TransientError
from berth.runtime.identity import process_identity
from berth.runtime.instruments import Instruments
from berth.runtime.logs import Logger
from berth.runtime.waits import pause
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.lease import Lease
from berth.services.dispatcher.loop import Dispatcher, FencedError
from berth.services.dispatcher.metrics import DispatcherMetrics

_RENEWALS: Final = 3
"""Times that a lease is renewed in its length."""


async def serve(
    bus: Bus,
    clock: Clock,
    config: DispatcherConfig,
    instruments: Instruments[DispatcherMetrics],
    stop: asyncio.Event,
) -> None:
    """Decide while the lease is held, stand by while it is not, until asked to stop."""
    holder = process_identity()
    await bus.ensure_streams(replicas=config.bus.replicas)
    lease = Lease(bus, clock, role="dispatcher", holder=holder, lease_s=config.lease_s, instruments=instruments)
    while not stop.is_set():
        if not await lease.acquire():
            instruments.readiness.ready()  # a standby has nothing to catch up with: a new leader reads everything
            await pause(stop, config.lease_s / _RENEWALS)
            continue
        instruments.readiness.wait("facts and ledger are being read")
        dispatcher = Dispatcher(bus, clock, config, holder=holder, instruments=instruments)
        try:
            await _lead(dispatcher, lease, config, instruments, stop)
        except* FencedError as group:
            instruments.log.warning("fenced by another dispatcher", by=[str(error) for error in group.exceptions])
            lease.drop()
        except* TransientError as group:
            instruments.log.warning("leadership not taken", reasons=[str(error) for error in group.exceptions])
            await pause(stop, config.lease_s / _RENEWALS)
        finally:
            instruments.metrics.leads.set(0)
            await dispatcher.stop()
    await lease.release()


async def _lead(
    dispatcher: Dispatcher,
    lease: Lease,
    config: DispatcherConfig,
    instruments: Instruments[DispatcherMetrics],
    stop: asyncio.Event,
) -> None:
    """Decide until the lease is lost, another dispatcher is leader, or the end is asked for."""
    async with asyncio.TaskGroup() as group:
        renewing = group.create_task(_renew(lease, config.lease_s / _RENEWALS, instruments.log), name="renew lease")
        stopping = group.create_task(_wake_on(stop, dispatcher.feeds.arrived), name="wake on stop")
        await dispatcher.start()
        instruments.metrics.leads.set(1)
        instruments.readiness.ready()
        while lease.is_held and not stop.is_set():
            dispatcher.feeds.arrived.clear()
            try:
                await dispatcher.turn()
            except TransientError as error:
                instruments.log.warning("dispatch cycle failed", reason=error.reason)
                await pause(stop, error.retry_after_s)
                continue
            if not dispatcher.has_work:
                await _rest(dispatcher, config.tick_s)
        renewing.cancel()
        stopping.cancel()


async def _rest(dispatcher: Dispatcher, tick_s: float) -> None:
    """Wait for something to come in, or for the next tick."""
    try:
        async with asyncio.timeout(tick_s):
            await dispatcher.feeds.arrived.wait()
    except TimeoutError:
        return


async def _renew(lease: Lease, every_s: float, log: Logger) -> None:
    stop = asyncio.Event()
    while True:
        await pause(stop, every_s)
        if not await lease.acquire():
            log.warning("lease lost")
            return


async def _wake_on(stop: asyncio.Event, arrived: asyncio.Event) -> None:
    await stop.wait()
    arrived.set()
