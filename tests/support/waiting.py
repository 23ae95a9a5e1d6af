"""Waiting for a condition with a deadline; the only place in the tests that sleeps."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.04
"""Whoever asks a server all the time keeps those from working for whom it waits."""
SLACK: Final = 3.0
"""Deadlines are for a machine that is free for the test; on a busy one all things take longer, and none is wrong."""


async def until(condition: Callable[[], object], *, deadline_s: float, what: str) -> None:
    """Wait until ``condition()`` is true.

    Args:
        condition: What is waited for.
        deadline_s: How long it may take on a free machine; a busy one gets three times as long.
        what: Says what is waited for.

    Raises:
        AssertionError: It was not true in time; says ``what`` was awaited.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + SLACK * deadline_s
    while not condition():
        if loop.time() > end:
            raise AssertionError(f"not within {SLACK * deadline_s} s: {what}")
        await asyncio.sleep(_PAUSE_S)


async def until_true(condition: Callable[[], Awaitable[object]], *, deadline_s: float, what: str) -> None:
    """Wait until ``await condition()`` is true, as :func:`until` does.

    Raises:
        AssertionError: It was not true in time; says ``what`` was awaited.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + SLACK * deadline_s
    wait_s = _PAUSE_S
    while not await condition():
        if loop.time() > end:
            raise AssertionError(f"not within {SLACK * deadline_s} s: {what}")
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 1.2, _PAUSE_MAX_S)


async def pause(seconds: float) -> None:
    """Let time go by, for a client that acts at a pace of its own."""
    await asyncio.sleep(seconds)


def block(seconds: float) -> None:
    """Hold the event loop, as code that computes too long does."""
    time.sleep(seconds)
