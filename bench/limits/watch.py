"""Limit of ``watch``: both lists in one answer each, decoded, and nothing else.

A program of its own: ``python -m bench.limits.watch URL CA_FILE TOKEN`` prints what it measured as JSON.
"""

import asyncio
import gc
import ssl
import sys
import time
from pathlib import Path

import aiohttp
import msgspec
import uvloop

from berth.formats.kubernetes.objects import Listed, Node, Pod

PATHS = {"/api/v1/nodes": Listed[Node], "/api/v1/pods": Listed[Pod]}


class Measured(msgspec.Struct, frozen=True):
    """What a process found: seconds from start to synced, objects, and its resident memory afterwards."""

    took_s: float
    nodes: int
    pods: int
    kept_mb: float
    peak_mb: float


def memory_mb() -> tuple[float, float]:
    """Resident memory of this process, now and at most."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    found = {
        name: int(value.split()[0]) / 1024 for name, _, value in (line.partition(":") for line in lines) if "Vm" in name
    }
    return found["VmRSS"], found["VmHWM"]


def quiet_collector() -> None:
    """Let the collector of cycles run as seldom as in a service."""
    gc.set_threshold(50_000, 20, 50)


async def _measure(url: str, ca_file: str, token: str) -> Measured:
    tls = ssl.create_default_context(cafile=ca_file)
    headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
    found: dict[str, Listed[Node] | Listed[Pod]] = {}
    start = time.perf_counter()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=tls), headers=headers, read_bufsize=2 << 20
    ) as session:

        async def fetch(path: str) -> None:
            async with session.get(url + path) as answer:
                answer.raise_for_status()
                found[path] = msgspec.json.decode(await answer.read(), type=PATHS[path])

        async with asyncio.TaskGroup() as group:
            for path in PATHS:
                group.create_task(fetch(path))
        took_s = time.perf_counter() - start
    gc.collect()
    nodes, pods = (len(found[path].items or ()) for path in PATHS)
    return Measured(took_s, nodes, pods, *memory_mb())


if __name__ == "__main__":
    quiet_collector()
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_measure(*sys.argv[1:]))))
