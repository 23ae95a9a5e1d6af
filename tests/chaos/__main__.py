"""Break real cells from a seed and account for every job: ``python -m tests.chaos --seconds 600``.

The process moves into network and mount namespaces of its own first, so it needs root or a kernel that lets users make
namespaces, and the programs ``ip`` and ``mount``.
"""

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
from pathlib import Path

import structlog

from tests.chaos.network import IsolationError, isolate

_SETUPS = ("kube-1", "bus-3", "kube-3", "bus-1")


def main(words: list[str] | None = None) -> int:
    """Run; returns 0 if nothing was lost, doubled or left unexplained."""
    options = options_of(words)
    try:
        isolate()
    except IsolationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return asyncio.run(run_cells(options))


def options_of(words: list[str] | None = None) -> argparse.Namespace:
    """Read a command line; that of the process if there is none."""
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults begin, over all cells")
    parser.add_argument("--rounds", type=int, default=1, help="least number of rounds of each cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="kinds, separated by commas; all by default")
    parser.add_argument("--cells", default=",".join(_SETUPS), help="kube or bus and the number of nats-servers")
    parser.add_argument("--short", action="store_true", help="short rounds")
    parser.add_argument("--folder", type=Path, help="where cells keep their files; a temporary one by default")
    parser.add_argument("--page", type=Path, help="file for the page of results")
    return parser.parse_args(words)


def _written(path: Path, text: str | None) -> str:
    """Write the page, unless a cell has no figures; says which."""
    if text is None:
        return f"{path} is not written: a cell has no figures"
    path.write_text(text)
    return f"wrote {path}"


async def run_cells(options: argparse.Namespace) -> int:
    """Run each cell, and print how it went; a run that failed prints the command that repeats it."""
    # Not imported before the namespaces are there: some libraries start threads.
    from tests.chaos.fault import Setup  # noqa: PLC0415
    from tests.chaos.report import command, page, summary  # noqa: PLC0415
    from tests.chaos.run import ChaosError, Options, run, seeds  # noqa: PLC0415
    from tests.chaos.schedule import LONG, SHORT, kinds_for  # noqa: PLC0415

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    names = tuple(name.strip() for name in options.faults.split(",") if name.strip())
    cells = options.cells.split(",")
    done, failed = [], 0
    for cell, seed in zip(cells, seeds(options.seed, len(cells)), strict=True):
        world, _, servers = cell.partition("-")
        if cell not in _SETUPS or world not in {"bus", "kube"}:
            sys.stderr.write(f"cell {cell} is unknown: expected {', '.join(_SETUPS)}, separated by commas\n")
            return 2
        setup = Setup(world, int(servers))
        try:
            kinds_for(setup, names)
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        say(f"cell {cell}, seed {seed}")
        folder = Path(tempfile.mkdtemp(prefix=f"chaos-{cell}-", dir=options.folder))
        one = Options(
            setup, seed, options.seconds / len(cells), options.rounds, names, SHORT if options.short else LONG
        )
        try:
            figures = await run(one, folder, say)
        except ChaosError as error:
            is_good = False
            say(f"FAILED: {error}")
        else:
            done.append(figures)
            is_good = not figures.verdict.violations
            say(summary(figures))
        if is_good:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            failed += 1
            say(f"logs are in {folder}\nagain: {command(one)}")
    if options.page is not None:
        say(_written(options.page, page(done) if len(done) == len(cells) else None))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
