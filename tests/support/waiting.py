"""Waiting for a condition with a deadline; the only place in the tests that sleeps."""

import asyncio
import time
from collections.abc import Awaitable, Callable

_PAUSE_S = 0.005


async def until(condition: Callable[[], object], *, deadline_s: float, what: str) -> None:
    """Wait until ``condition()`` is true.

    Raises:
        AssertionError: It was not true within ``deadline_s``; says ``what`` was awaited.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not condition():
        if loop.time() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        await asyncio.sleep(_PAUSE_S)


async def until_true(condition: Callable[[], Awaitable[object]], *, deadline_s: float, what: str) -> None:
    """Wait until ``await condition()`` is true, as :func:`until` does.

    Raises:
        AssertionError: It was not true within ``deadline_s``; says ``what`` was awaited.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + deadline_s
    while not await condition():
        if loop.time() > end:
            raise AssertionError(f"not within {deadline_s} s: {what}")
        await asyncio.sleep(_PAUSE_S)


async def pause(seconds: float) -> None:
    """Let time go by, for a client that acts at a pace of its own."""
    await asyncio.sleep(seconds)


def block(seconds: float) -> None:
    """Hold the event loop, as code that computes too long does."""
    time.sleep(seconds)
