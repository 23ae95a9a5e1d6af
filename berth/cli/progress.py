"""Lines on a terminal that show what a command waits for, drawn again in place; nothing without a terminal."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from berth.cli.output import is_terminal, line_width, progress_console
from berth.cli.tables import text_of, wrapped

if TYPE_CHECKING:
    from rich.live import Live

_PAUSE_S: Final = 0.2
"""Lines are drawn at most this often."""


class Progress:
    """Lines on stderr, which are removed at the end.

    Args:
        now_s: A clock that never goes back, in seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._live: Live | None = None
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        if is_terminal(of_stderr=True):
            from rich.live import Live  # noqa: PLC0415  # takes time that commands without a terminal do not need

            self._live = Live(
                console=progress_console(),
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Remove the lines; no others are drawn after that."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def draw(self, lines: Callable[[], Iterable[str]]) -> None:
        """Draw lines, unless some were drawn just before.

        Args:
            lines: Called only if they are drawn.
        """
        now_s = self._now_s()
        if self._live is None or now_s - self._drawn_s < _PAUSE_S:
            return
        from rich.console import Group  # noqa: PLC0415  # as above

        self._drawn_s = now_s
        width = line_width(self._live.console)
        self._live.update(Group(*(part for line in lines() for part in wrapped(text_of(line), width))), refresh=True)
