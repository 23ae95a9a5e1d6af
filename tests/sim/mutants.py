"""``python -m tests.sim.mutants [NAME ...]``: which mutants of the product fail in which seed.

Without names: all mutants of ``tests/mutants/made`` about which the simulation is asked. With names: those that begin
so, whether or not it is. Then the page ``tests/sim/MUTANTS.md`` is written; others have no row in it.

Exit 0: each is killed; 1: some are not; 2: wrong call, or a mutant that has no place in the tree.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.mutants.made import MADE
from tests.mutants.made.registry import Made
from tests.mutants.patterns import Product
from tests.mutants.trees import TreeError, copy_of
from tests.sim.__main__ import seeds_of
from tests.sim.killings import PAGE, Killing, Search, Survived, known_from, page_of

_ROOT: Final = Path(__file__).parents[2]


def searched(
    root: Path, mutants: Sequence[Made], known: dict[str, Killing], options: argparse.Namespace
) -> Iterator[tuple[Made, Killing | str]]:
    """What kills each mutant, or why nothing does, as it is known.

    Raises:
        TreeError: A mutant has no place, or the tree is no checkout.
    """
    first, last = options.seeds
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True))
        copy = copy_of(root, Path(folder))
        product = Product(copy)
        made = [(one, one.mutant(product)) for one in mutants]
        search = Search(
            copy, range(first, last + 1), most=options.most, limit_s=options.limit, disprove=options.disprove
        )
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        stack.callback(pool.shutdown, cancel_futures=True)
        futures = {pool.submit(search.killing, one, mutant, known.get(one.name)): one for one, mutant in made}
        for future in as_completed(futures):
            try:
                yield futures[future], future.result()
            except Survived as why:
                yield futures[future], str(why)


def main(
    arguments: Sequence[str] | None = None,
    *,
    root: Path = _ROOT,
    made: Sequence[Made] = tuple(MADE.values()),
    page: Path = PAGE,
) -> int:
    """Run the command line; the result is the exit code.

    Args:
        arguments: Words of the command line; those of the process when None.
        root: The tree.
        made: Mutants to choose from.
        page: Where the table is.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description="Mutants in the simulation.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="mutants whose names begin so (all about which it is asked)"
    )
    parser.add_argument(
        "--seeds", type=seeds_of, default=(900, 1199), help="seeds such as 0-99, or how many (900-1199)"
    )
    parser.add_argument("--most", type=int, default=30, metavar="N", help="seeds that are lived through for one (30)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes at once (1)")
    parser.add_argument("--limit", type=float, default=400.0, metavar="SECONDS", help="longest search for one (400)")
    parser.add_argument(
        "--disprove",
        type=int,
        default=0,
        metavar="N",
        help="seeds that are tried for a mutant that none is said to kill; if one kills it, its reason is not so (0)",
    )
    options = parser.parse_args(arguments)
    try:
        mutants = sorted(made)
        names = tuple(options.names)
        chosen = [one for one in mutants if (one.name.startswith(names) if names else one.is_simulated)]
        if not chosen:
            parser.error("no mutant has such a name" if names else "the simulation is asked about no mutant")
        known = known_from(page.read_text("utf-8")) if page.exists() else {}
        found = dict(known)
        survived: list[Made] = []
        for mutant, said in searched(root, chosen, known, options):
            _tell(mutant, said)
            if isinstance(said, Killing):
                found[mutant.name] = said
            else:
                survived.append(mutant)
    except TreeError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    rows = [one for one in mutants if one.is_simulated and one not in survived]
    page.write_text(page_of(rows, found), "utf-8")
    sys.stdout.write(f"killed {len(chosen) - len(survived)}, survived {len(survived)}\n")
    return 1 if survived else 0


def _tell(mutant: Made, said: Killing | str) -> None:
    if isinstance(said, str):
        line = f"survived {mutant.name}: {said}"
    elif said.seed < 0:
        line = f"killed   {mutant.name} by tests alone"
    else:
        line = f"killed   {mutant.name} by seed {said.seed} after {said.steps} steps: {said.kind}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
