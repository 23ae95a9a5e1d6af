"""A TCP proxy before a server: it delays, stops and cuts connections, and loses what it has already taken."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from socket import socket
from typing import Final, Protocol

from tests.support.waiting import pause

_PIECE_BYTES: Final = 65_536
_BACKLOG: Final = 64
_STOP_S: Final = 2.0


class Host(Protocol):
    """Where the server of a proxy is, such as a :class:`tests.chaos.network.Host`."""

    @property
    def address(self) -> str:
        """Address of the host."""

    def socket(self) -> socket:
        """A TCP socket, not blocking."""


@dataclass
class Weather:
    """What happens to bytes on their way; all off by default.

    Attributes:
        delay_s: Each piece comes so much later.
        jitter_s: And up to so much more, in the order in which the pieces were sent.
        is_stopped: Nothing comes through, and nobody is told; pieces wait.
        is_lossy: Pieces are taken and never come; the connection is cut when this ends.
    """

    delay_s: float = 0.0
    jitter_s: float = 0.0
    is_stopped: bool = False
    is_lossy: bool = False


@dataclass(eq=False)
class _Connection:
    """Two connections that are one.

    Attributes:
        has_lost: Pieces of it were lost, so the rest makes no sense to the one who reads it.
    """

    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    has_lost: bool = False

    def cut(self) -> None:
        """End both at once, without a farewell."""
        for writer in self.writers:
            writer.transport.abort()


@dataclass
class Counts:
    """What a proxy did."""

    connections: int = 0
    pieces: int = 0
    delayed: int = 0
    lost: int = 0
    cut: int = 0


@dataclass
class Proxy:
    """One way to a server: listens at its host, on a port of its own.

    Attributes:
        host: Of the server, and of the proxy.
        port: That it listens on.
        to: Port of the server.
        up: What happens to what clients send.
        down: What happens to what they are sent.
        is_closed: New connections are ended at once.
    """

    host: Host
    port: int
    to: int
    random: Random
    up: Weather = field(default_factory=Weather)
    down: Weather = field(default_factory=Weather)
    is_closed: bool = False
    counts: Counts = field(default_factory=Counts)
    _live: set[_Connection] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        listening = self.host.socket()
        listening.bind((self.host.address, self.port))
        self._server = await asyncio.start_server(self._join, sock=listening, backlog=_BACKLOG)

    async def stop(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
            self.cut()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await self._server.wait_closed()

    @property
    def live(self) -> int:
        """Connections now."""
        return len(self._live)

    def cut(self) -> int:
        """End all connections at once; returns how many there were."""
        live = list(self._live)
        for connection in live:
            connection.cut()
        self.counts.cut += len(live)
        return len(live)

    def clear(self) -> None:
        """Let everything come through again; connections that have lost something end."""
        self.up, self.down, self.is_closed = Weather(), Weather(), False
        for connection in list(self._live):
            if connection.has_lost:
                connection.cut()
                self.counts.cut += 1

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_closed:
            writer.transport.abort()
            return
        far = self.host.socket()
        try:
            await asyncio.get_running_loop().sock_connect(far, (self.host.address, self.to))
            far_reader, far_writer = await asyncio.open_connection(sock=far)
        except OSError:
            far.close()
            writer.transport.abort()
            return
        connection = _Connection((writer, far_writer))
        self._live.add(connection)
        self.counts.connections += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(connection, reader, far_writer, is_up=True), name="up")
                group.create_task(self._pass(connection, far_reader, writer, is_up=False), name="down")
        finally:
            self._live.discard(connection)
            connection.cut()

    async def _pass(
        self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_up: bool
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(_PIECE_BYTES):
                self.counts.pieces += 1
                if await self._arrives(connection, is_up=is_up):
                    writer.write(piece)
                    await writer.drain()
        connection.cut()

    async def _arrives(self, connection: _Connection, *, is_up: bool) -> bool:
        """Wait as long as a piece is on its way; returns whether it comes."""
        weather = self.up if is_up else self.down
        if weather.delay_s or weather.jitter_s:
            self.counts.delayed += 1
            await pause(weather.delay_s + self.random.uniform(0, weather.jitter_s))
        while (self.up if is_up else self.down).is_stopped:
            await pause(0.02)
        if (self.up if is_up else self.down).is_lossy or connection.has_lost:
            connection.has_lost = True
            self.counts.lost += 1
            return False
        return True


def cut_all(proxies: Sequence[Proxy]) -> int:
    """End all connections of some proxies at once; returns how many there were."""
    return sum(proxy.cut() for proxy in proxies)
