"""Processes that run while a block does, also where some do not start."""

import asyncio

import pytest

from berth.lab.servers.processes import LocalProcesses
from berth.runtime.errors import FatalError


class Pair(LocalProcesses):
    """Two processes; the second one starts when told, or fails."""

    def __init__(self, *, error: Exception | None = None) -> None:
        self.running: list[str] = []
        self.may_start = asyncio.Event()
        self.is_waiting = asyncio.Event()
        self._error = error

    async def start(self) -> None:
        self.running.append("first")
        self.is_waiting.set()
        await self.may_start.wait()
        if self._error is not None:
            raise self._error
        self.running.append("second")

    async def stop(self) -> None:
        self.running.clear()


async def test_they_run_inside_the_block_only() -> None:
    pair = Pair()
    pair.may_start.set()
    async with pair as entered:
        assert entered is pair
        assert pair.running == ["first", "second"]
    assert pair.running == []


async def test_those_that_started_are_stopped_if_another_one_does_not_start() -> None:
    pair = Pair(error=FatalError("the port is in use"))
    pair.may_start.set()
    with pytest.raises(FatalError, match="the port is in use"):
        async with pair:
            pass
    assert pair.running == []


async def test_those_that_started_are_stopped_if_the_start_is_cancelled() -> None:
    pair = Pair()

    async def enter() -> None:
        async with pair:
            pass

    async with asyncio.TaskGroup() as group:
        entering = group.create_task(enter())
        await pair.is_waiting.wait()
        assert pair.running == ["first"]
        entering.cancel()
    assert pair.running == []
