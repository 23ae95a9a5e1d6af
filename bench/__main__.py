"""``python -m bench NAME [--json]``."""

import argparse
import subprocess
import sys
from pathlib import Path

from bench import (
    bind,
    chain,
    commands,
    fault,
    gang,
    gateway,
    health,
    metrics,
    one,
    page,
    programs,
    replay,
    restart,
    score,
    sim,
    simulate,
    spine,
    superpod,
    switch,
    tracing,
    usage,
    watch,
)
from bench.kube import bindings
from bench.kube import gang as kube_gang
from bench.load import hour, nodes, reports, waiting
from bench.processes import ROOT
from bench.report import Report, show

_BENCHES = {
    "score": score.run,
    "spine": spine.run,
    "metrics": metrics.run,
    "tracing": tracing.run,
    "chain": chain.run,
    "waiting": waiting.run,
    "reports": reports.run,
    "gang": gang.run,
    "switch": switch.run,
    "superpod": superpod.run,
    "bind": bind.run,
    "watch": watch.run,
    "usage": usage.run,
    "simulate": simulate.run,
    "kube-gang": kube_gang.run,
    "kube": bindings.run,
    "replay": replay.run,
    "restart": restart.run,
    "fault": fault.run,
    "health": health.run,
    "sim": sim.run,
    "commands": commands.run,
    "programs": programs.run,
    "page": page.run,
    "one": one.run,
    "gateway": gateway.run,
}
_LONG = ("load", "nodes")
"""Benches that need an hour or most of a machine, so that ``all`` leaves them out."""
_ROWS = {"kube": tuple(bindings.ROWS), "restart": tuple(restart.NAMES)}
"""Rows of the benches whose rows can be run alone."""


def main() -> int:
    """Run one bench, or all of them, each in its own process: memory of one bench slows the next one."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("name", choices=[*_BENCHES, *_LONG, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON document a bench")
    parser.add_argument("--events", type=int, default=0, help="replay: also a log of so many events, for its memory")
    parser.add_argument("--row", action="append", default=[], metavar="ROW", help="kube, restart: only this row")
    parser.add_argument("--nodes", type=int, default=0, help="kube, nodes: number of nodes")
    parser.add_argument("--code", type=Path, default=ROOT, help="restart: run the services of another tree")
    parser.add_argument("--seconds", type=float, default=3_600.0, help="load: how long; 3,600 without it")
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
        show(_run(arguments), as_json=arguments.json)
        return 0
    more = ["--json"] if arguments.json else []
    codes = [
        subprocess.run([sys.executable, "-m", "bench", name, *more], check=False).returncode  # noqa: S603  # ourselves
        for name in _BENCHES
    ]
    return max(codes)


def _run(arguments: argparse.Namespace) -> Report:
    match arguments.name:
        case "load":
            return hour.run(hour.Settings(seconds=arguments.seconds), arguments.samples)
        case "nodes":
            return nodes.run(arguments.nodes or nodes.NODES)
        case "restart":
            return restart.run(arguments.row, arguments.code)
        case "replay":
            return replay.run(arguments.events)
        case "kube":
            return bindings.run(arguments.row, [arguments.nodes] if arguments.nodes else [])
        case name:
            return _BENCHES[name]()


sys.exit(main())
