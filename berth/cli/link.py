"""Whether the connection of a command to NATS is up: what users are told while it is not."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

_LOOK_S: Final = 0.5
LOST: Final = "the connection to NATS is lost; it is tried again, and nothing is seen until then"
BACK: Final = "the connection to NATS is back"


class Link(Protocol):
    """A connection."""

    @property
    def connected(self) -> bool:
        """Whether messages can be sent now."""


def link_lines(link: Link) -> list[str]:
    """A line about the connection while it is lost; none while it is up."""
    return [] if link.connected else [LOST]


class LinkWatch:
    """Tells users, once each, that the connection is lost, and that it is back.

    Args:
        link: The connection.
        tell: Prints a line.
    """

    def __init__(self, link: Link, tell: Callable[[str], None]) -> None:
        self._link = link
        self._tell = tell
        self._is_up = True
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        if self._link.connected != self._is_up:
            self._is_up = not self._is_up
            self._tell(BACK if self._is_up else LOST)
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def end(self) -> None:
        """Tell nothing more."""
        self._timer.cancel()
