"""``spine``: from the first stored request to the last readable status, on a real server with file storage."""

import random
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, NamedTuple

from bench.cell import PRODUCT, Client, cell
from bench.ends import until_done
from bench.limits.spine import messages_per_gang_s
from bench.report import Report, Row, machine, row
from berth.runtime.bus.nats_bus import NatsBus

_FILL: Final = 0.6
"""Share of the chips in use before the measurement; afterwards ended jobs keep it between 50 and 80 percent."""
_KEEP: Final = 0.7


_CASES: Final[tuple[tuple[int, Literal["interval", "always"], float | None], ...]] = (
    (1, "interval", 5000.0),
    (4, "interval", 3000.0),
    (1, "always", 1500.0),
    (0, "interval", None),
)
"""Scorers, sync mode of the NATS storage, and the least gangs a second."""


class Size(NamedTuple):
    """Size of a run: nodes of the cell, gangs of a rate, rates, and lone requests."""

    nodes: int = 10_000
    gangs: int = 10_000
    repeats: int = 3
    lone: int = 60

    @property
    def chips(self) -> int:
        """Chips of the cell."""
        return PRODUCT.chips * self.nodes


FULL: Final = Size()
SMALL: Final = Size(nodes=100, gangs=200, repeats=1, lone=3)


def run(size: Size = FULL) -> Report:
    """Measure."""
    rows: list[Row] = []
    for shards, sync, target in _CASES:
        found = until_done(measure(shards, sync, size))
        case = f"{shards} shards, sync {sync}"
        limits = until_done(messages_per_gang_s(sync, size.gangs))
        rows.append(row(case, "gangs", "1/s", found[0], limits=[limits], target=target, better="more"))
        rows.append(row(case, "one lone request to its status, p50", "ms", found[1], target=5.0))
        rows.append(row(case, "most chips in use", "%", [100 * found[2]]))
    return Report(bench="spine", machine=machine(), rows=rows)


async def measure(
    shards: int,
    sync: Literal["interval", "always"],
    size: Size,
    *,
    has_metrics: bool = True,
    is_signed: bool = False,
    api: str | None = None,
    at_end: Callable[[], Awaitable[None]] | None = None,
) -> tuple[list[float], list[float], float]:
    """Rates in gangs/s, times of lone requests in ms, and the largest share of chips in use.

    Args:
        shards: Count of scorers.
        sync: Sync mode of the NATS storage.
        size: Size of the run.
        has_metrics: Whether the metrics of the services count.
        is_signed: Whether they are signed, and every service checks them.
        api: Further sections of the configuration of ``api``; None: without this service.
        at_end: What is waited for before the services end.
    """
    async with cell(shards=shards, sync=sync, has_metrics=has_metrics, api=api, is_signed=is_signed) as running:
        load = Load(running.bus, size)
        await load.fill()
        lone = [1000 * await load.lone() for _ in range(size.lone)]
        rates = [size.gangs / await load.gangs() for _ in range(size.repeats)]
        if at_end is not None:
            await at_end()
        return rates, lone, load.used_most()


class Load:
    """Requests to a cell.

    Args:
        bus: The cell.
        size: Its nodes, and the gangs of a rate.
    """

    def __init__(self, bus: NatsBus, size: Size) -> None:
        self._size = size
        self._client = Client(bus, keep_chips=int(_KEEP * size.chips))
        self._rng = random.Random(3)  # noqa: S311  # a repeatable load, not a secret
        self._done = 0

    async def fill(self) -> None:
        """Give the nodes, and place jobs on most of them."""
        await self._client.nodes(self._size.nodes)
        wanted = 0
        while wanted < _FILL * self._size.chips:
            wanted += await self._submit()
        await self._client.until_placed(self._done)

    async def lone(self) -> float:
        """Seconds from one request to its status."""
        start = time.perf_counter()
        await self._submit(1)
        await self._client.until_placed(self._done)
        return time.perf_counter() - start

    async def gangs(self) -> float:
        """Seconds from the first of many requests to the last status."""
        start = time.perf_counter()
        for _ in range(self._size.gangs):
            await self._submit()
        await self._client.until_placed(self._done)
        return time.perf_counter() - start

    def used_most(self) -> float:
        """The largest share of the chips that was in use."""
        return self._client.used_chips_most / self._size.chips

    async def _submit(self, chips: int = 0) -> int:
        """Submit the next job; returns its chips, which are drawn if none are given."""
        chips = chips or self._rng.choice((1, 8))
        await self._client.submit(f"job-{self._done}", chips=chips)
        self._done += 1
        return chips
