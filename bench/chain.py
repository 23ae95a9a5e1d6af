"""``chain``: what the chain of the ledger costs, as the rate of ``spine`` with it and without, in pairs."""

from bench import spine
from bench.pairs import FULL, Size, paired
from bench.report import Report, machine
from bench.spine import measure

_LEAST_PERCENT = 95.0


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(
        bench="chain", machine=machine(), rows=paired("the chain", _rates, size, least_percent=_LEAST_PERCENT)
    )


async def _rates(has_chain: bool, size: spine.Size) -> list[float]:  # noqa: FBT001  # the part that is measured
    gangs, _, _ = await measure(1, "interval", size, has_chain=has_chain)
    return gangs
