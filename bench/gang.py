"""``gang``: one plain gang of 5,000 whole-node pods at 10,000 nodes, from the request to its status."""

import time
from typing import Final, NamedTuple

from bench.cell import PRODUCT, Client, cell
from bench.ends import until_done
from bench.limits.gang import round_trip_ms
from bench.report import Report, machine, row
from berth.runtime.bus.nats_bus import NatsBus

_BYTES_A_POD: Final = 12


class Size(NamedTuple):
    """Size of a run: nodes of the cell, pods of a gang, and gangs."""

    nodes: int = 10_000
    pods: int = 5_000
    repeats: int = 7


FULL: Final = Size()
SMALL: Final = Size(nodes=200, pods=100, repeats=1)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows = []
    for shards in (0, 1, 4):
        limits_ms = until_done(round_trip_ms(size.pods * _BYTES_A_POD, size.repeats))
        times_ms = until_done(_measure(shards, size))
        rows.append(row(f"{shards} shards", "request to status", "ms", times_ms, limits=limits_ms, target=200.0))
    return Report(bench="gang", machine=machine(), rows=rows)


async def _measure(shards: int, size: Size) -> list[float]:
    async with cell(shards=shards) as running:
        load = Load(running.bus, size)
        await load.fill()
        return [1000 * await load.gang() for _ in range(size.repeats)]


class Load:
    """Gangs that come one after the other; each has gone when the next one comes.

    Args:
        bus: The cell.
        size: Its nodes, and the pods of a gang.
    """

    def __init__(self, bus: NatsBus, size: Size) -> None:
        self._client = Client(bus, keep_chips=0)
        self._size = size
        self._count = 0

    async def fill(self) -> None:
        """Give the nodes, and place a first job."""
        await self._client.nodes(self._size.nodes)
        await self._placed(1)

    async def gang(self) -> float:
        """Seconds from a request to its status."""
        start = time.perf_counter()
        await self._placed(self._size.pods)
        return time.perf_counter() - start

    async def _placed(self, pods: int) -> None:
        await self._client.submit(f"gang-{self._count}", chips=PRODUCT.chips, replicas=pods)
        self._count += 1
        await self._client.until_placed(self._count)
