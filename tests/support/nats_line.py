"""A client of NATS that writes lines and keeps all that comes, errors of the server included, in their order.

The library of the product reports refusals late and in lower case; here what was refused is known when a ping is
answered.
"""

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from berth.runtime.keys.tokens import Key

_SEED: Final = re.compile(r"\bSU[A-Z2-7]+\b")
_TOKEN: Final = re.compile(r"\beyJ[\w.-]+\b")
_REFUSED: Final = re.compile(r"""Permissions Violation for (Publish|Subscription) to "([^"]+)""")
_DEADLINE_S: Final = 30.0


class Came(NamedTuple):
    """A message that came."""

    subject: str
    reply: str
    data: bytes
    is_status: bool = False
    """Whether it is a word of the server, such as that nobody answers on a subject."""


class Line:
    """An open connection; made by :func:`line`.

    Attributes:
        came: Messages, in their order.
        errors: What the server said is wrong, in its words.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._count = 0
        self.came: list[Came] = []
        self.errors: list[str] = []

    @property
    def refused(self) -> dict[str, set[str]]:
        """Subjects that were refused, for ``Publish`` and ``Subscription``."""
        found: dict[str, set[str]] = {"Publish": set(), "Subscription": set()}
        for error in self.errors:
            for what, subject in _REFUSED.findall(error):
                found[what].add(subject)
        return found

    def publish(
        self, subject: str, data: bytes = b"{}", *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Write a message."""
        if headers is None:
            self._writer.write(f"PUB {subject} {reply} {len(data)}\r\n".encode() + data + b"\r\n")
            return
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"NATS/1.0\r\n{lines}\r\n".encode()
        sizes = f"{len(head)} {len(head) + len(data)}"
        self._writer.write(f"HPUB {subject} {reply} {sizes}\r\n".encode() + head + data + b"\r\n")

    def subscribe(self, subject: str) -> None:
        """Write a subscription."""
        self._count += 1
        self._writer.write(f"SUB {subject} {self._count}\r\n".encode())

    async def settle(self) -> None:
        """Wait until the server has seen all that was written, and has said what it has to say about it.

        Raises:
            ConnectionError: It has ended the connection.
        """
        self._writer.write(b"PING\r\n")
        async with asyncio.timeout(_DEADLINE_S):
            await self._writer.drain()
            while await self._take() != "PONG":
                pass

    async def first(self, subject: str, *, deadline_s: float = _DEADLINE_S) -> Came:
        """Wait for a message on a subject; returns the first.

        Raises:
            TimeoutError: None came.
        """
        async with asyncio.timeout(deadline_s):
            while True:
                for one in self.came:
                    if one.subject == subject:
                        return one
                await self._take()

    async def _take(self) -> str:
        """Read what comes next; returns its first word.

        Raises:
            ConnectionError: The server has ended the connection.
        """
        text = (await self._reader.readline()).decode()
        if not text:
            raise ConnectionError(", ".join(self.errors))
        verb, _, rest = text.strip().partition(" ")
        if verb == "-ERR":
            self.errors.append(rest)
        elif verb == "PING":
            self._writer.write(b"PONG\r\n")
        elif verb in {"MSG", "HMSG"}:
            words = rest.split()
            headers = int(words[-2]) if verb == "HMSG" else 0
            whole = await self._reader.readexactly(int(words[-1]) + 2)
            has_reply = len(words) > (4 if verb == "HMSG" else 3)
            is_status = whole.startswith(b"NATS/1.0 ")
            self.came.append(Came(words[0], words[2] if has_reply else "", whole[headers:-2], is_status))
        return verb


@asynccontextmanager
async def line(url: str, credentials: str) -> AsyncIterator[Line]:
    """A connection with the content of a credentials file."""
    seed, token = _SEED.search(credentials), _TOKEN.search(credentials)
    assert seed is not None
    assert token is not None
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        info = msgspec.json.decode((await reader.readline()).partition(b" ")[2])
        signature = base64.urlsafe_b64encode(Key(seed[0]).sign(info["nonce"])).rstrip(b"=").decode()
        options = {"verbose": False, "pedantic": False, "lang": "test", "version": "1", "protocol": 1, "echo": True}
        about = {**options, "headers": True, "no_responders": True, "jwt": token[0], "sig": signature}
        writer.write(b"CONNECT " + msgspec.json.encode(about) + b"\r\n")
        made = Line(reader, writer)
        await made.settle()
        yield made
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):  # the server may have ended it
            await writer.wait_closed()
