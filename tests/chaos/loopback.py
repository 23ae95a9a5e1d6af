"""A way through a proxy on the own host, for tests that need no network of their own."""

import socket
from random import Random
from typing import Final
from urllib.parse import urlsplit

from berth.lab.servers.ports import free_ports
from tests.chaos.proxy import Proxy, Weather


class Loopback:
    """The own host."""

    address: Final = "127.0.0.1"

    def socket(self) -> socket.socket:
        """A TCP socket, not blocking; it may listen on a port that was in use a moment ago."""
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setblocking(False)  # noqa: FBT003  # the library's own signature
        return made


def proxy_to(url: str) -> Proxy:
    """A proxy, not started, on a free port of the own host before a server of it."""
    (port,) = free_ports(1)
    to = urlsplit(url).port
    assert to is not None
    return Proxy(Loopback(), port, to, Random(1))  # noqa: S311  # no secret


class ProxiedTrial:
    """What may go wrong between a client and a server, by a proxy between them."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._is_cut = False

    async def lose_answers(self) -> None:
        """Let the server get what the client sends, and lose what it answers."""
        self._proxy.down = Weather(is_lossy=True)

    async def hold(self) -> None:
        """Let what the client sends wait on its way."""
        self._proxy.up = Weather(is_stopped=True)

    async def cut(self) -> None:
        """Break all connections, and let no new one in."""
        await self._proxy.stop()
        self._is_cut = True

    async def heal(self) -> None:
        """End all of that."""
        self._proxy.clear()
        if self._is_cut:
            self._is_cut = False
            await self._proxy.start()
