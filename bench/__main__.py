"""``python -m bench NAME [--json]``."""

import argparse
import subprocess
import sys

from bench import bind, gang, kube, kube_gang, replay, score, simulate, spine, superpod, switch, watch
from bench.report import show

_BENCHES = {
    "score": score.run,
    "spine": spine.run,
    "gang": gang.run,
    "switch": switch.run,
    "superpod": superpod.run,
    "bind": bind.run,
    "watch": watch.run,
    "simulate": simulate.run,
    "kube-gang": kube_gang.run,
    "kube": kube.run,
    "replay": replay.run,
}


def main() -> int:
    """Run one bench, or all of them, each in its own process: memory of one bench slows the next one."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("name", choices=[*_BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON document a bench")
    parser.add_argument("--events", type=int, default=0, help="replay: also a log of so many events, for its memory")
    parser.add_argument("--rows", default="", help=f"kube: kinds of rows, of {','.join(kube.ROWS)}; without it all")
    parser.add_argument("--nodes", type=int, default=0, help="kube: number of nodes; without it 1,000 and 5,000")
    arguments = parser.parse_args()
    if (arguments.rows or arguments.nodes) and arguments.name != "kube":
        parser.error("--rows and --nodes are for: kube")
    if arguments.events and arguments.name != "replay":
        parser.error("--events is for: replay")
    if arguments.name == "replay":
        show(replay.run(arguments.events), as_json=arguments.json)
        return 0
    if arguments.name == "kube":
        rows = [one for one in arguments.rows.split(",") if one]
        if wrong := [one for one in rows if one not in kube.ROWS]:
            parser.error(f"--rows has {wrong[0]!r}, expected {', '.join(kube.ROWS)}")
        sizes = [arguments.nodes] if arguments.nodes else []
        show(kube.run(rows, sizes), as_json=arguments.json)
        return 0
    if arguments.name != "all":
        show(_BENCHES[arguments.name](), as_json=arguments.json)
        return 0
    more = ["--json"] if arguments.json else []
    codes = [
        subprocess.run([sys.executable, "-m", "bench", name, *more], check=False).returncode  # noqa: S603  # ourselves
        for name in _BENCHES
    ]
    return max(codes)


sys.exit(main())
