"""``python -m bench NAME [--json]``."""

import argparse

from bench import gang, score, spine
from bench.report import show

_BENCHES = {"score": score.run, "spine": spine.run, "gang": gang.run}


def main() -> None:
    """Run one bench, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("name", choices=[*_BENCHES, "all"])
    parser.add_argument("--json", action="store_true", help="one JSON document a bench")
    arguments = parser.parse_args()
    names = list(_BENCHES) if arguments.name == "all" else [arguments.name]
    show([_BENCHES[name]() for name in names], as_json=arguments.json)


main()
