"""What arrives on the bus while a bench waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName

DEADLINE_S: Final = 120.0


class Arrivals:
    """Messages of streams, and waits for a condition on what they said.

    Args:
        bus: The bus.
        streams: Streams, each read from its oldest message on.
        take: Called with each message.
        filters: Subjects; empty for all.
        deadline_s: How long a condition may take.
    """

    def __init__(
        self,
        bus: NatsBus,
        *streams: StreamName,
        take: Callable[[Stored], None],
        filters: Sequence[str] = (),
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._take = take
        self._deadline_s = deadline_s
        self._changed = asyncio.Event()
        for stream in streams:
            bus.follow(stream, on_message=self._arrived, on_gap=fail, filters=filters)

    def _arrived(self, stored: Stored) -> None:
        self._take(stored)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition.

        Raises:
            TimeoutError: It does not hold in time.
        """
        async with asyncio.timeout(self._deadline_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def fail(gap: object) -> None:
    """A bench cannot go on without a message.

    Raises:
        RuntimeError: Always.
    """
    raise RuntimeError(f"history broke: {gap}")
