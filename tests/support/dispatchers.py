"""Dispatchers on a real bus, inside the test, without a lease: each one acts as leader."""

import asyncio
from collections.abc import Callable

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.clock import SystemClock
from berth.runtime.instruments import Instruments
from berth.services.dispatcher.config import DispatcherConfig
from berth.services.dispatcher.loop import Dispatcher
from berth.services.dispatcher.metrics import DispatcherMetrics
from berth.services.dispatcher.standby import FencedError
from tests.support.waiting import SLACK


class Dispatchers:
    """Dispatchers of one cell, each on a connection of its own, without a lease."""

    def __init__(self, url: str, cell: str, config: DispatcherConfig) -> None:
        self._config = config
        self._url = url
        self._cell = cell
        self._made: list[tuple[NatsBus, Dispatcher]] = []
        self._count = 0

    async def begin(self) -> Dispatcher:
        """Another dispatcher, whose reign begins, however often the one before writes first."""
        self._count += 1
        bus = await NatsBus.connect(self._url, self._cell, name="reign")
        while True:
            made = Dispatcher(
                bus,
                SystemClock(),
                self._config,
                holder=f"holder-{self._count}",
                instruments=Instruments.make(DispatcherMetrics),
            )
            self._made.append((bus, made))
            try:
                await made.start()
            except FencedError:
                continue
            return made

    async def end(self) -> None:
        """End them all."""
        for bus, dispatcher in self._made:
            await dispatcher.stop()
            await bus.close()


async def turns(dispatcher: Dispatcher, condition: Callable[[], bool]) -> None:
    """Turn until a condition holds."""
    async with asyncio.timeout(SLACK * 10):
        while not condition():
            await dispatcher.turn()
            await asyncio.sleep(0)
