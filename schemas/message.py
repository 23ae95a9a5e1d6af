"""Base classes of all messages.

Bodies are msgpack arrays (``array_like``): small, fast, and versioned by position. A new field is appended with a
default; no field is renamed, moved or retyped. So new code decodes old bytes, and old code decodes new bytes.
"""

from typing import ClassVar

import msgspec


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Body of a message; it is sent and stored in an envelope.

    Messages are trees without cycles, so the garbage collector does not track them.
    """

    KIND: ClassVar[str] = ""
    """Name of the message. It is never given to another message."""
    VERSION: ClassVar[int] = 1
    """Newest version that this release reads; it reads all versions from 1 on. Only messages with ``MUST_READ`` get
    more."""
    MUST_READ: ClassVar[bool] = False
    """A reader that does not know the version stops: without the message, later ones would be misread."""


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Part of a message; fields are appended as in messages."""
