"""Named fault points: places where a test lets the process die.

A point stands before and after each write. In production the setting is empty and a point costs one comparison.
"""

import os
import signal
from typing import Final, Protocol, runtime_checkable

from berth.runtime.config import ConfigError


def _around(*writes: str) -> tuple[str, ...]:
    return tuple(f"{write}.{side}" for write in writes for side in ("before", "after"))


POINTS: Final = _around("lease", "epoch", "fact", "append", "status", "snapshot", "purge", "dead")
"""Of the dispatcher."""
BINDER_POINTS: Final = _around("bind", "outcome")
_ALL: Final = POINTS + BINDER_POINTS


@runtime_checkable
class HasFaultPoint(Protocol):
    """Settings of a service that has fault points."""

    @property
    def fault_point(self) -> str:
        """``point:count``, or empty."""


class FaultPoints:
    """Kills the process at a point's n-th passing.

    Args:
        setting: ``point:count``, such as ``append.after:3``; empty for never.

    Raises:
        ConfigError: No such point, or a count below 1.
    """

    def __init__(self, setting: str = "") -> None:
        self._point, _, count = setting.partition(":")
        if self._point and (self._point not in _ALL or not count.isdigit() or int(count) < 1):
            raise ConfigError(
                field="fault_point", value=setting, expected=f"point:count with a point of {', '.join(_ALL)}"
            )
        self._left = int(count or 0)

    @classmethod
    def of(cls, config: object) -> "FaultPoints":
        """Fault points as the settings of a service name them; none where the service has no such setting.

        Raises:
            ConfigError: As the class.
        """
        return cls(config.fault_point if isinstance(config, HasFaultPoint) else "")

    def hit(self, point: str) -> None:
        """Pass a point."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
