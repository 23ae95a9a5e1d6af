"""Both sides of a row in turns: A B, B A, A B and so on, and more pairs where the machine was too loud."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench.against.rows import ROWS, Cost
from bench.against.trees import Side
from bench.against.verdict import Compared, compared
from bench.against.worker import Begun
from bench.processes import ROOT
from berth.runtime.local.place import die_with

PAIRS: Final = 12
"""Pairs of one set of processes, if there is time for them."""
LEAST_PAIRS: Final = 6
PAIRS_S: Final = 35.0
"""When so many seconds of pairs are over, a set of processes is done."""
SETS: Final = 3
"""Sets of processes at most: another one begins while the pairs do not say whether this tree is slower."""
_END_S: Final = 10.0
_TAIL: Final = 600
_Found = TypeVar("_Found", bound=msgspec.Struct | Cost)


class SideError(RuntimeError):
    """A side of a row could not be measured; the text says why."""


class Budget(NamedTuple):
    """When the whole comparison is to be over, by the performance counter in s."""

    end_s: float

    def has(self, seconds: float) -> bool:
        """Whether there is so much time left."""
        return time.perf_counter() + seconds < self.end_s


class _Worker:
    """A process that measures one side of a row."""

    def __init__(self, child: "subprocess.Popen[str]", side: Side, log_path: Path) -> None:
        self._child = child
        self._side = side
        self._log_path = log_path

    def begun(self) -> Begun:
        """What it says first."""
        return self._read(Begun)

    def once(self) -> Cost:
        """Cost of one round."""
        if self._child.stdin is not None:
            with suppress(BrokenPipeError):  # its end is told by what it does not say
                self._child.stdin.write("\n")
                self._child.stdin.flush()
        return self._read(Cost)

    def _read(self, kind: type[_Found]) -> _Found:
        line = self._child.stdout.readline() if self._child.stdout is not None else ""
        if not line:
            said = self._log_path.read_text("utf-8", errors="replace").strip()[-_TAIL:]
            raise SideError(f"{self._side.name} ended with exit code {self._child.wait()}: {said}")
        return msgspec.json.decode(line, type=kind)


def measured(row: str, this: Side, base: Side, folder: Path, budget: Budget, say: Callable[[str], None]) -> Compared:
    """Measure a row.

    Args:
        row: Its name.
        this: This tree.
        base: The other one.
        folder: Folder for logs.
        budget: When to be done.
        say: Takes a line about what goes on.
    """
    pairs: list[tuple[Cost, Cost]] = []
    found = Compared(row=row)
    for number in range(SETS):
        began_s = time.perf_counter()
        try:
            work = _add_pairs(pairs, row, this, base, folder, budget)
        except SideError as error:
            return Compared(row=row, note=str(error), is_measured=False)
        took_s = time.perf_counter() - began_s
        note = f"{number + 1} sets of processes, for the noise" if number else ""
        found = compared(row, work, pairs, note)
        if found.is_certain:
            break
        if not budget.has(took_s):
            return msgspec.structs.replace(found, note="no time for more pairs")
        say(f"{row}: {len(pairs)} pairs do not say whether it is slower")
    return found


def _add_pairs(pairs: list[tuple[Cost, Cost]], row: str, this: Side, base: Side, folder: Path, budget: Budget) -> str:
    """Measure pairs with new processes; returns the work of a round.

    Raises:
        SideError: A side failed, or both do not the same.
    """
    with ExitStack() as stack:
        ours, work = _begun(stack, row, this, folder)
        theirs, other = _begun(stack, row, base, folder)
        if work != other:
            raise SideError(f"this tree does {work!r}, and {base.name} does {other!r}")
        end_s = time.perf_counter() + PAIRS_S
        for number in range(PAIRS):
            if number >= LEAST_PAIRS and (time.perf_counter() > end_s or not budget.has(0)):
                break
            costs = {worker: worker.once() for worker in ((theirs, ours) if number % 2 else (ours, theirs))}
            pairs.append((costs[ours], costs[theirs]))
        return work


def _begun(stack: ExitStack, row: str, side: Side, folder: Path) -> tuple[_Worker, str]:
    """A process that has set up a row, which ends with the stack, and its work.

    The benches of this tree measure the functions of the other one; where those have other names or arguments, its own
    benches do, if they can.

    Raises:
        SideError: It failed, or it measures another tree.
    """
    if ROWS[row].has_services:
        worker = stack.enter_context(_worker(row, side, sys.executable, ROOT, folder))
        return worker, worker.begun().work
    errors = []
    for tree in side.trees:
        worker = stack.enter_context(_worker(row, side, side.python, tree, folder))
        try:
            begun = worker.begun()
        except SideError as error:
            errors.append(error)
            continue
        if Path(begun.package) != (side.code / "berth").resolve():
            raise SideError(f"{side.name} measures {begun.package}, expected that of {side.code}")
        return worker, begun.work
    raise errors[0]


@contextmanager
def _worker(row: str, side: Side, python: str, tree: Path, folder: Path) -> Iterator[_Worker]:
    """A process that measures a row on a side, while the block runs.

    Args:
        row: The row.
        side: The side.
        python: Its interpreter.
        tree: Folder whose benches it runs.
        folder: Folder for its log.
    """
    log_path = folder / f"{row}-{side.code.name}.log"
    pipe = subprocess.PIPE
    with log_path.open("w") as log:
        child = subprocess.Popen(  # noqa: S603  # ourselves
            [python, "-m", "bench.against.worker", row, str(side.code)],
            cwd=tree,
            env=side.environment,
            stdin=pipe,
            stdout=pipe,
            stderr=log,
            text=True,
            preexec_fn=die_with(os.getpid()),  # noqa: PLW1509  # two system calls, nothing that takes a lock
        )
    with child:
        try:
            yield _Worker(child, side, log_path)
        finally:
            if child.stdin is not None:
                with suppress(BrokenPipeError):
                    child.stdin.close()
            try:
                child.wait(_END_S)
            except subprocess.TimeoutExpired:  # in the middle of a round
                child.kill()
