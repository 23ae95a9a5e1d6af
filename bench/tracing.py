"""``tracing``: what the traces of all jobs cost, as the rate of ``spine`` with them and without, in pairs.

``api`` runs in both cases, because it makes the traces. The receiver is a server of the bench that reads and forgets.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from bench import spine
from bench.pairs import FULL, Size, paired
from bench.report import Report, machine
from bench.spine import measure

_LEAST_PERCENT = 98.0
_FIRST_S = 30.0
_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(bench="tracing", machine=machine(), rows=paired("traces", _rates, size, least_percent=_LEAST_PERCENT))


async def _rates(has_traces: bool, size: spine.Size) -> list[float]:  # noqa: FBT001  # the part that is measured
    if not has_traces:
        gangs, _, _ = await measure(1, "interval", size, api="")
        return gangs
    received = Received()
    async with received.listen() as port:
        settings = f'[tracing]\nendpoint = "http://127.0.0.1:{port}"\n'
        gangs, _, _ = await measure(1, "interval", size, api=settings, at_end=received.until_first)
    return gangs


class Received:
    """A receiver of traces."""

    def __init__(self) -> None:
        self._first = asyncio.Event()

    async def until_first(self) -> None:
        """Wait for the first request.

        Raises:
            TimeoutError: No traces were sent.
        """
        async with asyncio.timeout(_FIRST_S):
            await self._first.wait()

    @contextlib.asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        """Listen on a free port of this machine."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                await reader.readexactly(length)
                self._first.set()
                writer.write(_TAKEN)
                await writer.drain()
        writer.close()
