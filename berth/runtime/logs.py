"""Logs: one line an event on stderr, JSON unless a person is looking.

An event is fixed lower-case words; values are keys with units (``took_ms=``). Lines of libraries, which use the
standard library's logging, come out in the same form.
"""

import logging
import sys
from typing import Final, TextIO

import structlog
from structlog.typing import FilteringBoundLogger, Processor

from berth.runtime.config import LogConfig

_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure(service: str, config: LogConfig, stream: TextIO | None = None) -> None:
    """Set the form and the level of all logs of this process, and bind ``service`` to every line.

    Args:
        service: Name of the process.
        config: Level and form.
        stream: Where the lines go; None means stderr.
    """
    out = sys.stderr if stream is None else stream
    as_json = config.form == "json" or (config.form == "auto" and not out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    traceback = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)  # locals may be large, or secret
    form: list[Processor] = (
        [structlog.processors.ExceptionRenderer(traceback), structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[*shared, *form],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[config.level]),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(service=service)
    _take_in_libraries(out, _LEVELS[config.level], shared, form)


def logger(**context: object) -> FilteringBoundLogger:
    """A logger that adds ``context`` to every line."""
    bound: FilteringBoundLogger = structlog.get_logger(**context)
    return bound


def _take_in_libraries(out: TextIO, level: int, shared: list[Processor], form: list[Processor]) -> None:
    """Give lines of the standard library's logging the same form; libraries speak from warning upwards."""
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *form],
        )
    )
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, structlog.stdlib.ProcessorFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(max(level, logging.WARNING))
