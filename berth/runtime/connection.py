"""Connection of a process to the bus, by its settings."""

import asyncio
from typing import Final

from berth.runtime.bus.access import access_of
from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import BusConfig
from berth.runtime.logs import Logger

_CANCEL_AGAIN_S: Final = 0.1


async def connect(name: str, config: BusConfig, stop: asyncio.Event, log: Logger) -> NatsBus | None:
    """Connect the bus; None if the process was stopped before it was connected.

    Args:
        name: Name of the connection.
        config: Settings.
        stop: Event that ends the attempt.
        log: Logger for lines about the connection.

    Raises:
        ExceptionGroup: Contains a TransientError if no server answered in time, or a FatalError if the server rejects
            the credentials.
    """
    servers = config.url.split(",")
    access = access_of(config)
    async with asyncio.TaskGroup() as group:
        connecting = group.create_task(
            NatsBus.connect(
                servers, config.cell, name=name, timeout_s=config.connect_timeout_s, access=access, log=log
            ),
            name="connect",
        )
        asked = group.create_task(_wait(stop), name="wait for stop")
        await asyncio.wait({connecting, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        while not connecting.done():  # the library may treat a cancellation as a failed attempt, and retry
            connecting.cancel()
            await asyncio.wait({connecting}, timeout=_CANCEL_AGAIN_S)
    return None if connecting.cancelled() else connecting.result()


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()
