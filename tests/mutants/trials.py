"""Trying mutants: the tests that execute what is changed, the nearest first, until one fails."""

import ast
import queue
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.mutants.covering import Chosen, Cover, file_of
from tests.mutants.outcomes import Mutant, Outcome
from tests.mutants.serving import Ran, Request
from tests.mutants.syntax import Place, end_of, names_in
from tests.mutants.trees import TreeError
from tests.mutants.workers import Worker

_BUDGET_S: Final = 30.0
"""Tests of units take so long together for a mutant, and all others as well; what would come then is left out."""
_UNIT: Final = "tests/unit/"
_FILES_MAX: Final = 12
"""Files with tests that are collected anew for a mutant that changes what is imported."""


def tried(root: Path, cover: Cover, mutants: Sequence[Mutant], *, jobs: int) -> Iterator[tuple[Mutant, Outcome]]:
    """What becomes of each mutant, as it is known.

    Args:
        root: A copy of the tree; nothing in it changes.
        cover: Which tests execute what.
        mutants: What to try.
        jobs: How many at once.

    Raises:
        TreeError: Tests cannot be collected on the tree as it is.
    """
    files = sorted({file_of(test.test) for mutant in mutants for test in _tests_for(root, cover, mutant)[0]})
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(jobs))
        stack.callback(pool.shutdown, cancel_futures=True)
        free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        starts = [pool.submit(Worker, root, files) for _ in range(jobs if files else 0)]
        for start in starts:
            free.put(stack.enter_context(start.result()))

        sound: dict[str, bool] = {}

        def one(mutant: Mutant) -> Outcome:
            tests, is_run, is_early = _tests_for(root, cover, mutant)
            worker = free.get()
            try:
                while tests:
                    outcome = _outcome(root, worker, mutant, tests, is_run=is_run, is_early=is_early)
                    if not outcome.killer or _is_sound(worker, outcome.killer, tests, sound):
                        return outcome
                    tests = [test for test in tests if test.test != outcome.killer]
                return Outcome("survived")
            finally:
                free.put(worker)

        futures = {pool.submit(one, mutant): mutant for mutant in mutants}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _is_sound(worker: Worker, killer: str, tests: Iterable[Chosen], known: dict[str, bool]) -> bool:
    """Whether a test passes without any mutant, as it did when it was found what it executes."""
    if killer not in known:
        answer = worker.ask(Request(_limits(test for test in tests if test.test == killer)))
        known[killer] = answer.ran[-1].how == "passed"
    return known[killer]


def _tests_for(root: Path, cover: Cover, mutant: Mutant) -> tuple[list[Chosen], bool, bool]:
    """Tests for a mutant, whether it is all within functions, and whether these run while tests are collected."""
    found: dict[str, Chosen] = {}
    is_run, is_early = True, False
    for path, place in mutant.places:
        if cover.is_run(path, place):
            tests, early = cover.executing(path, place)
            is_early = is_early or early
        else:
            tests, is_run = cover.naming(path, names_at(ast.parse((root / path).read_bytes()), place)), False
        found |= {test.test: test for test in tests}
    spent_s = {True: 0.0, False: 0.0}
    chosen: list[Chosen] = []
    for test in found.values():
        is_unit = test.test.startswith(_UNIT)
        if spent_s[is_unit] + test.seconds <= _BUDGET_S or not chosen:
            spent_s[is_unit] += test.seconds
            chosen.append(test)
    return chosen, is_run, is_early


def _outcome(
    root: Path, worker: Worker, mutant: Mutant, tests: Sequence[Chosen], *, is_run: bool, is_early: bool
) -> Outcome:
    """What tests say of a mutant; in a new process as well where it is executed while they are collected."""
    began_s = time.perf_counter()
    ran: list[Ran] | None = None
    if is_run and len(mutant.texts) == 1:
        answer = worker.ask(Request(_limits(tests), mutant.path, mutant.texts[mutant.path]))
        ran = answer.ran if answer.is_swapped else None
    if ran is None or (is_early and ran[-1].how == "passed"):
        ran = [*(ran or []), *_anew(root, mutant, tests)]
    verdict = {"passed": "survived", "late": "timed out"}.get(ran[-1].how if ran else "passed", "killed")
    killer = ran[-1].test if ran and verdict != "survived" else ""
    return Outcome(verdict, "", killer, len(ran), round(time.perf_counter() - began_s, 1))  # type: ignore[arg-type]  # one of three


def _anew(root: Path, mutant: Mutant, tests: Sequence[Chosen]) -> list[Ran]:
    """How tests go in a process that imports the mutant."""
    files = list(dict.fromkeys(file_of(test.test) for test in tests))[:_FILES_MAX]
    try:
        worker = Worker(root, files, changed=mutant.texts)
    except TreeError:
        with Worker(root, files):  # raises the error if the mutant is not what ends it
            return [Ran("", "failed")]
    with worker:
        if worker.ready.failed:
            return [Ran("", "failed")]
        there = set(worker.ready.tests)
        chosen = [test for test in tests if test.test in there]
        return worker.ask(Request(_limits(chosen))).ran if chosen else []


def _limits(tests: Iterable[Chosen]) -> list[tuple[str, float]]:
    return [(test.test, 10 + 10 * test.seconds) for test in tests]


def names_at(tree: ast.Module, place: Place) -> set[str]:
    """Names that what is imported at a place is known by: of its function, class, field or variable."""
    found: set[str] = set()
    body: list[ast.stmt] = tree.body
    while body:
        around = [one for one in body if (one.lineno, 0) <= place <= end_of(one)]

        body = []
        for one in around[-1:]:
            if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(one.name)
            else:
                targets = getattr(one, "targets", [getattr(one, "target", None)])
                found |= {
                    part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)
                }
            body = [] if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) else getattr(one, "body", [])
    for other in tree.body:  # what is made from it while the module is imported
        if isinstance(other, ast.Assign | ast.AnnAssign) and found & names_in(other):
            targets = other.targets if isinstance(other, ast.Assign) else [other.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found
