"""``metrics``: what the metrics of the services cost, as the rate of ``spine`` with them and without, in pairs."""

import statistics

import uvloop

from bench.report import Report, machine, row
from bench.spine import measure

_PAIRS = 6
_LEAST_PERCENT = 98.0


def run() -> Report:
    """Measure."""
    shares: list[float] = []
    rates: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(_PAIRS):
        found: dict[bool, float] = {}
        for has_metrics in (True, False) if pair % 2 else (False, True):
            gangs, _, _ = uvloop.run(measure(1, "interval", has_metrics=has_metrics))
            found[has_metrics] = statistics.median(gangs)
            rates[has_metrics].append(found[has_metrics])
        shares.append(100 * found[True] / found[False])
    case = f"1 shard, {_PAIRS} pairs"
    return Report(
        bench="metrics",
        machine=machine(),
        rows=[
            row(case, "gangs with metrics", "1/s", rates[True]),
            row(case, "gangs without metrics", "1/s", rates[False]),
            row(case, "rate with metrics, of a pair", "%", shares, target=_LEAST_PERCENT, better="more"),
            row(case, "lowest of a pair", "%", [min(shares)]),
            row(case, "highest of a pair", "%", [max(shares)]),
        ],
    )
