"""``sim``: steps of simulated cells, with the checks that are made all the time and those at rest."""

import time
from typing import Final, NamedTuple

from bench.report import Report, machine, row
from berth.runtime.config import LogConfig
from berth.runtime.logs import configure
from tests.sim.run import live


class Size(NamedTuple):
    """Size of a run: the seeds 1 to that."""

    seeds: int = 15


FULL: Final = Size()
SMALL: Final = Size(seeds=1)


def run(size: Size = FULL) -> Report:
    """Measure.

    Raises:
        RuntimeError: A seed fails.
    """
    configure("bench", LogConfig(level="error"))  # the cells work in this process, and reports are on stdout
    live(0)  # imports and caches
    rates: list[float] = []
    for seed in range(1, size.seeds + 1):
        began_s = time.process_time()
        lived = live(seed)
        rates.append(lived.steps / (time.process_time() - began_s))
        if lived.kind:
            raise RuntimeError(f"seed {seed}: {lived.kind}")
    rows = [row(f"{size.seeds} seeds", "steps per core", "1/s CPU", rates, target=1_500, better="more")]
    return Report(bench="sim", machine=machine(), rows=rows)
