"""``metrics``: what the metrics of the services cost, as the rate of ``spine`` with them and without, in pairs."""

from bench import spine
from bench.pairs import FULL, Size, paired
from bench.report import Report, machine
from bench.spine import measure

_LEAST_PERCENT = 98.0


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(
        bench="metrics", machine=machine(), rows=paired("metrics", _rates, size, least_percent=_LEAST_PERCENT)
    )


async def _rates(has_metrics: bool, size: spine.Size) -> list[float]:  # noqa: FBT001  # the part that is measured
    gangs, _, _ = await measure(1, "interval", size, has_metrics=has_metrics)
    return gangs
