"""Base classes of all messages, and decoders of types.

Bodies are msgpack arrays (``array_like``): small, fast, and versioned by position. A new field is appended with a
default; no field is renamed, moved or retyped. So new code decodes old bytes, and old code decodes new bytes. This
holds from the first release on that is supported, 0.5.0; nothing older is read.

Decoders are made by one thread at a time. msgspec examines a type when it first decodes it. Two threads that do so at
once see a half of what the other one has found, and the process ends with SIGSEGV (msgspec 0.22). So code that may run
on several threads takes its decoders from here, or makes them when its module is imported.
"""

import threading
from typing import Any, ClassVar, Final, TypeVar

import msgspec

T = TypeVar("T")
BASELINE: Final = 4
"""Version of the messages that every reader must know. Until release 0.5.0 their fields may change under it."""
BASELINE_RELEASE: Final = "0.5"
"""First release that reads it."""
_LOCK: Final = threading.Lock()
_JSON: Final[dict[type, msgspec.json.Decoder[Any]]] = {}
_MSGPACK: Final[dict[type, msgspec.msgpack.Decoder[Any]]] = {}


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Body of a message; it is sent and stored in an envelope.

    Messages are trees without cycles, so the garbage collector does not track them.
    """

    KIND: ClassVar[str] = ""
    """Name of the message. It is never given to another message."""
    VERSION: ClassVar[int] = 1
    """The version that this release writes and reads; :data:`BASELINE` of messages with ``MUST_READ``."""
    MUST_READ: ClassVar[bool] = False
    """A reader that meets another version stops: without the message, later ones would be misread."""


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Part of a message; fields are appended as in messages."""


def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Decoder of JSON; afterwards :func:`msgspec.convert` to this type is safe too."""
    found = _JSON.get(kind)
    if found is None:
        with _LOCK:
            found = _JSON.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """Decoder of MessagePack."""
    found = _MSGPACK.get(kind)
    if found is None:
        with _LOCK:
            found = _MSGPACK.setdefault(kind, msgspec.msgpack.Decoder(kind))
    return found
