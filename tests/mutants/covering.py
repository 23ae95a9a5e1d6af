"""Which tests execute which segments of the product: found once a tree, and kept in a file.

The file has a line for each test; an interrupted search goes on behind what is there, and only files with tests that
are others by now are looked at again.
"""

import queue
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from tests.mutants.probes import Segment, probed, segment_at
from tests.mutants.serving import Ran, Request
from tests.mutants.syntax import Place
from tests.mutants.trees import digest_of, product_of
from tests.mutants.workers import Worker

FOLDERS: Final = ("unit", "property", "golden", "contract", "bus", "replay", "sim")
"""Folders of ``tests`` whose tests execute the product in their own process, the most specific ones first."""
LEFT_OUT: Final = frozenset(
    {
        "tests/contract/test_chart.py",
        "tests/contract/test_mutants.py",
        "tests/contract/test_page_commands.py",
        "tests/contract/test_site.py",
        "tests/contract/test_sources.py",
        "tests/contract/test_tidy.py",
        "tests/contract/test_turn_types.py",
        "tests/contract/test_wheel.py",
        "tests/contract/test_words.py",
        "tests/sim/test_mutants.py",
        "tests/sim/test_sim.py",
        "tests/unit/cli/test_interrupts.py",
        "tests/unit/tools/test_mutants.py",
    }
)
"""Files that take long and execute nothing of the product in their own process: they start others, or read files."""
READ_ALL: Final = "tests/contract/test_reference_pages.py"
"""Its tests make the pages about every message, bound and setting, and name few."""
_LIMIT_S: Final = 120.0
_COLLECTED: Final = "collected"
_DONE: Final = "done"
_TESTS: Final = "test_*.py"


class _Row(msgspec.Struct, array_like=True):
    """A line: how a test went, and the digest of its file; ``done`` behind all tests of a file."""

    digest: str
    ran: Ran


class Chosen(NamedTuple):
    """A test for a mutant, by its id, and how long it took without one."""

    test: str
    seconds: float


class Cover:
    """The map.

    Args:
        root: The tree.
        rows: What tests executed.
    """

    def __init__(self, root: Path, rows: Sequence[Ran]) -> None:
        self._segments: dict[str, tuple[int, list[Segment]]] = {}
        self._naming: dict[str, set[int]] = {}
        first = 0
        for path in product_of(root):
            _, found = probed((root / path).read_bytes(), first)
            self._segments[path] = first, found
            for number, segment in enumerate(found, first):
                for name in segment.names:
                    self._naming.setdefault(name, set()).add(number)
            first += len(found)
        self._tests = [row for row in rows if row.how == "passed"]
        self._marks = np.array([_marks(row, first) for row in self._tests], np.uint8)
        self._early = np.bitwise_or.reduce([_marks(row, first) for row in rows if row.how == _COLLECTED])
        self._texts = {path: (root / path).read_text("utf-8") for path in {file_of(row.test) for row in self._tests}}

    def __len__(self) -> int:
        """Number of tests."""
        return len(self._tests)

    def is_run(self, path: str, place: Place) -> bool:
        """Whether a place, given as line and column, is in a function."""
        return segment_at(self._segments[path][1], place) is not None

    def executing(self, path: str, place: Place) -> tuple[list[Chosen], bool]:
        """Tests that execute a place in a function, best first, and whether it is executed while tests are collected.

        Args:
            path: The module.
            place: Line and column.
        """
        first, segments = self._segments[path]
        number = segment_at(segments, place)
        if number is None:
            return [], False
        number += first
        return self._sorted(path, self._column(number)), bool(self._early[number >> 3] & (128 >> (number & 7)))

    def naming(self, path: str, names: Iterable[str]) -> list[Chosen]:
        """Tests that execute a segment with one of some names, or whose file has one, best first; before them those
        that read everything."""
        wanted = set(names)
        found = np.zeros(len(self._tests), bool)
        for number in set().union(*(self._naming.get(name, set()) for name in wanted)):
            found |= self._column(number)
        word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(wanted)))})\b") if wanted else None
        files = {file for file, text in self._texts.items() if word is not None and word.search(text)}
        found |= np.array([file_of(row.test) in {*files, READ_ALL} for row in self._tests], bool)
        return sorted(self._sorted(path, found), key=lambda chosen: file_of(chosen.test) != READ_ALL)

    def _column(self, number: int) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        column: np.ndarray[tuple[int], np.dtype[np.bool_]] = (self._marks[:, number >> 3] & (128 >> (number & 7))) != 0
        return column

    def _sorted(self, path: str, found: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> list[Chosen]:
        """Near ones first, the quickest first of those that are as near."""
        rows = (self._tests[index] for index in np.flatnonzero(found))
        ranked = sorted((_distance(path, file_of(row.test)), row.seconds, row.test) for row in rows)
        return [Chosen(test, seconds) for _, seconds, test in ranked]


def is_test(name: str) -> bool:
    """Whether a file has tests."""
    return Path(name).match(_TESTS)


def file_of(test: str) -> str:
    """File of a test."""
    return test.partition("::")[0]


def _distance(path: str, file: str) -> tuple[int, int]:
    """How far a file with tests is from a module: by its folder, then by packages that both are in."""
    folder, *rest = Path(file).parts[1:]
    parts = [part for part in Path(path).with_suffix("").parts if part != "berth"]
    own = [*rest[:-1], Path(file).stem.removeprefix("test_")]
    common = sum(1 for _ in _prefix(parts, own))
    return (0 if common else 1 + FOLDERS.index(folder) if folder in FOLDERS else len(FOLDERS) + 1), -common


def _prefix(one: Sequence[str], other: Sequence[str]) -> Iterator[str]:
    for left, right in zip(one, other, strict=False):
        if left != right:
            return
        yield left


def _marks(row: Ran, length: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    return np.packbits(np.frombuffer(zlib.decompress(row.segments), np.uint8)[:length])


def cover_of(root: Path, kept: Path, *, jobs: int, tell: Callable[[str], object]) -> Cover:
    """The map of a tree.

    Args:
        root: A copy of the tree; nothing in it changes.
        kept: The file of what is known; what it holds of a file with tests that is another by now does not count.
        jobs: How many processes run tests at once.
        tell: Is told how far it is.
    """
    folders = [f"tests/{name}" for name in FOLDERS if (root / "tests" / name).is_dir()]
    files = [path.relative_to(root).as_posix() for name in folders for path in (root / name).rglob(_TESTS)]
    digests = {file: digest_of(root, [file]) for file in files if file not in LEFT_OUT}
    done = {row.ran.test for row in _known(kept, digests) if row.ran.how == _DONE}
    missing = sorted(digests.keys() - done)
    if missing:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            out = stack.enter_context(kept.open("ab"))
            pool = stack.enter_context(ThreadPoolExecutor(jobs))
            probes = product_of(root)
            starts = [pool.submit(Worker, root, missing, probes=probes) for _ in range(jobs)]
            free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
            for start in starts:
                free.put(stack.enter_context(start.result()))
            ready = starts[0].result().ready
            out.write(_line("", Ran(_COLLECTED, _COLLECTED, 0, ready.segments)))
            tests: dict[str, list[str]] = {file: [] for file in missing}
            for test in ready.tests:
                tests[file_of(test)].append(test)
            futures = {pool.submit(_file, free, names): file for file, names in tests.items()}
            for number, future in enumerate(as_completed(futures), 1):
                file = futures[future]
                rows = [*future.result(), Ran(file, _DONE)]
                out.write(b"".join(_line(digests[file], row) for row in rows))
                out.flush()
                tell(f"{number} of {len(missing)} files with tests")
    return Cover(root, [row.ran for row in _known(kept, digests)])


def _file(free: "queue.SimpleQueue[Worker]", tests: list[str]) -> list[Ran]:
    """Run the tests of a file; one that takes too long or ends its process only ends itself."""
    worker = free.get()
    try:
        ran: list[Ran] = []
        while len(ran) < len(tests):
            left = [(test, _LIMIT_S) for test in tests[len(ran) :]]
            found = worker.ask(Request(left, is_whole=True)).ran
            ran += [row if row.how == "passed" else msgspec.structs.replace(row, segments=b"") for row in found]
        return ran
    finally:
        free.put(worker)


def _line(digest: str, row: Ran) -> bytes:
    return msgspec.json.encode(_Row(digest, row)) + b"\n"


def _known(kept: Path, digests: Mapping[str, str]) -> list[_Row]:
    """What a file holds of files that are as they were; a line that was not written to its end does not count."""
    found: dict[tuple[str, str], _Row] = {}
    for number, line in enumerate(kept.read_bytes().splitlines() if kept.exists() else []):
        try:
            row = msgspec.json.decode(line, type=_Row)
        except msgspec.DecodeError:
            continue
        if row.ran.how == _COLLECTED:
            found[_COLLECTED, str(number)] = row
        elif row.digest == digests.get(file_of(row.ran.test)):
            found[row.ran.test, row.ran.how] = row
    return list(found.values())
