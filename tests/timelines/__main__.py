"""Play all timelines at every speed with many seeds, and tell where they end otherwise than the table says.

``python -m tests.timelines --seeds 20`` plays with the seeds 0 to 19, ``--names`` only some of the timelines.
"""

import argparse
import concurrent.futures
import multiprocessing
import sys
from typing import Final

from tests.timelines.plays import Play, unexplained_in
from tests.timelines.recording import timeline_names, timelines_folder

SPEEDS: Final = (1.0, 5.0, 0.2)


def main() -> int:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(prog="python -m tests.timelines", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds")
    parser.add_argument("--names", nargs="*", help="timelines; all by default")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    names = options.names or timeline_names()
    if not names:
        parser.error(f"no timelines at {timelines_folder()}; the variable BERTH_TIMELINES names the folder")
    plays = [Play(name, speed, seed) for name in names for speed in SPEEDS for seed in range(options.seeds)]
    wrong = 0
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for play, found in zip(plays, pool.map(unexplained_in, plays, chunksize=4), strict=True):
            wrong += bool(found)
            for line in found:
                sys.stdout.write(f"{play.name} speed {play.speed:g} seed {play.seed}: {line}\n")
    sys.stdout.write(f"{len(plays)} plays of {len(names)} timelines, {wrong} of them end otherwise\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
