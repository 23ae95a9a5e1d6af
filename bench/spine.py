"""``spine``: from the first stored request to the last readable status, on a real server with file storage."""

import random
import time
from typing import Literal

import uvloop

from bench.cell import Client, cell
from bench.limits.spine import messages_per_gang_s
from bench.report import Report, Row, machine, row

_NODES = 10_000
_CHIPS = 8 * _NODES
_FILL = 0.6
"""Share of the chips in use before the measurement; afterwards ended jobs keep it between 50 and 80 percent."""
_GANGS = 10_000
_REPEATS = 3
_LONE = 60


def run() -> Report:
    """Measure."""
    rows: list[Row] = []
    for shards, sync, target in (
        (1, "interval", 5000.0),
        (4, "interval", 3000.0),
        (1, "always", 1500.0),
        (0, "interval", None),
    ):
        found = uvloop.run(measure(shards, "always" if sync == "always" else "interval"))
        case = f"{shards} shards, sync {sync}"
        limits = uvloop.run(messages_per_gang_s("always" if sync == "always" else "interval"))
        rows.append(row(case, "gangs", "1/s", found[0], limits=[limits], target=target, better="more"))
        rows.append(row(case, "one lone request to its status, p50", "ms", found[1], target=5.0))
        rows.append(row(case, "most chips in use", "%", [100 * found[2]]))
    return Report(bench="spine", machine=machine(), rows=rows)


async def measure(
    shards: int,
    sync: Literal["interval", "always"],
    *,
    has_metrics: bool = True,
    has_chain: bool = True,
    api: str | None = None,
) -> tuple[list[float], list[float], float]:
    """Rates in gangs/s, times of lone requests in ms, and the largest share of chips in use.

    Args:
        shards: Count of scorers.
        sync: Sync mode of the NATS storage.
        has_metrics: Whether the metrics of the services count.
        has_chain: Whether records of the ledger have a chain value.
        api: Further sections of the configuration of ``api``; None: without this service.
    """
    rng = random.Random(3)  # noqa: S311  # a repeatable load, not a secret
    decisions = f"[decisions]\nchain = {int(has_chain)}\n"
    async with cell(shards=shards, sync=sync, decisions=decisions, has_metrics=has_metrics, api=api) as bus:
        client = Client(bus, keep_chips=int(0.7 * _CHIPS))
        await client.nodes(_NODES)
        filled = 0
        wanted = 0
        while wanted < _FILL * _CHIPS:
            chips = rng.choice((1, 8))
            await client.submit(f"fill-{filled}", chips=chips)
            filled, wanted = filled + 1, wanted + chips
        await client.until_placed(filled)
        lone = []
        for index in range(_LONE):
            start = time.perf_counter()
            await client.submit(f"lone-{index}", chips=1)
            await client.until_placed(filled + index + 1)
            lone.append((time.perf_counter() - start) * 1000)
        done = filled + _LONE
        rates = []
        for repeat in range(_REPEATS):
            start = time.perf_counter()
            for index in range(_GANGS):
                await client.submit(f"job-{repeat}-{index}", chips=rng.choice((1, 8)))
            done += _GANGS
            await client.until_placed(done)
            rates.append(_GANGS / (time.perf_counter() - start))
        return rates, lone, client.used_chips_most / _CHIPS
