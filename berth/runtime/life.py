"""Life of a process: signals, a bounded end, and one exit code for each way to end.

0: asked to stop, and everything in hand was done. 1: could not go on (a fault, a lost bus, a service that ended
unasked, work that outlived the grace). 2: a wrong setting. The reason is printed before the process ends.
"""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import uvloop

from berth.runtime import logs
from berth.runtime.errors import FatalError

Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
"""What a process does until the event is set."""

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OK: Final = 0
FAILED: Final = 1


def run(work: Work) -> int:
    """Exit code of ``work``, run to its end in an event loop of its own.

    SIGTERM and SIGINT set the event; how long ``work`` may take then is its own affair (see :func:`supervise`).
    Errors are printed here. The signals stay blocked afterwards, so that one which comes late does not change the
    exit code: the process is to end at once.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_guarded(work))


async def supervise(
    serve: Work, *, stop: asyncio.Event, grace_s: float, guards: Iterable[Coroutine[Any, Any, None]] = ()
) -> None:
    """Run ``serve`` until ``stop`` is set and it has done what it had in hand.

    Args:
        serve: Serves until the event that it gets is set, then finishes and returns.
        stop: Set to ask for the end.
        grace_s: Seconds that the work in hand may take once ``stop`` is set.
        guards: Run beside it; each ends only by raising, as when a connection is lost for good.

    Raises:
        FatalError: ``serve`` ended unasked, or did not end within the grace.
    """
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(stop), name="serve")
        helpers = [group.create_task(guard, name="guard") for guard in guards]
        helpers.append(asked := group.create_task(_wait(stop), name="wait for stop"))
        await asyncio.wait({serving, asked}, return_when=asyncio.FIRST_COMPLETED)
        late: set[asyncio.Task[None]] = set()
        if not serving.done():
            _, late = await asyncio.wait({serving}, timeout=grace_s)
        for helper in helpers:
            helper.cancel()
        if late:
            raise FatalError(f"work in hand did not end within {grace_s:g} s")
        if not stop.is_set() and (serving.cancelled() or serving.exception() is None):
            raise FatalError("the service ended without being asked to")


async def _wait(stop: asyncio.Event) -> None:
    await stop.wait()


async def _guarded(work: Work) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        await work(stop)
        code = OK
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001  # the last door: every error is printed and becomes an exit code
        code = report(error)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    return code


def report(error: Exception) -> int:
    """Exit code for ``error``, which is logged: the reason of a fatal one, everything about an unforeseen one."""
    log = logs.logger()
    code = FAILED
    for leaf in _leaves(error):
        if isinstance(leaf, FatalError):
            log.error("cannot go on", reason=str(leaf), exit_code=leaf.exit_code)
            code = max(code, leaf.exit_code)
        else:
            log.error("unforeseen error", reason=repr(leaf), exc_info=leaf)
    return code


def _leaves(error: Exception) -> list[Exception]:
    if isinstance(error, ExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
