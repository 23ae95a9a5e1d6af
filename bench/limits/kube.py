"""Limits of ``kube``: the same pods created and bound by as many hands, beside as many watches, and nothing else.

Pods with equal counts on a node are bound one after another: the next when the device plug-in has served the last one.
"""

import asyncio
import json
import ssl
import sys
from collections.abc import Iterator, Mapping, Sequence

import aiohttp

_CREATED = 201


async def make_and_bind(
    session: aiohttp.ClientSession, requests: Sequence[Sequence[tuple[str, bytes]]], *, at_once: int
) -> None:
    """Send groups of requests (URL, body): those of one group one after the other, as many groups at once.

    Raises:
        RuntimeError: The server did not take one.
    """
    left = iter(requests)
    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(_hand(session, left))


async def _hand(session: aiohttp.ClientSession, left: Iterator[Sequence[tuple[str, bytes]]]) -> None:
    for parts in left:  # one iterator for all hands
        for url, body in parts:
            async with session.post(url, data=body) as answer:
                text = await answer.read()
                if answer.status != _CREATED:
                    raise RuntimeError(f"{url}: {answer.status} {text[:200]!r}")


class Turns:
    """Bindings that wait for their turn on a node; a handler of changes of pods.

    Args:
        waiting: Bindings (name of the pod, URL, body) by node.
    """

    def __init__(self, waiting: Mapping[str, Sequence[tuple[str, str, bytes]]]) -> None:
        self._left = {node: iter(bindings) for node, bindings in waiting.items()}
        self._next: dict[str, asyncio.Event] = {
            name: asyncio.Event() for found in waiting.values() for name, *_ in found
        }

    def served(self, name: str) -> None:
        """Take that a pod has its chips."""
        if name in self._next:
            self._next[name].set()

    async def bind(self, session: aiohttp.ClientSession) -> None:
        """Send all bindings."""
        async with asyncio.TaskGroup() as group:
            for left in self._left.values():
                group.create_task(self._bind(session, left))

    async def _bind(self, session: aiohttp.ClientSession, left: Iterator[tuple[str, str, bytes]]) -> None:
        for name, url, body in left:
            await _hand(session, iter([[(url, body)]]))
            await self._next[name].wait()


async def _watch(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(url, params={"watch": "true"}) as answer:
        async for _ in answer.content.iter_any():
            pass


async def _watch_all(ca_file: str, token: str, urls: Sequence[str]) -> None:
    """Watch collections until this process is killed."""
    tls = ssl.create_default_context(cafile=ca_file)
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    timeout = aiohttp.ClientTimeout(total=None)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=tls, limit=0)
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout) as session,
        asyncio.TaskGroup() as group,
    ):
        for url in urls:
            group.create_task(_watch(session, url))


if __name__ == "__main__":
    asyncio.run(_watch_all(*json.loads(sys.argv[1])))
