"""``metrics``: what the metrics of the services cost, as the rate of ``spine`` with them and without, in pairs."""

from bench.pairs import paired
from bench.report import Report, machine
from bench.spine import measure

_LEAST_PERCENT = 98.0


def run() -> Report:
    """Measure."""
    return Report(bench="metrics", machine=machine(), rows=paired("metrics", _rates, least_percent=_LEAST_PERCENT))


async def _rates(has_metrics: bool) -> list[float]:  # noqa: FBT001  # the part that is measured
    gangs, _, _ = await measure(1, "interval", has_metrics=has_metrics)
    return gangs
