"""Run random histories for some time, or one of them again.

``python -m tests.fuzz --seconds 60`` runs histories in two processes, makes each that fails as short as it gets, and
ends with figures; ``python -m tests.fuzz --seed 7 --steps 0-3,9`` lives through some steps of one history and tells
what happens.
"""

import argparse
import concurrent.futures
import multiprocessing
import secrets
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import Final

from berth.runtime.clock import SystemClock
from tests.fuzz import tally
from tests.fuzz.batch import Found, command, depth_of, hush, run_batch
from tests.fuzz.draws import draw_history
from tests.fuzz.failure import Failure
from tests.fuzz.run import FULL, live
from tests.fuzz.steps import kept_of

BATCH: Final = 20
"""Histories that a process lives through before it says how it went."""
WHOLE_RUN_S: Final = 60
"""A run of so many seconds must have had all features."""
FAILURES_MAX: Final = 20


def run_for(seconds: float, first: int, jobs: int) -> tuple[Counter[str], list[Found]]:
    """Live through histories until the time is over."""
    clock = SystemClock()
    end_s = clock.monotonic_s() + seconds
    features: Counter[str] = Counter()
    found: list[Found] = []
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting: set[concurrent.futures.Future[tuple[Counter[str], list[Found]]]] = set()
        while waiting or clock.monotonic_s() < end_s:
            while len(waiting) < 2 * jobs and clock.monotonic_s() < end_s and len(found) < FAILURES_MAX:
                waiting.add(pool.submit(run_batch, first, BATCH))
                first += BATCH
            if not waiting:
                break
            done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                counted, failed = future.result()
                features += counted
                found += failed
                for one in failed:
                    _tell(one)
    return features, found


def _tell(found: Found) -> None:
    _say(f"FAILS seed {found.seed}: {found.kind}")
    _say(f"  {found.details[:1500]}")
    _say(f"  {len(found.steps)} of {found.of_steps} steps: {command(found)}")


def _say(line: str = "") -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def report(features: Counter[str], seconds: float, found: Sequence[Found]) -> int:
    """Print figures; returns the exit code."""
    _say(
        f"{features['histories']} histories, {features['steps']} steps, {features['records']} records,"
        f" {features['events']} events in {seconds:.0f} s"
    )
    for name in sorted(features):
        if ":" in name or name == "adopted":
            _say(f"  {features[name]:>9} {name}")
    lacking = tally.missing(features)
    for name in lacking:
        _say(f"  {0:>9} {name}")
    kinds = Counter(one.kind for one in found)
    for kind, times in kinds.most_common():
        _say(f"{times} x {kind}")
    if found:
        _say(f"{len(found)} histories fail")
        return 1
    if lacking and seconds >= WHOLE_RUN_S:
        _say(f"{len(lacking)} features were never there")
        return 1
    return 0


def again(seed: int, ranges: str | None) -> int:
    """Live through some steps of one history; returns the exit code."""
    hush()
    history = draw_history(seed)
    try:
        kept = list(range(len(history.steps))) if ranges is None else kept_of(ranges, len(history.steps))
    except ValueError as error:
        _say(f"--steps {error}")
        return 2
    _say(f"{history.way}")
    story: list[str] = []
    try:
        live(history.only(kept), seed, Counter(), FULL if ranges is not None else depth_of(seed), story=story)
    except Failure as failure:
        _say("\n".join(story))
        cause = failure.__cause__
        if cause is not None:
            _say("".join(traceback.format_exception(cause)))
        _say(f"FAILS {failure.kind}\n  {failure.details}")
        return 1
    _say("\n".join(story))
    _say("all is well")
    return 0


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=0, help="for how long; 0: one history alone")
    parser.add_argument("--seed", type=int, help="the history, or the first one of a run")
    parser.add_argument("--steps", help="only these steps of it, such as 0-3,9")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    if not options.seconds and options.seed is None:
        parser.error("name --seconds or --seed")
    if not options.seconds:
        return again(options.seed, options.steps)
    first = options.seed if options.seed is not None else secrets.randbits(40)
    _say(f"from seed {first} on, {options.jobs} processes")
    features, found = run_for(options.seconds, first, options.jobs)
    return report(features, options.seconds, found)


if __name__ == "__main__":
    sys.exit(main())
