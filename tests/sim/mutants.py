"""``python -m tests.sim.mutants --seeds 0-9 NAME ...``: which mutants of the product fail in which seed.

The mutants are those of ``tests/mutants``. Exit 0: each fails in some seed; 1: some live through all of them.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.patches import FOLDER, Mutant, mutants_in
from tests.mutants.trees import Tree
from tests.sim.__main__ import seeds_of

_ROOT: Final = FOLDER.parents[1]
_TRY: Final = """
import sys
from tests.sim.run import live
for seed in range(int(sys.argv[1]), int(sys.argv[2]) + 1):
    lived = live(seed)
    if lived.kind:
        print(f"seed {seed}: {lived.kind}")
        break
"""


def killer_of(tree: Tree, mutant: Mutant, first: int, last: int) -> str:
    """Seed in which a mutant fails, and how; empty if it lives through all.

    Raises:
        RuntimeError: It does not apply, or the simulation itself fails.
    """
    wrong = tree.apply(mutant)
    if wrong:
        raise RuntimeError(f"{mutant.name}: {wrong}")
    try:
        done = subprocess.run(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-c", _TRY, str(first), str(last)],
            cwd=tree.root,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        tree.reverse(mutant)
    if done.returncode:
        raise RuntimeError(f"{mutant.name}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description="Mutants in the simulation.")
    parser.add_argument("names", nargs="+", metavar="NAME", help="mutants whose names begin so")
    parser.add_argument("--seeds", type=seeds_of, default=(0, 9), help="seeds such as 0-99, or how many")
    options = parser.parse_args(arguments)
    first, last = options.seeds
    mutants = [one for one in mutants_in(FOLDER) if one.name.startswith(tuple(options.names)) and not one.equivalent]
    if not mutants:
        parser.error("no mutant has such a name")
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(_ROOT, Path(folder))
        tree.check_origin(mutants)
        for mutant in mutants:
            killer = killer_of(tree, mutant, first, last)
            survived += not killer
            sys.stdout.write(f"{'killed  ' if killer else 'survived'} {mutant.name} {killer}\n")
            sys.stdout.flush()
    sys.stdout.write(f"killed {len(mutants) - survived}, survived {survived}\n")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
