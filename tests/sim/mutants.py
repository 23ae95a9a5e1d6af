"""``python -m tests.sim.mutants [NAME ...]``: which mutants of the product fail in which seed.

Without names: all mutants of ``tests/mutants`` that say so (``Simulated:``). With names: those that begin so, whether
or not they say so. Then the page ``tests/sim/MUTANTS.md`` is written; what does not say so has no row in it.

Exit 0: each is killed; 1: some are not; 2: wrong call, or a patch that cannot be meant.
"""

import argparse
import queue
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.mutants.patches import FOLDER, Mutant, PatchError, mutants_in
from tests.mutants.trees import Tree, TreeError
from tests.sim.__main__ import seeds_of
from tests.sim.killings import PAGE, Killing, Search, Survived, known_from, page_of

_ROOT: Final = FOLDER.parents[1]


def searched(
    root: Path, mutants: Sequence[Mutant], known: dict[str, Killing], options: argparse.Namespace
) -> Iterator[tuple[Mutant, Killing | str]]:
    """What kills each mutant, or why nothing does, as it is known.

    Raises:
        TreeError: A copy of the tree cannot be used.
    """
    first, last = options.seeds
    with ExitStack() as stack:
        searches: queue.SimpleQueue[Search] = queue.SimpleQueue()
        for _ in range(min(options.jobs, len(mutants))):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True))
            tree = Tree(root, Path(folder))
            tree.check_origin(mutants)
            searches.put(
                Search(
                    tree, range(first, last + 1), most=options.most, limit_s=options.limit, disprove=options.disprove
                )
            )
        pool = stack.enter_context(ThreadPoolExecutor(options.jobs))
        stack.callback(pool.shutdown, cancel_futures=True)

        def one(mutant: Mutant) -> Killing | str:
            search = searches.get()
            try:
                return search.killing(mutant, known.get(mutant.name))
            except Survived as why:
                return str(why)
            finally:
                searches.put(search)

        futures = {pool.submit(one, mutant): mutant for mutant in mutants}
        for future in as_completed(futures):
            yield futures[future], future.result()


def main(
    arguments: Sequence[str] | None = None, *, root: Path = _ROOT, folder: Path = FOLDER, page: Path = PAGE
) -> int:
    """Run the command line; the result is the exit code.

    Args:
        arguments: Words of the command line; those of the process when None.
        root: The tree.
        folder: Its patches.
        page: Where the table is.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description="Mutants in the simulation.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants whose names begin so; all that say so")
    parser.add_argument(
        "--seeds", type=seeds_of, default=(900, 1199), help="seeds such as 0-99, or how many (900-1199)"
    )
    parser.add_argument("--most", type=int, default=30, metavar="N", help="seeds that are lived through for one (30)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="copies of the tree at once (1)")
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
        mutants = [one for one in mutants_in(folder) if not one.equivalent]
        names = tuple(options.names)
        chosen = [one for one in mutants if (one.name.startswith(names) if names else one.is_simulated)]
        if not chosen:
            parser.error("no mutant has such a name" if names else "no mutant says Simulated:")
        known = known_from(page.read_text("utf-8")) if page.exists() else {}
        found = dict(known)
        survived: list[Mutant] = []
        for mutant, said in searched(root, chosen, known, options):
            _tell(mutant, said)
            if isinstance(said, Killing):
                found[mutant.name] = said
            else:
                survived.append(mutant)
    except (PatchError, TreeError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    rows = [one for one in mutants if one.is_simulated and one not in survived]
    page.write_text(page_of(rows, found), "utf-8")
    sys.stdout.write(f"killed {len(chosen) - len(survived)}, survived {len(survived)}\n")
    return 1 if survived else 0


def _tell(mutant: Mutant, said: Killing | str) -> None:
    if isinstance(said, str):
        line = f"survived {mutant.name}: {said}"
    elif said.seed < 0:
        line = f"killed   {mutant.name} by its tests"
    else:
        line = f"killed   {mutant.name} by seed {said.seed} after {said.steps} steps: {said.kind}"
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
