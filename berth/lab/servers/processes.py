"""Processes on this machine that run while a block does."""

from abc import ABC, abstractmethod
from typing import Self


class LocalProcesses(ABC):
    """Processes that start and end together.

    As an async context manager it starts them, and stops them at the end. If they do not all start, those that did are
    stopped too.
    """

    @abstractmethod
    async def start(self) -> None:
        """Start those that do not run, and wait until they are ready."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop those that run."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
