"""``nats request SUBJECT BODY`` of the tool ``nats``, for commands of the pages: a real request, its reply printed.

``python -m tests.support.nats_request [--inbox-prefix=PREFIX] request SUBJECT BODY``; the address is that of
``BERTH_NATS_URL``.
"""

import asyncio
import sys

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.config import bus_url_from_environment

_ANSWER_S = 10.0
_PREFIX = "--inbox-prefix="


async def main(inbox: str, subject: str, body: str) -> None:
    url = bus_url_from_environment() or "nats://127.0.0.1:4222"
    bus = await NatsBus.connect(url, "default", name="nats-request", inbox=inbox)
    try:
        reply = await bus.request(subject, body.encode(), timeout_s=_ANSWER_S)
    finally:
        await bus.close()
    sys.stdout.write(reply.decode() + "\n")


if __name__ == "__main__":
    words = sys.argv[1:]
    # The tool has the subjects of its answers directly below the prefix, this one below another token of its own.
    given = words.pop(0).removeprefix(_PREFIX).removesuffix(".r") if words[0].startswith(_PREFIX) else "_INBOX.random"
    assert words.pop(0) == "request", "of the tool nats only its command request is available here"
    asyncio.run(main(given, *words))
