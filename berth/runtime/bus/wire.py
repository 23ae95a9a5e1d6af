"""Port of the parts of the bus to a connection; :mod:`berth.runtime.bus.client` implements it."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from berth.runtime.errors import FatalError

NO_RESPONDERS: Final = "503"  # status of the server's reply if a subject has no subscribers
_HEADER_FRAME_BYTES: Final = len("NATS/1.0\r\n\r\n")
_HEADER_LINE_BYTES: Final = len(": \r\n")


class Received(Protocol):
    """A received message."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class Listening(Protocol):
    """A subscription."""

    async def stop(self) -> None:
        """Unsubscribe; messages not yet delivered are dropped. Does not raise if the connection is down."""

    async def retire(self) -> None:
        """Unsubscribe at the server; messages that it has sent are still delivered. Does not raise either."""

    @property
    def waiting(self) -> int:
        """Number of messages received and not yet delivered."""


class Wire(Protocol):
    """A connection that reconnects by itself.

    ``epoch`` changes when the connection breaks and when it is restored.
    """

    @property
    def payload_limit_bytes(self) -> int:
        """Largest message that :meth:`write` sends, in bytes, headers included."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""

    @property
    def epoch(self) -> int:
        """Number of breaks and reconnections."""

    def answers(self) -> str:
        """A subject that nobody can guess, for answers of those whom this user may ask."""

    def deliveries(self) -> str:
        """A subject that nobody can guess, for what the server sends."""

    def fail(self, error: FatalError) -> None:
        """Report an error that must end the process."""

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Send a message.

        Raises:
            TransientError: Not connected; nothing is sent, now or later.
            OversizeError: Above ``payload_limit_bytes``; nothing was sent.
            PoisonError: The subject is invalid.
            FatalError: The connection is closed for good.
        """

    async def listen(self, subject: str, receive: Callable[[Received], None], *, queue: str = "") -> Listening:
        """Subscribe without limits; ``receive`` is called in order and must neither block nor raise."""

    async def round_trip(self, *, timeout_s: float) -> None:
        """Wait until the server has processed everything that was written before, and what it sent has arrived.

        What arrived may still wait for its ``receive``.

        Raises:
            TransientError: It did not within ``timeout_s``, or the connection broke.
        """


def is_no_responders(message: Received) -> bool:
    """Whether a reply is the status of the server for a subject without subscribers."""
    return not message.data and message.headers is not None and message.headers.get("Status") == NO_RESPONDERS


def size_bytes(data: bytes, headers: Mapping[str, str] | None) -> int:
    """Size of a message in bytes, as the server counts it."""
    if headers is None:
        return len(data)
    lines = sum(len(key.encode()) + len(value.encode()) + _HEADER_LINE_BYTES for key, value in headers.items())
    return len(data) + _HEADER_FRAME_BYTES + lines
