"""``python -m bench NAME [--json]``."""

import argparse
import subprocess
import sys
from pathlib import Path

import msgspec

from bench import replay, restart
from bench.catalogue import BENCHES
from bench.ends import EndedError
from bench.kube import bindings
from bench.load import hour, nodes
from bench.processes import ROOT
from bench.report import Report, show
from berth.runtime.errors import FatalError

_ROWS = {"kube": tuple(bindings.ROWS), "restart": tuple(restart.NAMES)}
"""Rows of the benches whose rows can be run alone."""


def main() -> int:
    """Run one bench, or all of them, each in its own process: memory of one bench slows the next one."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("name", choices=[*BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON document a bench")
    parser.add_argument("--small", action="store_true", help="the smallest form, which shows that all rows run")
    parser.add_argument("--events", type=int, default=0, help="replay: also a log of so many events, for its memory")
    parser.add_argument("--row", action="append", default=[], metavar="ROW", help="kube, restart: only this row")
    parser.add_argument("--nodes", type=int, default=0, help="kube, nodes: number of nodes")
    parser.add_argument("--code", type=Path, default=ROOT, help="restart: run the services of another tree")
    parser.add_argument("--seconds", type=float, default=0.0, help="load: how long; 3,600 without it")
    parser.add_argument("--samples", type=Path, help="load: file for the samples, a line of JSON each")
    arguments = parser.parse_args()
    rows = _ROWS.get(arguments.name, ())
    if arguments.row and not rows:
        parser.error("--row is for: kube, restart")
    if wrong := [one for one in arguments.row if one not in rows]:
        parser.error(f"--row is {wrong[0]!r}, expected one of {', '.join(rows)}")
    if arguments.nodes and arguments.name not in {"kube", "nodes"}:
        parser.error("--nodes is for: kube, nodes")
    if arguments.events and arguments.name != "replay":
        parser.error("--events is for: replay")
    if arguments.code != ROOT and arguments.name != "restart":
        parser.error("--code is for: restart")
    if arguments.name != "all":
        return _one(arguments)
    more = [f"--{option}" for option in ("json", "small") if getattr(arguments, option)]
    codes = [
        subprocess.run([sys.executable, "-m", "bench", name, *more], check=False).returncode  # noqa: S603  # ourselves
        for name, bench in BENCHES.items()
        if not bench.is_long
    ]
    return max(codes)


def _one(arguments: argparse.Namespace) -> int:
    try:
        show(_run(arguments), as_json=arguments.json)
    except (EndedError, FatalError) as error:
        print(f"{arguments.name}: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: argparse.Namespace) -> Report:
    is_small = arguments.small
    match arguments.name:
        case "load":
            load = hour.SMALL if is_small else hour.FULL
            return hour.run(msgspec.structs.replace(load, seconds=arguments.seconds or load.seconds), arguments.samples)
        case "nodes":
            size = nodes.SMALL if is_small else nodes.FULL
            return nodes.run(size._replace(nodes=arguments.nodes or size.nodes))
        case "restart":
            return restart.run(restart.SMALL if is_small else restart.FULL, arguments.row, arguments.code)
        case "replay":
            log = replay.SMALL if is_small else replay.FULL
            return replay.run(log._replace(long=arguments.events or log.long))
        case "kube":
            cluster = bindings.SMALL if is_small else bindings.FULL
            return bindings.run(
                cluster._replace(nodes=(arguments.nodes,) if arguments.nodes else cluster.nodes), arguments.row
            )
        case name:
            return BENCHES[name].small() if is_small else BENCHES[name].full()


if __name__ == "__main__":
    sys.exit(main())
