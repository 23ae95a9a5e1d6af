"""Named fault points, at which a test kills the process.

There is a point before and after each write. In production the setting is empty and a point costs one comparison.
"""

import os
import signal
from typing import Final, Protocol, runtime_checkable

from berth.runtime.config import ConfigError


def _around(*writes: str) -> tuple[str, ...]:
    return tuple(f"{write}.{side}" for write in writes for side in ("before", "after"))


POINTS: Final = _around("lease", "epoch", "fact", "append", "status", "snapshot", "purge", "expire", "dead")
"""Points of the dispatcher."""
BINDER_POINTS: Final = _around("bind", "outcome")
VOLUME_POINTS: Final = _around("volume", "unbound")
"""Points of the binder at which it binds claims."""
RECOVERY_POINTS: Final = _around("leave", "mark")
"""Points of the binder at which it deletes and marks the pods of ranks that recover."""
_ALL: Final = POINTS + BINDER_POINTS + VOLUME_POINTS + RECOVERY_POINTS


@runtime_checkable
class HasFaultPoint(Protocol):
    """Settings of a service with fault points."""

    @property
    def fault_point(self) -> str:
        """``point:count``, or empty for none."""


class FaultPoints:
    """Kills the process when it passes a point for the n-th time.

    Args:
        setting: ``point:count``, such as ``append.after:3``; empty for never.

    Raises:
        ConfigError: The point does not exist, or the count is below 1.
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
        """Fault points of the settings of a service; none if it has no such setting.

        Raises:
            ConfigError: See the class.
        """
        return cls(config.fault_point if isinstance(config, HasFaultPoint) else "")

    def hit(self, point: str) -> None:
        """Pass a point; the process dies if the setting names it."""
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
