"""A bus on which something happens between a read and what its reader does next."""

from collections.abc import Awaitable, Callable, Sequence

from berth.runtime.bus.port import Stored
from berth.schemas.subjects import StreamName
from tests.support.fake_bus import FakeBus
from tests.support.fake_server import FakeServer


class BusyBus(FakeBus):
    """A connection of a service.

    Args:
        server: The server.
        stream: What happens comes after the first read of this stream.
        happens: What happens.
    """

    def __init__(self, server: FakeServer, stream: StreamName, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__(server, "test")
        self._after = stream
        self._happens: list[Callable[[], Awaitable[None]]] = [happens]

    async def read(self, stream: StreamName, *, start_seq: int = 1, filters: Sequence[str] = ()) -> list[Stored]:
        found = await super().read(stream, start_seq=start_seq, filters=filters)
        if stream is self._after and self._happens:
            await self._happens.pop()()
        return found
