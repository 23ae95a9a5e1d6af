"""Both sides of each row in turns, A B, B A, A B and so on, and more pairs where the machine was too loud."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench.against.rows import ROWS, Cost
from bench.against.trees import Side
from bench.against.verdict import Compared, compared
from bench.against.worker import Begun
from bench.processes import ROOT
from berth.lab.servers.place import die_with

PAIRS: Final = 10
"""Pairs of one set of processes, if there is time for them."""
LEAST_PAIRS: Final = 5
PAIRS_S: Final = 25.0
"""When so many seconds of pairs are over, a set of processes is done."""
SETS: Final = 4
"""Sets of processes at most: another one begins while the pairs do not say that this tree is not slower.

No set alone says that it is: a process may be slower than its like as long as it lives, for the places of its memory.
"""
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
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.DecodeError as error:
            raise SideError(f"{self._side.name} said {line.strip()[:_TAIL]!r}: {error}") from error


def measured(
    names: Sequence[str], this: Side, base: Side, folder: Path, budget: Budget, say: Callable[[str], None]
) -> list[Compared]:
    """Measure rows: all of them once, and those again that are not certain, while there is time.

    Args:
        names: Their names.
        this: This tree.
        base: The other one.
        folder: Folder for logs.
        budget: When to be done.
        say: Takes a line about what goes on.
    """
    rows = [_Row(name, this, base, folder) for name in names]
    for turn in range(SETS):
        for one in rows:
            if one.is_done or (turn and not budget.has(one.took_s)):
                continue
            say(f"{one.name}, set {turn + 1} of processes")
            one.add(budget)
            say(f"{one.name}: {one.compared().summary}")
    return [one.compared() for one in rows]


class _Row:
    """A row with the pairs that it has so far."""

    def __init__(self, name: str, this: Side, base: Side, folder: Path) -> None:
        self.name = name
        self.took_s = 0.0
        """Longest time that a set of processes took."""
        self._sides = (this, base)
        self._folder = folder
        self._pairs: list[tuple[Cost, Cost]] = []
        self._sets = 0
        self._work = ""
        self._error = ""

    @property
    def is_done(self) -> bool:
        """Whether more pairs would say no more."""
        if self._error or not self._pairs:
            return bool(self._error)
        found = self.compared()
        return found.is_certain and not found.is_slower

    def compared(self) -> Compared:
        """What the pairs say."""
        if self._error:
            return Compared(row=self.name, note=self._error, is_measured=False)
        found = compared(self.name, self._work, self._pairs)
        note = f"{self._sets} sets of processes, for the noise" if self._sets > 1 else ""
        if found.is_slower and self._sets == 1:
            note = "one set of processes says little"
        return msgspec.structs.replace(found, note=note)

    def add(self, budget: Budget) -> None:
        """Measure pairs with new processes."""
        began_s = time.perf_counter()
        try:
            self._add(budget)
        except SideError as error:
            self._error = str(error)
        self._sets += 1
        self.took_s = max(self.took_s, time.perf_counter() - began_s)

    def _add(self, budget: Budget) -> None:
        """Measure pairs.

        Raises:
            SideError: A side failed, or both do not the same.
        """
        this, base = self._sides
        with ExitStack() as stack:
            ours, self._work = _begun(stack, self.name, this, self._folder)
            theirs, other = _begun(stack, self.name, base, self._folder)
            if self._work != other:
                raise SideError(f"this tree does {self._work!r}, and {base.name} does {other!r}")
            end_s = time.perf_counter() + PAIRS_S
            for number in range(PAIRS):
                if number >= LEAST_PAIRS and (time.perf_counter() > end_s or not budget.has(0)):
                    break
                costs = {worker: worker.once() for worker in ((theirs, ours) if number % 2 else (ours, theirs))}
                self._pairs.append((costs[ours], costs[theirs]))


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
