"""Logs of simulated processes: the last lines of each, with the virtual time."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Self

_KEPT: Final = 400


class SimLog:
    """Logger of one process; as much of :data:`berth.runtime.logs.Logger` as services use.

    Attributes:
        lines: The last lines.
        said: How often each event was said at each level.
    """

    def __init__(self, time_s: Callable[[], float], name: str) -> None:
        self.lines: deque[tuple[float, str, str, str, dict[str, object]]] = deque(maxlen=_KEPT)
        self.said: Counter[tuple[str, str]] = Counter()
        self._time_s = time_s
        self._name = name

    def bind(self, **_: object) -> Self:
        return self

    def debug(self, event: str, **values: object) -> None:
        """Not kept: there are too many."""

    def info(self, event: str, **values: object) -> None:
        self._add("info", event, values)

    def warning(self, event: str, **values: object) -> None:
        self._add("warning", event, values)

    def error(self, event: str, **values: object) -> None:
        self._add("error", event, values)

    def _add(self, level: str, event: str, values: dict[str, object]) -> None:
        self.said[level, event] += 1
        self.lines.append((self._time_s(), self._name, level, event, values))


def told(lines: "deque[tuple[float, str, str, str, dict[str, object]]]", last: int = 40) -> list[str]:
    """Lines as text."""
    return [
        f"{at_s:10.3f} {name} {level}: {event} {' '.join(f'{key}={value!s:.300}' for key, value in values.items())}"
        for at_s, name, level, event, values in list(lines)[-last:]
    ]
