"""What a program knows of the stream of events, and the error when that is not so any more."""

from typing import Final, NamedTuple

from berth.formats.shortened import shortened
from berth.runtime.bus.port import GapReason
from berth.services.api.request_errors import RequestError

_PARTS: Final = 3
_DIGITS_MAX: Final = 18
_ANEW: Final = "read the events anew, and ignore ids that were seen"


class Mark(NamedTuple):
    """A message that the stream had: which stream, its sequence, and when it was stored; 0 if that is unknown."""

    created: str
    position: int
    at_ms: int

    def text(self) -> str:
        """As programs get it."""
        return f"{self.created}/{self.position}/{self.at_ms}"

    @classmethod
    def of(cls, text: str) -> "Mark":
        """The inverse of :meth:`text`.

        Raises:
            RequestError: The text is no mark.
        """
        parts = text.rsplit("/", _PARTS - 1)
        numbers = parts[1:]
        if len(parts) != _PARTS or not all(
            one.isascii() and one.isdecimal() and len(one) <= _DIGITS_MAX for one in numbers
        ):
            raise RequestError("mark", shortened(text), "the mark of a reply")
        return cls(parts[0], *map(int, numbers))


class EventsLostError(RequestError):
    """A request that goes on where the stream is not any more what it was."""

    def __init__(self, field: str, value: object, expected: str, reason: GapReason) -> None:
        super().__init__(field, str(value), f"{expected}: {reason}; {_ANEW}", code="events-lost")
