"""Trying mutants: one copy of the tree a worker, one mutant at a time in each."""

import queue
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from tests.mutants.outcomes import Outcome, digest_of
from tests.mutants.patches import Mutant
from tests.mutants.trees import TIMED_OUT, Run, Tree, TreeError

_FAILED: Final = 1
"""Exit code of pytest when tests ran and some failed."""
_SHOWN_LINES: Final = 4
_CHECK_LIMIT_S: Final = 900.0


def tried(root: Path, mutants: Sequence[Mutant], *, jobs: int, limit_s: float) -> Iterator[tuple[Mutant, Outcome]]:
    """What becomes of each mutant, as it is known.

    Args:
        root: The tree.
        mutants: What to try.
        jobs: How many at once.
        limit_s: Longest run of one test.

    Raises:
        TreeError: The tests of the mutants do not pass on the tree as it is, or a copy of it cannot be used.
    """
    digests = {
        mutant.name: digest_of(root, mutant) for mutant in mutants
    }  # of what is copied, whatever is written later
    with ExitStack() as stack:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        copies: list[Tree] = []
        for _ in range(min(jobs, len(mutants))):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True))
            copies.append(Tree(root, Path(folder)))
            trees.put(copies[-1])
        check_unchanged(copies[0], mutants)
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(pool.shutdown, cancel_futures=True)

        def one(mutant: Mutant) -> Outcome:
            tree = trees.get()
            try:
                return outcome_of(tree, mutant, limit_s=limit_s)
            finally:
                trees.put(tree)

        futures: dict[Future[Outcome], Mutant] = {pool.submit(one, mutant): mutant for mutant in mutants}
        for future in as_completed(futures):
            mutant = futures[future]
            yield mutant, msgspec.structs.replace(future.result(), digest=digests[mutant.name])


def check_unchanged(tree: Tree, mutants: Sequence[Mutant]) -> None:
    """See that the tests of mutants pass on a copy without any.

    Raises:
        TreeError: They do not.
    """
    tests = sorted({test for mutant in mutants for test in mutant.killed_by})
    if not tests:
        return
    tree.check_origin(mutants)
    run = tree.pytest(tests, limit_s=_CHECK_LIMIT_S)
    if run.code:
        raise TreeError(f"the tests do not pass on the tree as it is: {_words(run)}")


def outcome_of(tree: Tree, mutant: Mutant, *, limit_s: float) -> Outcome:
    """What becomes of a mutant in a copy, which is as it was afterwards. Each of its tests has to kill it alone.

    Raises:
        TreeError: The mutant cannot be taken back.
    """
    wrong = tree.apply(mutant)
    if wrong:
        return Outcome("broken", why=f"does not apply: {wrong}")
    try:
        wrong = _syntax(tree, mutant)
        return Outcome("broken", why=wrong) if wrong else _killed(tree, mutant, limit_s)
    finally:
        tree.reverse(mutant)


def _killed(tree: Tree, mutant: Mutant, limit_s: float) -> Outcome:
    if mutant.equivalent:
        return Outcome("equivalent")
    seconds = 0.0
    is_late = False
    for test in mutant.killed_by:
        run = tree.pytest([test], limit_s=limit_s)
        seconds = round(seconds + run.seconds, 1)
        if run.code == 0:
            return Outcome("survived", seconds=seconds, why=f"{test} passes")
        if run.code not in {_FAILED, TIMED_OUT}:
            return Outcome("broken", seconds=seconds, why=f"{test}: {_words(run)}")
        is_late = is_late or run.code == TIMED_OUT
    return Outcome("killed by time-out" if is_late else "killed", seconds=seconds)


def _syntax(tree: Tree, mutant: Mutant) -> str:
    """Why a changed file is no Python; empty when all are."""
    for name in mutant.changes:
        path = tree.root / name
        if path.suffix == ".py" and path.is_file():
            try:
                compile(path.read_bytes(), name, "exec", dont_inherit=True)
            except SyntaxError as error:
                return f"{name}: {error}"
    return ""


def _words(run: Run) -> str:
    """Exit code of pytest, and the last that it wrote."""
    if run.code == TIMED_OUT:
        return "stopped by the time limit"
    last = [line for line in run.text.splitlines() if line.strip()][-_SHOWN_LINES:]
    return f"pytest ends with {run.code}: {' / '.join(last)}"
