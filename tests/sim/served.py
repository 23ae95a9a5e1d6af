"""A handler of a simulated connection."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.support.fake_bus import FakeServed

if TYPE_CHECKING:
    from tests.sim.bus import SimBus


class SimServed(FakeServed):
    """A handler whose requests take their time."""

    _bus: "SimBus"
    is_over = False

    def deliver(self, subject: str, data: bytes, reply: Callable[[bytes], object]) -> None:
        """Send it a request from the server."""
        bus = self._bus
        generation = bus._generation

        def arrive() -> None:
            if generation == bus._generation and not self.is_over:
                self.put(subject, data, answer)

        def answer(said: bytes) -> None:
            if generation == bus._generation and bus.is_connected:
                bus.loop.call_at(bus.outgoing.arrival_s(), reply, said, context=bus.server.lane.context)

        bus.loop.call_at(bus.incoming.arrival_s(), arrive, context=bus.lane.context)

    async def stop(self) -> None:
        self.is_over = True
        await super().stop()

    async def cancel(self) -> None:
        self.is_over = True
        await super().cancel()
