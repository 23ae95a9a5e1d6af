"""Logs: one line for each event on stderr, as text on a terminal and as JSON elsewhere.

An event is a fixed lower-case phrase; values are keys with units (``took_ms=``). A service gets a logger with its name,
see :func:`logger_of`. Code that also runs outside of a service, such as the bus, uses :data:`DEFAULT_LOG` by default;
the command line sets its form, see :func:`configure`. Lines of libraries, which use the logging of the standard
library, have the same form. Texts from outside are escaped: none of them forges a line or is obeyed by a terminal.
"""

import logging
import sys
from io import StringIO
from typing import Final, TextIO, TypeAlias

from berth.formats.shown import shown, shown_json
from berth.runtime.clock import Clock
from berth.runtime.config import LogConfig
from berth.runtime.optional_imports import without

with without("rich"):  # for tracebacks in colour
    import structlog
    from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor

Logger: TypeAlias = FilteringBoundLogger
DEFAULT_LOG: Final[Logger] = structlog.get_logger()
"""Has no context and no state: each line uses the form that :func:`configure` set."""
_OF_EXCEPTIONS: Final = ("exc_info", "stack_info")
LIMIT_PERIOD_S: Final = 60.0
"""Time for which :class:`LogLimit` counts lines."""
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def is_logged(count: int) -> bool:
    """Whether the log says that something was so for the ``count``-th time: the 1st, 2nd, 4th and so on.

    Who makes it happen again and again fills no log.
    """
    return count & (count - 1) == 0


class LogLimit:
    """Says which lines of a kind are written, where somebody else decides how often there is a reason for one.

    Some are in each period, with the number of those that were left out.

    Args:
        clock: Of the process.
        lines_max: Most lines in a period of :data:`LIMIT_PERIOD_S` seconds, which begins with a line.
    """

    def __init__(self, clock: Clock, *, lines_max: int = 10) -> None:
        self._clock = clock
        self._lines_max = lines_max
        self._began_s = -LIMIT_PERIOD_S
        self._lines = 0
        self._left_out = 0

    def take(self) -> int:
        """For how many occurrences a line stands, with those that had none since the last line; 0: it is left out."""
        now_s = self._clock.monotonic_s()
        if now_s - self._began_s >= LIMIT_PERIOD_S:
            self._began_s, self._lines = now_s, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return 0
        self._lines += 1
        count, self._left_out = 1 + self._left_out, 0
        return count


def logger_of(service: str, config: LogConfig, stream: TextIO | None = None) -> Logger:
    """Create a logger with its own form that adds ``service`` to every line.

    Args:
        service: Name of the service.
        config: Level and form.
        stream: Destination; None means stderr.
    """
    out = sys.stderr if stream is None else stream
    made: Logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[*_preparing(service), *_rendering(config, out)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
    )
    bound: Logger = made.bind()
    return bound


def configure(service: str, config: LogConfig, stream: TextIO | None = None) -> None:
    """Set the form and the level of :data:`DEFAULT_LOG` and of libraries, for a process that is not a service.

    Args:
        service: Name of the process, added to every line.
        config: Level and form.
        stream: Destination; None means stderr.
    """
    out = sys.stderr if stream is None else stream
    structlog.configure(
        processors=[*_preparing(service), *_rendering(config, out)],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    route_libraries(service, config, out)


def route_libraries(service: str, config: LogConfig, stream: TextIO | None = None) -> None:
    """Give lines of the standard library's logging the same form, at level warning and above.

    That logging is global to the process: the entry of a process calls this, a service does not.

    Args:
        service: Name of the process, added to every line.
        config: Level and form.
        stream: Destination; None means stderr.
    """
    out = sys.stderr if stream is None else stream
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_preparing(service), structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(config, out)],
        )
    )
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, structlog.stdlib.ProcessorFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(_LEVELS[config.level], logging.WARNING))


def _preparing(service: str) -> list[Processor]:
    """Processors that add the name of the service, the level and the time."""

    def add_service(_: object, __: str, event: EventDict) -> EventDict:
        event.setdefault("service", service)
        return event

    return [add_service, structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True)]


def _rendering(config: LogConfig, out: TextIO) -> list[Processor]:
    """Processors that render a line."""
    if config.form == "json" or (config.form == "auto" and not out.isatty()):
        traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # may be large or secret
        return [
            structlog.processors.ExceptionRenderer(traceback),
            structlog.processors.JSONRenderer(default=str),
            _escaped_json,
        ]
    return [_escaped, structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=_write_traceback)]


def _escaped_json(_: object, __: str, line: object) -> str:
    """JSON of a line, which the renderer leaves with one control character, DEL."""
    return shown_json(str(line))


def _escaped(_: object, __: str, event: EventDict) -> EventDict:
    """The values as printable texts of one line each, but for numbers and what renders an exception."""
    for key, value in event.items():
        if key not in _OF_EXCEPTIONS and not isinstance(value, int | float | None):
            event[key] = shown(value if isinstance(value, str) else repr(value))
    return event


def _write_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback with each line indented, so that no message of an exception looks like a line of the log."""
    written = StringIO()
    structlog.dev.plain_traceback(written, exc_info)
    out.writelines(f"\n  {shown(line)}" for line in written.getvalue().splitlines() if line)
