"""Named fault points: places where a test lets the process die.

A point stands before and after each write. In production the setting is empty and a point costs one comparison.
"""

import os
import signal
from typing import Final

from berth.runtime.config import ConfigError

POINTS: Final = tuple(
    f"{write}.{side}"
    for write in ("lease", "epoch", "fact", "append", "status", "snapshot", "purge", "dead")
    for side in ("before", "after")
)


class FaultPoints:
    """Kills the process at a point's n-th passing.

    Args:
        setting: ``point:count``, such as ``append.after:3``; empty for never.

    Raises:
        ConfigError: No such point, or a count below 1.
    """

    def __init__(self, setting: str = "") -> None:
        self._point, _, count = setting.partition(":")
        if self._point and (self._point not in POINTS or not count.isdigit() or int(count) < 1):
            raise ConfigError(
                field="fault_point", value=setting, expected=f"point:count with a point of {', '.join(POINTS)}"
            )
        self._left = int(count or 0)

    def hit(self, point: str) -> None:
        """Pass a point."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
