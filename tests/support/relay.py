"""A port that leads to another one: an address at which a server can be reached, or not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

_LOOPBACK: Final = "127.0.0.1"
_PIECE_BYTES: Final = 65_536


@asynccontextmanager
async def relay(port: int, *, to: int) -> AsyncIterator[None]:
    """Lead every connection to ``port`` on to port ``to`` of this machine while the block runs."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(_LOOPBACK, to)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, far_writer), name="there")
            group.create_task(_pass_on(far_reader, writer), name="back")

    server = await asyncio.start_server(join, _LOOPBACK, port)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    writer.close()
