"""``python -m tests.mutants [NAME ...]``: see that a test notices each mutant.

Exit 0: all are killed or equivalent; 1: one survived or is broken; 2: wrong call, or the tests fail without any mutant.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.outcomes import Outcome, digest_of, load, save
from tests.mutants.patches import FOLDER, Mutant, PatchError, mutants_in
from tests.mutants.reports import line_of, summary_of, table_of
from tests.mutants.trees import TreeError
from tests.mutants.trials import tried

_ROOT: Final = FOLDER.parents[1]
_LIMIT_S: Final = 50.0
"""Below the limit that pytest sets itself, after which a test only counts as failed."""


def main(arguments: Sequence[str] | None = None, *, root: Path = _ROOT, folder: Path = FOLDER) -> int:
    """Run the command line; the result is the exit code.

    Args:
        arguments: Words of the command line; those of the process when None.
        root: The tree.
        folder: Its patches.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Small faults that tests must notice.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only mutants whose names begin so")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="copies of the tree at once (2)")
    parser.add_argument("--limit", type=float, default=_LIMIT_S, metavar="SECONDS", help="longest run of a test (50)")
    parser.add_argument("--result", type=Path, default=root / "mutants.json", metavar="FILE", help="what was tried")
    parser.add_argument("--table", action="store_true", help="write the table of all mutants, and try none")
    options = parser.parse_args(arguments)
    try:
        mutants = mutants_in(folder)
        if options.table:
            sys.stdout.write(table_of(mutants))
            return 0
        chosen = _named(mutants, options.names)
        outcomes = _run(root, chosen, options.result, jobs=max(options.jobs, 1), limit_s=options.limit)
    except (PatchError, TreeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(summary_of(outcomes) + "\n")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def _named(mutants: Sequence[Mutant], names: Sequence[str]) -> list[Mutant]:
    """Mutants whose names begin with one of some words; all without any.

    Raises:
        PatchError: A word begins no name.
    """
    for name in names:
        if not any(mutant.name.startswith(name) for mutant in mutants):
            raise PatchError(f"no mutant is called {name}")
    return [mutant for mutant in mutants if not names or mutant.name.startswith(tuple(names))]


def _run(root: Path, mutants: Sequence[Mutant], result: Path, *, jobs: int, limit_s: float) -> list[Outcome]:
    """Outcomes of mutants, those that are known included.

    Raises:
        TreeError: They cannot be tried.
    """
    known = load(result)
    open_ones = [mutant for mutant in mutants if not _is_known(root, mutant, known.get(mutant.name))]
    if len(open_ones) < len(mutants):
        sys.stdout.write(f"{len(mutants) - len(open_ones)} of {len(mutants)} are as they were ({result.name})\n")
    if open_ones:
        for mutant, outcome in tried(root, open_ones, jobs=jobs, limit_s=limit_s):
            known[mutant.name] = outcome
            save(result, known)
            sys.stdout.write(line_of(mutant, outcome) + "\n")
            sys.stdout.flush()
    return [known[mutant.name] for mutant in mutants]


def _is_known(root: Path, mutant: Mutant, outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.is_good and outcome.digest == digest_of(root, mutant)


if __name__ == "__main__":
    sys.exit(main())
