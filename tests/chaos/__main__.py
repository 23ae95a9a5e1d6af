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
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long faults begin, over all cells")
    parser.add_argument("--rounds", type=int, default=1, help="least number of rounds of each cell")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="", help="kinds, separated by commas; all by default")
    parser.add_argument("--cells", default=",".join(_SETUPS), help="kube or bus and the number of nats-servers")
    parser.add_argument("--short", action="store_true", help="short rounds")
    parser.add_argument("--folder", type=Path, help="where cells keep their files; a temporary one by default")
    parser.add_argument("--page", type=Path, help="file for the page of results")
    options = parser.parse_args(words)
    try:
        isolate()
    except IsolationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    # Not imported before the namespaces are there: some libraries start threads.
    from tests.chaos.fault import Setup  # noqa: PLC0415
    from tests.chaos.report import page, summary  # noqa: PLC0415
    from tests.chaos.run import ChaosError, Options, run, seeds  # noqa: PLC0415
    from tests.chaos.schedule import LONG, SHORT, kinds_for  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))

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
            failed += 1
            again = f"--cells {cell} --seed {seed} --seconds {one.seconds:g}{' --short' if options.short else ''}"
            say(f"FAILED: {error}\nagain: python -m tests.chaos {again}")
            continue
        done.append(figures)
        say(summary(figures))
        if figures.verdict.violations:
            failed += 1
            say(f"logs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if options.page is not None and done:
        options.page.write_text(page(done))
        say(f"wrote {options.page}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
