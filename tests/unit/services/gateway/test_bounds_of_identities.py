"""A gateway over real sockets: connections of one identity, heads that are refused, and what the log has of them."""

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from berth.runtime import logs
from berth.runtime.config import LogConfig
from berth.runtime.logs import LIMIT_PERIOD_S
from berth.services.gateway.config import GatewayConfig, Token
from berth.services.gateway.guard import Guard
from berth.services.gateway.http_protocol import Bounds
from berth.services.gateway.refusal_log import RefusalLog
from berth.services.gateway.server import Tls, listen, server_of
from berth.services.gateway.shares import Shares
from tests.support.clock import ManualClock
from tests.support.gateway_requests import an_application
from tests.support.waiting import until

TOKENS = [Token(identity=one, sha256=hashlib.sha256(f"of-{one}".encode()).hexdigest()) for one in ("bob", "eve")]


class Running(NamedTuple):
    """A gateway, and what it logs."""

    port: int
    out: io.StringIO
    clock: ManualClock
    open_now: list[int]

    async def ask(self, *heads: bytes, path: bytes = b"/api/v1/openapi.json") -> "Asked":
        """Send one request on a new connection; the connection stays open."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, b"".join(b"%b\r\n" % head for head in heads)))
        head = await reader.readuntil(b"\r\n\r\n")
        return Asked(int(head.split()[1]), head.decode().lower(), reader, writer)


class Asked(NamedTuple):
    """An answer, and its connection."""

    status: int
    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


@asynccontextmanager
async def gateway(per_identity: int = 2, access: str = "token") -> AsyncIterator[Running]:
    clock, out = ManualClock(), io.StringIO()
    log = logs.logger_of("gateway", LogConfig(form="text"), out)
    refusals = RefusalLog(clock, log)
    app = an_application(access=access, tokens=TOKENS, refusals=refusals)
    open_now: list[int] = []
    bounds = Bounds(100, 5, 10, open_now.append, Shares("open connections", per_identity), refusals.count)
    server, own = server_of(app, bounds, Tls(None, None)), listen("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([own]), name="server")
        yield Running(own.getsockname()[1], out, clock, open_now)
        server.should_exit = True
    own.close()


HOST = b"Host: localhost"


async def test_no_identity_has_more_than_its_share_of_connections() -> None:
    bob, eve = (b"Authorization: Bearer of-bob", b"Authorization: Bearer of-eve")
    async with gateway() as one:
        held = [await one.ask(HOST, bob, path=b"/api/v1/none") for _ in range(2)]
        assert [asked.status for asked in held] == [404, 404]
        refused = await one.ask(HOST, bob, path=b"/api/v1/none")
        assert refused.status == 503
        assert "connection: close" in refused.head
        assert b"open connections of bob is 2" in await refused.reader.read()
        others = await one.ask(HOST, eve, path=b"/api/v1/none")
        assert others.status == 404
        held[0].writer.close()
        await until(lambda: one.open_now[-1] == 2, deadline_s=5, what="a connection is gone")
        again = await one.ask(HOST, bob, path=b"/api/v1/none")
        assert again.status == 404
        for asked in (*held, refused, others, again):
            asked.writer.close()


async def test_a_stranger_holds_no_connection() -> None:
    async with gateway() as one:
        asked = await one.ask(HOST, b"Authorization: Bearer wrong", path=b"/api/v1/me")
        assert asked.status == 401
        assert b"no-token" in await asked.reader.read(), "the server closes the connection"
        asked.writer.close()


@pytest.mark.parametrize("access", ["token", "open"])
@pytest.mark.parametrize(
    "heads",
    [
        (),
        (b"Host:",),
        (b"Host: a", b"Host: b"),
        (b"Host: localhost", b"Host: localhost"),
        (b"Host: local host",),
        (b"Host: localhost/x",),
        (b"Host: me@localhost",),
        (b"Host: [::1",),
        (b"Host: localhost:80:80",),
        (b"Host: local\xffhost",),
        (HOST, b"Origin: http://[::1"),
        (HOST, b"Origin: ftp://localhost"),
        (HOST, b"Origin: javascript:alert(1)"),
        (HOST, b"Origin: chrome-extension://abc"),
        (HOST, b"Origin: //localhost"),
        (HOST, b"Origin:"),
        (HOST, b"Origin: http://localhost/path"),
        (HOST, b"Origin: http://me@localhost"),
        (HOST, b"Origin: http://localhost:x"),
        (HOST, b"Origin: http://local\xffhost"),
        (HOST, b"Origin: http://localhost http://a"),
        (HOST, b"Origin: http://localhost", b"Origin: http://localhost"),
        (HOST, b"Origin: http://[::1", b"Sec-Fetch-Site: same-origin"),
        (HOST, b"Authorization: Bearer of-bob", b"Authorization: Bearer of-eve"),
    ],
)
async def test_heads_that_say_two_things_or_none_are_refused_without_a_traceback(
    heads: Sequence[bytes], access: str
) -> None:
    async with gateway(access=access) as one:
        asked = await one.ask(*heads)
        assert asked.status == 400, asked.head
        asked.writer.close()
        assert "Traceback" not in one.out.getvalue()
        assert "invalid-request" in one.out.getvalue()


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (b"http://localhost", 200),
        (b"HTTP://LOCALHOST", 200),
        (b"http://localhost:81", 403),
        (b"http://evil.example", 403),
        (b"null", 403),
    ],
)
async def test_origins_of_the_web_are_own_or_foreign(origin: bytes, status: int) -> None:
    async with gateway() as one:
        asked = await one.ask(HOST, b"Origin: " + origin)
        assert asked.status == status
        asked.writer.close()


def test_a_page_without_tls_is_no_own_page_of_a_gateway_with_it() -> None:
    with_tls = GatewayConfig(access="open", tls_cert_file="cert.pem", tls_key_file="key.pem")  # type: ignore[arg-type]  # as read from a file
    headers = {"host": "localhost", "origin": "http://localhost"}
    assert Guard(GatewayConfig(access="open"), ManualClock()).caller("/api/v1/me", b"", headers).identity == ""
    with pytest.raises(Exception, match="header Origin is 'http://localhost'"):
        Guard(with_tls, ManualClock()).caller("/api/v1/me", b"", headers)


@pytest.mark.parametrize(
    "request_",
    [
        b"no http at all\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n\r\n",
    ],
)
async def test_many_refused_requests_are_one_line_with_their_number(
    request_: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def sent() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
        writer.write(request_)
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with gateway() as one:
        for _ in range(20):
            await sent()
        lines = one.out.getvalue().splitlines()
        assert len(lines) <= 1, lines
        one.clock.advance(LIMIT_PERIOD_S)
        await sent()
        assert len(one.out.getvalue().splitlines()) <= 2
        assert not lines or "count=20" in one.out.getvalue()
    assert not caplog.records, "nor does the library log any"
