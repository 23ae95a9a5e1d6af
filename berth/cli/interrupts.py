"""Ctrl-C while a command computes, or reads a file or stdin, without the event loop."""

import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from berth.cli.cell import run
from berth.cli.output import INTERRUPTED, CommandError


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C ends the block at once.

    The event loop only cancels its task, which has no effect on work that awaits nothing.

    Raises:
        CommandError: Ctrl-C was pressed; without a line, since users know.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield  # only the main thread receives signals, and what a shell starts in the background ignores this one
        return
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
    except KeyboardInterrupt as error:
        raise CommandError(code=INTERRUPTED) from error
    finally:
        signal.signal(signal.SIGINT, before)


def compute(work: Callable[[], Coroutine[Any, Any, int | None]]) -> int:
    """Run a command that awaits nothing; otherwise as :func:`berth.cli.cell.run`."""

    async def interrupted_at_once() -> int | None:
        with interruptible():
            return await work()

    return run(interrupted_at_once)
