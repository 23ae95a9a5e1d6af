"""Whether the connection of a command to NATS is up: what it reports while it is not."""

import asyncio
from collections.abc import Callable
from typing import Final

from berth.runtime.bus.port import Bus

_LOOK_S: Final = 0.5
LOST: Final = "the connection to NATS is lost; it is tried again, and nothing is seen until then"
BACK: Final = "the connection to NATS is back"


def link_lines(bus: Bus) -> list[str]:
    """A line about the connection while it is lost; none while it is up."""
    return [] if bus.connected else [LOST]


class LinkWatch:
    """Reports, once each, that the connection is lost, and that it is back.

    Args:
        bus: The connection.
        report: Prints a line.
    """

    def __init__(self, bus: Bus, report: Callable[[str], None]) -> None:
        self._bus = bus
        self._report = report
        self._is_up = True
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._report_change)

    def _report_change(self) -> None:
        if self._bus.connected != self._is_up:
            self._is_up = not self._is_up
            self._report(BACK if self._is_up else LOST)
        self._timer = asyncio.get_running_loop().call_later(_LOOK_S, self._report_change)

    def end(self) -> None:
        """Report nothing more."""
        self._timer.cancel()
