"""Limit of ``gang``: a record and a status of the gang's size stored one after the other."""

import tempfile
import time
from pathlib import Path

from bench.ends import nats_server
from berth.runtime.bus.nats_bus import NatsBus


async def round_trip_ms(size: int, repeats: int) -> list[float]:
    """Milliseconds of each repeat."""
    with tempfile.TemporaryDirectory(prefix="berth-limit-") as root:
        async with nats_server(Path(root)) as server:
            bus = await NatsBus.connect(server.url, "limit", name="limit")
            await bus.ensure_streams()
            out = []
            body = bytes(size)
            for index in range(repeats):
                start = time.perf_counter()
                await bus.append(body, expected_seq=index)
                await bus.publish(bus.subjects.status("limit", "gang"), body)
                out.append((time.perf_counter() - start) * 1000)
            await bus.close()
            return out
