"""Messages of others whose subjects and headers are no text: the connection that gets them goes on."""

import asyncio
from typing import Final
from urllib.parse import urlsplit

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Gap, Stored
from berth.schemas.subjects import StreamName
from tests.support.waiting import until

REPLIES: Final = (
    b"_INBOX.x.r.\xff\xfe",
    b"_INBOX.x.r.\x0b",
    b"_INBOX.x.r.a\x0bb",
    b"_INBOX.x.r.a\x0cb",
    b"_INBOX.x.r.a\x1cb",
    b"_INBOX.x.r.\x00",
    b"\x0b",
    b"\x0b7",
    b"_INBOX.x.r.\xc2\x85b",
    b"_INBOX.x.r." + b"a" * 3_000,
)
HEADERS: Final = (
    b"\r\n\r\n",
    b"N",
    b"NATS/1.0",
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0 \xff\xff\xff\r\n\r\n",
    b"NATS/1.0 503 \xff\r\n\r\n",
    b"NATS/1.0 100 Idle\r\n\xff: \xff\r\n\r\n",
    b"NATS/1.0 503\r\n\r\n",
    b"NATS/1.0\r\nA: \xff\r\n\r\n",
    b"NATS/1.0\r\n\xff: y\r\n\r\n",
    b"NATS/1.0\r\n: y\r\n\r\n",
    b"garbage that is no header at all",
    b"NATS/1.0" + b"\r\nA: b" * 5_000 + b"\r\n\r\n",
)


async def write(url: str, *lines: bytes) -> None:
    """Write lines of the protocol as a client, and wait until the server has taken them."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
        writer.writelines(lines)
        writer.write(b"PING\r\n")
        async with asyncio.timeout(20):
            while (line := await reader.readline()) != b"PONG\r\n":
                assert line, "the server has ended the connection"
                assert not line.startswith(b"-ERR"), line
    finally:
        writer.close()
        await writer.wait_closed()


def request(subject: str, reply: bytes) -> bytes:
    return b"PUB %b %b 1\r\nx\r\n" % (subject.encode(), reply)


def headed(subject: str, headers: bytes, *, reply: bytes = b"") -> bytes:
    size = len(headers)
    return b"HPUB %b %b %d %d\r\n%bx\r\n" % (subject.encode(), reply, size, size + 1, headers)


async def test_whoever_serves_goes_on_after_requests_that_are_no_text(real_bus: NatsBus) -> None:
    taken: list[bytes] = []

    async def take(data: bytes) -> bytes:
        taken.append(data)
        return data

    subject, before = real_bus.subjects.report_health("n1"), real_bus.link_changes
    served = await real_bus.serve(subject, take)
    odd = [request(subject, reply) for reply in REPLIES]
    odd += [headed(subject, headers, reply=b"_INBOX.x.r.1") for headers in HEADERS]
    await write(f"nats://{real_bus.server.address}", *odd)
    assert await real_bus.request(subject, b"last", timeout_s=20) == b"last"
    assert (len(taken) + served.refused, taken[-1]) == (len(odd) + 1, b"last")
    assert real_bus.link_changes == before


async def test_whoever_follows_goes_on_after_messages_with_headers_that_are_no_text(real_bus: NatsBus) -> None:
    await real_bus.ensure_streams()
    subject, before = real_bus.subjects.fact_timer, real_bus.link_changes
    await write(f"nats://{real_bus.server.address}", *(headed(subject, headers) for headers in HEADERS))
    end = await real_bus.publish(subject, b"last")
    assert end == len(HEADERS) + 1
    found: list[Stored] = []
    gaps: list[Gap] = []
    follower = real_bus.follow(StreamName.FACTS, on_message=found.append, on_gap=gaps.append)
    await until(lambda: len(found) == end, deadline_s=20, what="all messages are delivered")
    await follower.stop()
    assert gaps == []
    assert [one.data for one in found] == [*[b"x"] * len(HEADERS), b"last"]
    assert real_bus.link_changes == before
