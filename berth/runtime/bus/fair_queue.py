"""Queues of several callers that take turns: however many entries one has, those of others come between them."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Entries of callers: those of one caller in their order, the callers in turn."""

    def __init__(self) -> None:
        self._of: dict[str, OrderedDict[int, T]] = {}
        """Entries of each caller that has some, by ticket; the caller whose turn is next comes first."""
        self._held: dict[str, OrderedDict[int, T]] = {}
        """Entries of callers that take no turns."""
        self._count = 0
        self._tickets = 0

    def __len__(self) -> int:
        return self._count

    def count_of(self, caller: str) -> int:
        """Number of entries of a caller."""
        return len(self._entries(caller))

    def first_of(self, caller: str) -> T | None:
        """Next entry of a caller; None without one."""
        return next(iter(self._entries(caller).values()), None)

    def _entries(self, caller: str) -> Mapping[int, T]:
        return self._held[caller] if caller in self._held else self._of.get(caller, {})

    @property
    def callers(self) -> Collection[str]:
        """Callers that take turns and have an entry."""
        return self._of.keys()

    @property
    def held(self) -> Collection[str]:
        """Callers that take no turns."""
        return self._held.keys()

    def hold(self, caller: str) -> None:
        """Let a caller take no turns until :meth:`release`; its entries stay in their order."""
        self._held.setdefault(caller, self._of.pop(caller, OrderedDict()))

    def release(self, caller: str) -> None:
        """Let a caller take turns again, behind the others; nothing happens if it does."""
        entries = self._held.pop(caller, None)
        if entries:
            self._of[caller] = entries

    def append(self, caller: str, entry: T) -> int:
        """Add an entry behind those of its caller; returns its ticket, which grows."""
        entries = self._held.get(caller)
        if entries is None:
            entries = self._of.setdefault(caller, OrderedDict())
        self._tickets += 1
        entries[self._tickets] = entry
        self._count += 1
        return self._tickets

    def replace(self, caller: str, ticket: int, entry: T) -> None:
        """Put another entry in the place of one that waits."""
        (self._held if caller in self._held else self._of)[caller][ticket] = entry

    def discard(self, caller: str, ticket: int) -> None:
        """Take out an entry that waits."""
        queues = self._held if caller in self._held else self._of
        del queues[caller][ticket]
        self._count -= 1
        if not queues[caller]:
            del queues[caller]

    def popleft(self) -> T:
        """Take the next entry of a caller that is not held; its caller goes to the end.

        Raises:
            IndexError: The queue has no entry of a caller that is not held.
        """
        caller = next(iter(self._of), None)
        if caller is None:
            raise IndexError("no entry")
        entries = self._of.pop(caller)
        _, found = entries.popitem(last=False)
        if entries:
            self._of[caller] = entries
        self._count -= 1
        return found


class FairTurns:
    """Lets one caller work at a time, and the callers in turn."""

    def __init__(self) -> None:
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._is_taken = False

    @asynccontextmanager
    async def of(self, caller: str) -> AsyncIterator[None]:
        """Wait for the turn of a caller; it lasts as long as the block.

        Raises:
            CancelledError: The caller gave up.
        """
        if self._is_taken:
            own: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(caller, own)
            try:
                await own
            except asyncio.CancelledError:
                if own.done() and not own.cancelled():
                    self._pass_on()  # the turn came, and nobody takes it
                raise
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        """Give the turn to the next caller that still waits."""
        self._is_taken = False
        while self._waiting:
            found = self._waiting.popleft()
            if not found.done():
                self._is_taken = True
                found.set_result(None)
                return
