"""The one base of all messages: policy fixed once.

Bodies are msgpack arrays (``array_like``): small, quick, and versioned by position. A field is appended at the end
with a default, never renamed, moved or retyped; then old bytes decode in new code and new bytes in old code.
"""

from typing import ClassVar

import msgspec


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A body that travels in an envelope.

    Messages are trees, never cycles, so the garbage collector need not look at them.

    ``KIND`` names the message for ever; ``VERSION`` rises only when the meaning of existing fields changes.
    """

    KIND: ClassVar[str] = ""
    VERSION: ClassVar[int] = 1


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A piece of a message, under the same rules of evolution."""
