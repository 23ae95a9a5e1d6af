"""``sim``: steps of simulated cells, with the checks that are made all the time and those at rest."""

import time
from typing import Final

from bench.report import Report, machine, row
from tests.sim.run import live

_SEEDS: Final = range(1, 16)


def run() -> Report:
    """Measure.

    Raises:
        RuntimeError: A seed fails.
    """
    live(0)  # imports and caches
    rates: list[float] = []
    for seed in _SEEDS:
        began_s = time.process_time()
        lived = live(seed)
        rates.append(lived.steps / (time.process_time() - began_s))
        if lived.kind:
            raise RuntimeError(f"seed {seed}: {lived.kind}")
    rows = [row(f"{len(_SEEDS)} seeds", "steps per core", "1/s CPU", rates, target=1_500, better="more")]
    return Report(bench="sim", machine=machine(), rows=rows)
