"""Long runs of damaged inputs against decoders.

``python -m tests.decoders --seconds 60`` gives each decoder its part of the time; failing inputs are made short and
stored in ``tests/decoders/corpus``, where ``make test`` finds them again. ``--input FILE`` repeats one. With
``--engine atheris`` inputs are chosen by the coverage that they add, if ``tests/decoders/requirements.txt`` is
installed.
"""

import argparse
import logging
import secrets
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from berth.runtime.clock import SystemClock
from tests.decoders import guided
from tests.decoders.decoder import Decoder, attempt, bounded_memory
from tests.decoders.registry import BY_NAME
from tests.decoders.run import Failure, Tally, run, shrunk, stored


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell(decoder: Decoder, failure: Failure) -> None:
    """Shrink and store an input, and print what is wrong and how to repeat it."""
    short = shrunk(decoder, failure)
    path = stored(short)
    say(f"FAILS {decoder.name}: {failure.outcome.wrong}: {failure.outcome.details!r:.300}")
    say(f"  {len(short.data)} bytes: python -m tests.decoders --decoder {decoder.name} --input {path}")


def report(tallies: Mapping[str, Tally], seconds: float) -> int:
    """Print figures; returns the exit code."""
    inputs = sum(tally.inputs for tally in tallies.values())
    read = sum(tally.read for tally in tallies.values())
    failures = sum(len(tally.failures) for tally in tallies.values())
    say(f"{len(tallies)} decoders, {inputs} inputs in {seconds:.0f} s: {read} read, {inputs - read - failures} refused")
    idle = sorted(name for name, tally in tallies.items() if not tally.read)
    if idle or not inputs:
        say(f"nothing was read by {', '.join(idle) or 'any decoder'}: nothing was checked")
        return 1
    if failures:
        say(f"{failures} failures")
        return 1
    return 0


def again(decoder: Decoder, path: Path) -> int:
    """Decode one stored input; returns the exit code."""
    with bounded_memory(decoder.memory_bytes):
        outcome = attempt(decoder, path.read_bytes())
    if outcome.details is not None:
        say("".join(traceback.format_exception(outcome.details)))
        say(f"FAILS {decoder.name}: {outcome.wrong}")
        return 1
    say("read" if outcome.is_read else f"refused: {type(outcome.error).__name__}: {outcome.error}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.decoders", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long, all decoders together")
    parser.add_argument("--decoder", action="append", choices=sorted(BY_NAME), help="only this one; may be repeated")
    parser.add_argument("--input", type=Path, help="decode this file alone")
    parser.add_argument("--seed", type=int, help="of the damage; by default another one each time")
    parser.add_argument("--engine", choices=("damage", "atheris"), default="damage")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    names = options.decoder or sorted(BY_NAME)
    if options.input is not None:
        if len(names) != 1:
            parser.error("--input needs one --decoder")
        return again(BY_NAME[names[0]], options.input)
    seed = options.seed if options.seed is not None else secrets.randbits(32)
    say(f"seed {seed}")
    clock = SystemClock()
    begin_s = clock.monotonic_s()
    tallies: dict[str, Tally] = {}
    for done, name in enumerate(names):
        decoder = BY_NAME[name]
        end_s = begin_s + options.seconds * (done + 1) / len(names)
        if options.engine == "atheris":
            tallies[name] = guided.run(decoder, max(1.0, end_s - clock.monotonic_s()), seed=seed)
        else:
            tallies[name] = run(decoder, lambda _, end_s=end_s: clock.monotonic_s() < end_s, seed=seed)  # type: ignore[misc]  # bound at once
        for failure in tallies[name].failures.values():
            tell(decoder, failure)
    return report(tallies, clock.monotonic_s() - begin_s)


if __name__ == "__main__":
    sys.exit(main())
