"""``signatures``: what signatures of the ledger cost, as the rate of ``spine`` with them and without, in pairs."""

from bench import spine
from bench.pairs import FULL, Size, paired
from bench.report import Report, machine
from bench.spine import measure

_LEAST_PERCENT = 94.0


def run(size: Size = FULL) -> Report:
    """Measure."""
    return Report(
        bench="signatures", machine=machine(), rows=paired("signatures", _rates, size, least_percent=_LEAST_PERCENT)
    )


async def _rates(is_signed: bool, size: spine.Size) -> list[float]:  # noqa: FBT001  # the part that is measured
    gangs, _, _ = await measure(1, "interval", size, is_signed=is_signed)
    return gangs
