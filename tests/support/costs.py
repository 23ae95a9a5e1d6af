"""What tests cost: a plug-in that notes it, and ``python -m tests.support.costs FILE ...``, which prints it.

The plug-in is active with ``--costs FILE``, and appends a line of JSON for each test to that file: its id, and in
seconds its wall time, the CPU time of the process of pytest, and that of the child processes that ended meanwhile.
Set-up and tear-down are included: what a session shares is a cost of the first and the last test that use it.
Collection has a line of its own in each process.
"""

import os
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import pytest

from tests.support.forks import FORKER

SLOWEST: Final = 30
_COLLECTION: Final = "collection"
_FOLDER_PARTS: Final = 3


class Moment(NamedTuple):
    """Clocks of this process, in seconds."""

    wall_s: float
    own_s: float
    children_s: float

    @classmethod
    def now(cls) -> "Moment":
        """Read the clocks."""
        times = os.times()
        return cls(
            time.perf_counter(), times.user + times.system, times.children_user + times.children_system + FORKER.cpu_s
        )


class Cost(msgspec.Struct, array_like=True, frozen=True):
    """What a test took.

    Attributes:
        name: Id of the test.
        wall_s: From its set-up to the end of its tear-down.
        own_s: CPU time of the process of pytest.
        children_s: CPU time of processes that ended meanwhile and were waited for, with those that they waited for.
    """

    name: str
    wall_s: float = 0.0
    own_s: float = 0.0
    children_s: float = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU time of pytest and of child processes."""
        return self.own_s + self.children_s

    def plus(self, other: "Cost") -> "Cost":
        """The sum, under the name of this one."""
        return Cost(
            self.name,
            self.wall_s + other.wall_s,
            self.own_s + other.own_s,
            self.children_s + other.children_s,
        )


class CostPlugin:
    """Appends the cost of each test to a file. Processes of pytest that share the file add whole lines.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Note what collection costs in this process."""
        began = Moment.now()
        result = yield
        self._note(_COLLECTION, began)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what one test costs."""
        began = Moment.now()
        result = yield
        self._note(item.nodeid, began)
        return result

    def _note(self, name: str, began: Moment) -> None:
        spent = [round(end - start, 4) for start, end in zip(began, Moment.now(), strict=True)]
        line = msgspec.json.encode(Cost(name, *spent)) + b"\n"
        with self._path.open("ab", buffering=0) as file:
            file.write(line)


def read(paths: Iterable[Path]) -> list[Cost]:
    """Costs in some files, in their order.

    Raises:
        msgspec.DecodeError: A line is none of the plug-in's.
    """
    return [msgspec.json.decode(line, type=Cost) for path in paths for line in path.read_bytes().splitlines()]


def folder_of(name: str) -> str:
    """Folder that a test counts for: its path up to the third part."""
    parts = name.partition("::")[0].split("/")[:-1]
    return "/".join(parts[:_FOLDER_PARTS]) or name


def table_of(costs: Sequence[Cost]) -> str:
    """The slowest tests, and a sum for each folder."""
    tests = sorted((one for one in costs if one.name != _COLLECTION), key=lambda one: (-one.wall_s, one.name))
    sums: dict[str, Cost] = {}
    counts: dict[str, int] = {}
    for one in costs:
        folder = folder_of(one.name)
        sums[folder] = sums.get(folder, Cost(folder)).plus(one)
        counts[folder] = counts.get(folder, 0) + 1
    total = Cost("all")
    for one in sums.values():
        total = total.plus(one)
    head = f"{'wall s':>9} {'CPU s':>9} {'pytest':>9} {'children':>9}"
    rows = [f"slowest {min(SLOWEST, len(tests))} of {len(tests)} tests", f"{head}  test"]
    rows += [f"{_figures(one)}  {one.name}" for one in tests[:SLOWEST]]
    rows += ["", "sum of each folder", f"{head}  {'tests':>6}  folder"]
    by_cpu = sorted(sums.values(), key=lambda one: (-one.cpu_s, one.name))
    rows += [f"{_figures(one)}  {counts[one.name]:>6}  {one.name}" for one in by_cpu]
    rows += [f"{_figures(total)}  {len(tests):>6}  {total.name}"]
    return "\n".join(rows) + "\n"


def _figures(cost: Cost) -> str:
    return f"{cost.wall_s:9.1f} {cost.cpu_s:9.1f} {cost.own_s:9.1f} {cost.children_s:9.1f}"


if __name__ == "__main__":
    sys.stdout.write(table_of(read(map(Path, sys.argv[1:]))))
