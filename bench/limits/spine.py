"""Limit of ``spine``: the four messages that a gang takes (request, verdict, status, departure), stored bare."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Literal

from bench.ends import nats_server
from berth.runtime.bus.nats_bus import NatsBus


async def messages_per_gang_s(sync: Literal["interval", "always"], gangs: int) -> float:
    """Gangs a second, if storing their messages were all."""
    with tempfile.TemporaryDirectory(prefix="berth-limit-") as root:
        async with nats_server(Path(root), sync=sync) as server:
            bus = await NatsBus.connect(server.url, "limit", name="limit")
            await bus.ensure_streams()
            said = bus.subjects
            body = bytes(200)
            start = time.perf_counter()
            waiting: list[asyncio.Future[int]] = []
            for index in range(gangs):
                job = f"job-{index}"
                waiting += [
                    await bus.submit_wait(said.intake_request("b", job), body),
                    await bus.submit_wait(said.fact_job("b", job), body),
                    await bus.submit_wait(said.status("b", job), body),
                    await bus.submit_wait(said.fact_pod("b", job), body),
                ]
            await asyncio.wait(waiting)
            took_s = time.perf_counter() - start
            await bus.close()
            return gangs / took_s
