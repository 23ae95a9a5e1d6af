"""Order and number of requests that are carried out at the same time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager


@contextmanager
def counted(requests: Counter[str], identity: str) -> Iterator[None]:
    """Count a request of an identity while the block runs; who has none is not in the table."""
    requests[identity] += 1
    try:
        yield
    finally:
        requests[identity] -= 1
        if not requests[identity]:
            del requests[identity]


class Turns:
    """Lets requests that have a key in common follow one another, in the order in which they came."""

    def __init__(self) -> None:
        self._last: dict[Hashable, asyncio.Future[None]] = {}
        """End of the last request with a key."""

    @asynccontextmanager
    async def of(self, *keys: Hashable) -> AsyncIterator[None]:
        """Wait for the end of all earlier requests with one of the keys.

        The place in the order is taken before anything is waited for. Two requests cannot wait for each other: each
        waits for earlier ones alone.
        """
        own = asyncio.get_running_loop().create_future()
        earlier = {self._last[key] for key in keys if key in self._last}
        self._last.update(dict.fromkeys(keys, own))
        try:
            if earlier:
                await asyncio.wait(earlier)
            yield
        finally:
            own.set_result(None)
            for key in keys:
                if self._last.get(key) is own:
                    del self._last[key]
