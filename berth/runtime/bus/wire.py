"""What the parts of the bus need from a connection; :mod:`berth.runtime.bus.client` provides it."""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from berth.runtime.errors import FatalError

NO_RESPONDERS: Final = "503"  # status of the server's own reply when nobody listens
_HEADER_FRAME_BYTES: Final = len("NATS/1.0\r\n\r\n")
_HEADER_LINE_BYTES: Final = len(": \r\n")


class Received(Protocol):
    """A message as it came in."""

    subject: str
    reply: str
    data: bytes
    headers: dict[str, str] | None


class Listening(Protocol):
    """A subscription."""

    async def stop(self) -> None:
        """End it; messages not yet handed over are dropped. Never raises for a connection that is away."""

    async def retire(self) -> None:
        """Ask the server to send no more; what it has sent is still handed over. Raises as little as ``stop``."""

    @property
    def waiting(self) -> int:
        """Messages that have come and are not yet handed over."""


class Wire(Protocol):
    """A connection that repairs itself.

    ``epoch`` changes whenever the connection breaks and whenever it is back.
    """

    @property
    def payload_limit_bytes(self) -> int:
        """Largest size of a message, headers included, that :meth:`write` sends."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""

    @property
    def epoch(self) -> int:
        """Count of breaks and repairs."""

    def unique(self) -> str:
        """A subject for replies that nobody else uses."""

    def fail(self, error: FatalError) -> None:
        """Say that the process must end."""

    async def write(self, subject: str, data: bytes, reply: str = "", headers: Mapping[str, str] | None = None) -> None:
        """Send a message.

        Raises:
            TransientError: Not connected; nothing was or will be sent.
            OversizeError: Above ``payload_limit_bytes``; nothing was sent.
            PoisonError: The subject is none.
            FatalError: The connection is closed for good.
        """

    async def listen(self, subject: str, receive: Callable[[Received], None], *, queue: str = "") -> Listening:
        """Subscribe without limits; ``receive`` is called in order and must neither block nor raise."""


def is_nobody(message: Received) -> bool:
    """Whether a reply is the server's word that nobody listens."""
    return not message.data and message.headers is not None and message.headers.get("Status") == NO_RESPONDERS


def size_bytes(data: bytes, headers: Mapping[str, str] | None) -> int:
    """Size of a message as the server counts it."""
    if headers is None:
        return len(data)
    lines = sum(len(key.encode()) + len(value.encode()) + _HEADER_LINE_BYTES for key, value in headers.items())
    return len(data) + _HEADER_FRAME_BYTES + lines
