"""Envelope: kind and version outside, body as raw bytes inside.

Unknown kinds can be skipped and counted without touching the body; a known kind whose body is broken is poison.
"""

from typing import Final, TypeVar

import msgspec

from berth.schemas.message import Message

M = TypeVar("M", bound=Message)


class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Outer form of every stored or sent message: ``[kind, version, body]``."""

    kind: str
    version: int
    body: msgspec.Raw


class DecodeError(ValueError):
    """Bytes that are not the message they should be.

    Attributes:
        reason: What is wrong, with the field's path where one is known.
        kind: The envelope's kind, empty when the envelope itself is broken.
    """

    def __init__(self, reason: str, *, kind: str = "") -> None:
        super().__init__(f"{kind}: {reason}" if kind else reason)
        self.reason = reason
        self.kind = kind


_ENCODER: Final = msgspec.msgpack.Encoder()
_ENVELOPE: Final = msgspec.msgpack.Decoder(Envelope)
_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises: also a text that is not UTF-8, and nesting without end, come as errors that are not its own."""
_BODIES: Final[dict[type[Message], msgspec.msgpack.Decoder[Message]]] = {}


def encode(message: Message) -> bytes:
    """Wrap ``message`` in its envelope."""
    return _ENCODER.encode((message.KIND, message.VERSION, msgspec.Raw(_ENCODER.encode(message))))


def open_envelope(data: bytes | memoryview) -> Envelope:
    """Read the outer form only.

    Raises:
        DecodeError: The bytes are no envelope.
    """
    try:
        return _ENVELOPE.decode(data)
    except _BROKEN as error:
        raise DecodeError(f"not an envelope [kind, version, body]: {error}") from error


def body_of(envelope: Envelope, message: type[M]) -> M:
    """Decode the body as ``message``.

    Raises:
        DecodeError: Another kind, a newer version, or a body that does not fit.
    """
    if envelope.kind != message.KIND:
        raise DecodeError(f"kind is {envelope.kind!r}, expected {message.KIND!r}", kind=envelope.kind)
    if envelope.version != message.VERSION:
        raise DecodeError(f"version is {envelope.version}, this release reads {message.VERSION}", kind=envelope.kind)
    decoder = _BODIES.get(message)
    if decoder is None:
        decoder = _BODIES[message] = msgspec.msgpack.Decoder(message)
    try:
        return decoder.decode(envelope.body)  # type: ignore[return-value]  # the table maps a class to its own decoder
    except _BROKEN as error:
        raise DecodeError(str(error), kind=envelope.kind) from error


def decode(data: bytes | memoryview, message: type[M]) -> M:
    """Open the envelope and decode its body as ``message``.

    Raises:
        DecodeError: As :func:`open_envelope` and :func:`body_of`.
    """
    return body_of(open_envelope(data), message)
