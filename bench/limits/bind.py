"""Limit of ``bind``: the requests themselves, one after another in as many hands, and nothing else."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence

import aiohttp

_CREATED = 201


async def seconds_for(
    url: str, tls: ssl.SSLContext, token: str, requests: Sequence[tuple[str, bytes]], *, at_once: int
) -> float:
    """Seconds that it takes to send all requests (path, body).

    Raises:
        RuntimeError: The server did not take one.
    """
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    connector = aiohttp.TCPConnector(ssl=tls, limit=at_once)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(_connect(session, url))
        left = iter(requests)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(_hand(session, url, left))
        return time.perf_counter() - start


async def _connect(session: aiohttp.ClientSession, url: str) -> None:
    async with session.get(f"{url}/version") as answer:
        await answer.read()


async def _hand(session: aiohttp.ClientSession, url: str, left: Iterator[tuple[str, bytes]]) -> None:
    for path, body in left:  # one iterator for all hands
        async with session.post(url + path, data=body) as answer:
            text = await answer.read()
            if answer.status != _CREATED:
                raise RuntimeError(f"{path}: {answer.status} {text[:200]!r}")
