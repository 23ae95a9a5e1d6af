"""Simulate whole cells from seeds, or one seed again.

``python -m tests.sim --seeds 0-99`` lives through the seeds in two processes, makes each that fails as short as it
gets, and ends with figures. ``python -m tests.sim --seed 7 --events 0-3,9`` lives through some events of one seed and
tells what happens.
"""

import argparse
import concurrent.futures
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from berth.runtime.clock import SystemClock
from tests.fuzz.steps import kept_of
from tests.sim.batch import Result, command, run_batch
from tests.sim.figures import ALL, heading, page, untouched, wrongs
from tests.sim.kept import KeptError, KeptResults
from tests.sim.run import Lived, live
from tests.sim.story import draw

BATCH: Final = 4
"""Seeds that a process lives through before it says how they went."""
FAILURES_MAX: Final = 10
PAGE: Final = Path(__file__).parents[2] / "docs" / "results" / "simulation.md"


def run_all(first: int, last: int, jobs: int, kept: KeptResults | None = None) -> Result:
    """Live through seeds ``first`` to ``last``, except those with a kept result."""
    whole = Result(Counter(), [], 0)
    open_batches: list[list[int]] = []
    for seeds in _batches(first, last):
        known = kept.find(seeds) if kept is not None else None
        if known is None:
            open_batches.append(seeds)
        else:
            _add(whole, known)
    batches = iter(open_batches)
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting: dict[concurrent.futures.Future[Result], list[int]] = {}
        while True:
            while len(waiting) < 2 * jobs and len(whole.failed) < FAILURES_MAX and (batch := next(batches, None)):
                waiting[pool.submit(run_batch, batch)] = batch
            if not waiting:
                return whole
            done, _ = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                seeds = waiting.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    error.add_note(f"again: python -m tests.sim --seeds {seeds[0]}-{seeds[-1]} --jobs 1")
                    raise
                if kept is not None:
                    kept.keep(seeds, result)
                _add(whole, result)
                for lived in result.failed:
                    _tell(lived)


def _add(whole: Result, part: Result) -> None:
    whole.count += part.count
    whole.failed += part.failed
    whole.seeds += part.seeds
    whole.steps += part.steps


def _batches(first: int, last: int) -> Iterator[list[int]]:
    for start in range(first, last + 1, BATCH):
        yield list(range(start, min(start + BATCH, last + 1)))


def _tell(lived: Lived) -> None:
    _say(f"FAILS seed {lived.seed}: {lived.kind}")
    _say(f"  {lived.details[:2000]}")
    _say(f"  {len(lived.events)} of {lived.of_events} events: {command(lived)}")


def _say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def report(result: Result, seconds: float) -> int:
    """Print figures; returns the exit code."""
    count = result.count
    _say(f"{heading(result)}, in {seconds:.0f} s")
    for name in sorted(count):
        if ":" in name:
            _say(f"  {count[name]:>9} {name}")
    if result.seeds < ALL:
        for what, names in untouched(count, result.seeds).items():
            if names:
                _say(f"never touched, {what}: {', '.join(names)}")
    wrong = wrongs(result)
    for line in wrong:
        _say(line)
    return 1 if wrong else 0


def again(seed: int, ranges: str | None) -> int:
    """Live through a seed, or some of its events, and tell what happens; returns the exit code."""
    try:
        kept = None if ranges is None else kept_of(ranges, len(draw(seed).events))
    except ValueError as error:
        _say(f"--events {error}")
        return 2
    lived = live(seed, kept, is_told=True)
    for line in lived.story:
        _say(line)
    _say(f"{lived.steps} steps, {lived.virtual_s:.0f} virtual seconds, trace {lived.trace}")
    _say(f"FAILS {lived.kind}\n  {lived.details}" if lived.kind else "all is well")
    return 1 if lived.kind else 0


def seeds_of(text: str) -> tuple[int, int]:
    """First and last seed of ``A-B``, or of ``N`` alone: the first N.

    Raises:
        ArgumentTypeError: It is neither.
    """
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and (not last.isdigit() or int(last) < int(first))) or text == "0":
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seeds, or two seeds such as 100-199")
    return (int(first), int(last)) if dash else (0, int(first) - 1)


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, help="seeds such as 0-99, or how many")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--events", help="only these events of it, such as 0-3,9")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--kept", type=Path, help="file of results, with which an interrupted run goes on")
    parser.add_argument("--page", action="store_true", help="write docs/results/simulation.md as well")
    options = parser.parse_args()
    if (options.seeds is None) == (options.seed is None):
        parser.error("name either --seeds or --seed")
    if options.seed is not None:
        return again(options.seed, options.events)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    first, last = options.seeds
    try:
        kept = KeptResults(options.kept) if options.kept is not None else None
    except KeptError as error:
        parser.error(str(error))
    result = run_all(first, last, options.jobs, kept)
    if options.page:
        PAGE.write_text(page(result, f"python -m tests.sim --seeds {first}-{last} --page"), "utf-8")
    return report(result, clock.monotonic_s() - began_s)


if __name__ == "__main__":
    sys.exit(main())
