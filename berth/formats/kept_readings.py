"""What was read of the last texts, so that equal ones are read once."""

from typing import Final, Generic, TypeVar

T = TypeVar("T")
_BYTES_MAX: Final = 16_000_000


class KeptReadings(Generic[T]):
    """What was read of texts; all is forgotten when these are too many.

    Args:
        entries_max: Most texts.
        bytes_max: Most bytes of all texts: who makes objects may make one as large as a thousand others.
    """

    def __init__(self, entries_max: int, bytes_max: int = _BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: dict[bytes, T] = {}

    def get(self, text: bytes) -> T | None:
        """What was read of a text; None if that is not known."""
        return self._known.get(text)

    def put(self, text: bytes, reading: T) -> T:
        """Keep what was read of a text that was not known; returns it."""
        self._bytes += len(text)
        if len(self._known) >= self._entries_max or self._bytes > self._bytes_max:
            self._known.clear()
            self._bytes = len(text)
        self._known[text] = reading
        return reading
