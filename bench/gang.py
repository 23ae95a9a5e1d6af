"""``gang``: one plain gang of 5,000 whole-node pods at 10,000 nodes, from the request to its status."""

import time

import uvloop

from bench.cell import Client, cell
from bench.limits.gang import round_trip_ms
from bench.report import Report, machine, row

_NODES = 10_000
_PODS = 5_000
_REPEATS = 7


def run() -> Report:
    """Measure."""
    rows = []
    for shards in (0, 1, 4):
        limits_ms = uvloop.run(round_trip_ms(_PODS * 12, _REPEATS))
        times_ms = uvloop.run(_measure(shards))
        rows.append(row(f"{shards} shards", "request to status", "ms", times_ms, limits=limits_ms, target=200.0))
    return Report(bench="gang", machine=machine(), rows=rows)


async def _measure(shards: int) -> list[float]:
    async with cell(shards=shards) as bus:
        client = Client(bus, keep_chips=0)
        await client.nodes(_NODES)
        await client.submit("warm", chips=8)
        await client.until_placed(1)
        times_ms = []
        for index in range(_REPEATS):
            start = time.perf_counter()
            await client.submit(f"gang-{index}", chips=8, replicas=_PODS)
            await client.until_placed(2 + index)
            times_ms.append((time.perf_counter() - start) * 1000)
        return times_ms
