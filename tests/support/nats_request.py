"""``nats request SUBJECT BODY`` of the tool ``nats``, for commands of the pages: a real request, its reply printed.

``python -m tests.support.nats_request request SUBJECT BODY``; the address is that of ``BERTH_NATS_URL``.
"""

import asyncio
import sys

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import bus_url_from_environment

_ANSWER_S = 10.0


async def main(subject: str, body: str) -> None:
    bus = await NatsBus.connect(bus_url_from_environment() or "nats://127.0.0.1:4222", "default", name="nats-request")
    try:
        reply = await bus.request(subject, body.encode(), timeout_s=_ANSWER_S)
    finally:
        await bus.close()
    sys.stdout.write(reply.decode() + "\n")


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    assert verb == "request", f"nats {verb} is not available here"
    asyncio.run(main(*words))
