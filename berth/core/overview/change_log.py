"""Changes of a recording, merged as far as a limit of their size asks for."""

import itertools

import msgspec

from berth.core.overview.reading import merged
from berth.schemas.page.view import Change, View

GAP_MS = 100
"""Changes of so many milliseconds are one at least."""


class ChangeLog:
    """The first picture and the changes after it.

    Changes of the same span of time are one. Whenever all of them are larger than the limit, spans become twice as
    long, and older changes are merged accordingly.

    Args:
        bytes_max: Maximum size of all messages as JSON; a first picture alone may be larger.

    Attributes:
        gap_ms: Length of a span.
    """

    def __init__(self, bytes_max: int) -> None:
        self.gap_ms = GAP_MS
        self._bytes_max = bytes_max
        self._messages: list[Change | View] = []
        self._sizes: list[int] = []
        self._bytes = 0

    def is_apart(self, one_ms: int, other_ms: int) -> bool:
        """Whether two moments are in different spans."""
        return one_ms // self.gap_ms != other_ms // self.gap_ms

    def add(self, message: Change | View) -> None:
        """Add the next message."""
        last = self._messages[-1] if self._messages else None
        if last is not None and not self.is_apart(last.at_ms, message.at_ms):
            self._messages.pop()
            self._bytes -= self._sizes.pop()
            message = merged(last, message)
        self._append(message)
        while self._bytes > self._bytes_max and len(self._messages) > 1:
            self._halve()

    def messages(self) -> list[Change | View]:
        """All messages, ascending; the first one is a picture."""
        return list(self._messages)

    def _append(self, message: Change | View) -> None:
        self._messages.append(message)
        self._sizes.append(len(msgspec.json.encode(message)))
        self._bytes += self._sizes[-1]

    def _halve(self) -> None:
        """Make spans twice as long."""
        self.gap_ms *= 2
        before, self._messages, self._sizes, self._bytes = self._messages, [], [], 0
        for _, group in itertools.groupby(before, key=self._span):
            first, *others = group
            for one in others:
                first = merged(first, one)
            self._append(first)

    def _span(self, message: Change | View) -> int:
        return message.at_ms // self.gap_ms
