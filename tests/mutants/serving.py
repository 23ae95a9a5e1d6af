"""The process that runs tests: it collects them once, and forks for each request.

It is started by :mod:`tests.mutants.workers` in the tree that is judged, with a plan on its command line; then each
line of its input is a request, each line of its output an answer. Its own modules are taken out of ``sys.modules``
before anything is collected, so that ``tests`` is that of the judged tree. No file changes: a mutant is code that
replaces that of functions in the forked process, or a text that is imported instead of a file. So no test that only
reads files can notice one.
"""

import gc
import os
import resource
import select
import signal
import sys
import time
import zlib
from pathlib import Path
from types import FunctionType
from typing import IO, Any, Final

import msgspec
import pytest

from tests.mutants.loading import codes_of, import_instead, import_texts, leave, meaning_of, place_of
from tests.mutants.probes import install_array, probed

_MEMORY_BYTES: Final = 6 << 30
_GRACE_S: Final = 30.0
"""For setting up fixtures of the session, and for ending."""


class Plan(msgspec.Struct, frozen=True):
    """What a process is for.

    Attributes:
        root: The judged tree.
        files: Files and folders of tests.
        scratch: Folder for temporary files.
        changed: Texts of modules that are imported instead of those of the tree.
        probes: Modules that get probes, in the order of their segments.
    """

    root: str
    files: tuple[str, ...]
    scratch: str
    changed: dict[str, str] = {}
    probes: tuple[str, ...] = ()


class Request(msgspec.Struct, frozen=True):
    """Tests that are run in a forked process, until one fails.

    Attributes:
        tests: Their ids and the longest time of each, in seconds.
        path: A module that is changed; empty for none.
        text: Its text then.
        is_whole: Whether all tests run, whatever fails.
    """

    tests: list[tuple[str, float]]
    path: str = ""
    text: str = ""
    is_whole: bool = False


class Ran(msgspec.Struct, frozen=True, array_like=True):
    """How a test went: ``passed``, ``failed``, ``late``, or ``ended`` if its process did; and its segments."""

    test: str
    how: str
    seconds: float = 0.0
    segments: bytes = b""


class Answer(msgspec.Struct, frozen=True):
    """What became of a request; ``is_swapped`` is false if no function has the change, and no test ran."""

    ran: list[Ran]
    is_swapped: bool = True


class Ready(msgspec.Struct, frozen=True):
    """Tests that were collected, how many files could not be, and which segments were executed until then."""

    tests: list[str]
    failed: int
    segments: bytes = b""


class Server:
    """A plug-in of pytest that answers requests instead of running what was collected."""

    def __init__(self, plan: Plan, requests: IO[bytes], answers: IO[bytes], array: bytearray) -> None:
        self._plan = plan
        self._requests = requests
        self._answers = answers
        self._array = array
        self._functions: dict[str, list[FunctionType]] = {}
        self._has_failed = False
        self._child = 0

    def end(self, *_: object) -> None:
        """End at once, and the forked process as well."""
        if self._child:
            _kill(self._child)
        os._exit(1)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Answer requests until there are no more."""
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # otherwise the functions of the product are not among the objects
        for one in gc.get_objects():
            if isinstance(one, FunctionType):
                self._functions.setdefault(os.path.realpath(one.__code__.co_filename), []).append(one)
        gc.collect()
        gc.freeze()
        self._say(Ready(list(items), session.testsfailed, self._marks()))
        for line in self._requests:
            self._say(self._answer(msgspec.json.decode(line, type=Request), items))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        self._has_failed = self._has_failed or report.failed

    def _say(self, message: Ready | Answer) -> None:
        self._answers.write(msgspec.json.encode(message) + b"\n")
        self._answers.flush()

    def _marks(self) -> bytes:
        return zlib.compress(bytes(self._array)) if self._array else b""

    def _answer(self, request: Request, items: dict[str, pytest.Item]) -> Answer:
        reading, writing = os.pipe()
        child = os.fork()
        self._child = child
        if not child:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.close(reading)
                self._run(request, items, writing)
            finally:
                os._exit(0)
        os.close(writing)
        try:
            return _followed(request, reading)
        finally:
            os.close(reading)
            _kill(child)
            os.waitpid(child, 0)
            self._child = 0

    def _run(self, request: Request, items: dict[str, pytest.Item], writing: int) -> None:
        """Run tests in the forked process."""
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        if request.path and not self._swap(request.path, request.text):
            os.write(writing, b"unswapped\n")
            return
        chosen = [items[name] for name, _ in request.tests]
        for item, following in zip(chosen, [*chosen[1:], None], strict=True):
            self._array[:] = bytes(len(self._array))
            self._has_failed = False
            began_s = time.perf_counter()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            how = "failed" if self._has_failed else "passed"
            ran = Ran(item.nodeid, how, round(time.perf_counter() - began_s, 4), self._marks())
            _write(writing, msgspec.json.encode(ran) + b"\n")
            if self._has_failed and not request.is_whole:
                break
        _write(writing, b"done\n")
        chosen[0].session._setupstate.teardown_exact(None)

    def _swap(self, path: str, text: str) -> bool:
        """Give functions the code that they have in another text of their module; false if none gets other code."""
        full = str(Path(self._plan.root) / path)
        old = codes_of(compile(Path(full).read_bytes(), full, "exec", dont_inherit=True))
        new = codes_of(compile(text, full, "exec", dont_inherit=True))
        swapped = False
        for function in self._functions.get(os.path.realpath(full), []):
            key = old.keys.get(place_of(function.__code__))
            code = new.codes.get(key) if key is not None else None
            if code is None or key is None or code.co_freevars != function.__code__.co_freevars:
                continue
            swapped = swapped or meaning_of(code) != meaning_of(old.codes[key])
            function.__code__ = code
        return swapped


def _followed(request: Request, reading: int) -> Answer:
    """What the forked process tells, until it ends or a test takes too long."""
    ran: list[Ran] = []
    rest = b""
    while True:
        limit_s = request.tests[len(ran)][1] if len(ran) < len(request.tests) else _GRACE_S
        if not ran:
            limit_s += _GRACE_S
        is_ready, _, _ = select.select([reading], [], [], limit_s)
        told = os.read(reading, 1 << 20) if is_ready else b""
        *lines, rest = (rest + told).split(b"\n")
        for line in lines:
            if line == b"done":
                _drained(reading)
                return Answer(ran)
            if line == b"unswapped":
                return Answer([], is_swapped=False)
            ran.append(msgspec.json.decode(line, type=Ran))
        if not told:
            return Answer([*ran, Ran(request.tests[len(ran)][0], "ended" if is_ready else "late")])


def _drained(reading: int) -> None:
    """Let the forked process end what it started; what does not end is killed."""
    while select.select([reading], [], [], _GRACE_S)[0] and os.read(reading, 1 << 16):
        pass


def _write(descriptor: int, line: bytes) -> None:
    while line:
        line = line[os.write(descriptor, line) :]


def _kill(group: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(group, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _prepared(plan: Plan) -> bytearray:
    """Set up imports for a plan; the array of its probes."""
    root = Path(plan.root)
    if plan.changed:
        import_texts(root, plan.changed)
    if not plan.probes:
        return bytearray()
    trees: dict[str, Any] = {}
    length = 0
    for name in plan.probes:
        tree, segments = probed((root / name).read_bytes(), length)
        length += len(segments)
        trees[os.path.realpath(root / name)] = tree
    import_instead(lambda path: compile(trees[path], path, "exec", dont_inherit=True) if path in trees else None)
    return install_array(length)


def main() -> None:
    """Serve with the plan on the command line, in the folder that is judged."""
    plan = msgspec.json.decode(sys.argv[1], type=Plan)
    sys.path[:] = [plan.root, *sys.path[1:]]  # the first one is where this module comes from
    leave({"tests"})
    # pytest captures what is written to the usual descriptors.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    server = Server(plan, requests, answers, _prepared(plan))
    signal.signal(signal.SIGTERM, server.end)
    # With rewritten assertions pytest would load the product as well, since it has a plug-in, and no hook would see it.
    usual = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--assert=plain",
        "-o",
        "addopts=--import-mode=importlib",
    ]
    pytest.main([*usual, f"--basetemp={plan.scratch}", *plan.files], plugins=[server])
