"""How much what is kept by shape may take: who submits jobs may make one shape as large as ten thousand others."""

from collections.abc import MutableMapping
from typing import Any, Final

import msgspec

from berth.schemas.offers import Shape

_BYTES_MAX: Final = 24_000_000
"""Of encoded shapes, which take two to ten times as many in memory, and of what is kept for each: enough for the most
jobs that wait in a namespace, where each has a shape of its own. Fewer would be looked for in vain at each change."""
_OF_A_SHAPE: Final = 256
"""Bytes that are kept for a shape in any case."""
_OF_A_CLASS: Final = 9
"""Bytes that are kept for each class of nodes: its reason, and that in a list."""


class ShapeMemory:
    """Counts what is kept by shape, and forgets all of it when that is too much.

    Args:
        kept: Where it is kept.
    """

    def __init__(self, *kept: MutableMapping[Shape, Any]) -> None:
        self._kept = kept
        self._bytes = 0
        self._encoder = msgspec.msgpack.Encoder()

    def count(self, shape: Shape, classes: int) -> None:
        """Count something that is about to be kept of a shape.

        Args:
            shape: The shape.
            classes: Classes of nodes for each of which something is kept.
        """
        size = len(self._encoder.encode(shape)) + _OF_A_SHAPE + _OF_A_CLASS * classes
        self._bytes += size
        if self._bytes > _BYTES_MAX:
            self._bytes = size
            for each in self._kept:
                each.clear()
