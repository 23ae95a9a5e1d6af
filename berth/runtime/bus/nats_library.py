"""The client library of NATS, such that no message of somebody else ends a connection. Only this module imports it.

Whoever may send a request chooses the bytes of its reply subject and of its headers. The server takes any bytes but
blanks there; the library decodes them in the loop that reads the connection, which ends where it cannot, and it takes
other signs for blanks than the server. Nothing is read then until the server does not answer pings any more.
"""

import re
from typing import Final

from berth.runtime.optional_imports import without

with without("aiohttp", "multidict"):  # for WebSocket; see NatsConnection.open
    from nats import errors
    from nats.aio import transport
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.protocol import parser

__all__ = ["Msg", "SturdyClient", "Subscription", "errors", "transport"]

_TOKEN: Final = rb"[^ \t\r\n]+"
parser.MSG_RE = re.compile(rb"\AMSG[ \t]+(%b)[ \t]+(%b)[ \t]+((%b)[ \t]+)?(\d+)\r\n" % (_TOKEN, _TOKEN, _TOKEN))
parser.HMSG_RE = re.compile(
    rb"\AHMSG[ \t]+(%b)[ \t]+(%b)[ \t]+((%b)[ \t]+)?(\d+)[ \t]+(\d+)\r\n" % (_TOKEN, _TOKEN, _TOKEN)
)
"""Instead of patterns in which a vertical tab or a form feed ends a subject."""


class SturdyClient(Client):
    """A client that goes on after a message that it cannot decode."""

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Take a message; what is no text in its subjects is replaced."""
        await super()._process_msg(sid, _as_text(subject), _as_text(reply), data, headers)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        """Headers of a message; None also if they cannot be read."""
        try:
            return await super()._process_headers(headers)
        except (UnicodeDecodeError, IndexError):
            return None


def _as_text(subject: bytes) -> bytes:
    return subject if subject.isascii() else subject.decode(errors="replace").encode()
