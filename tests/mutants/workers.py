"""Processes that run tests, seen from outside: one line is asked, one answered."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from tests.mutants.serving import Answer, Plan, Ready, Request
from tests.mutants.trees import TreeError

_OWN: Final = Path(__file__).parents[2]
_START: Final = "from tests.mutants.serving import main; main()"
_START_LIMIT_S: Final = 300.0
_END_LIMIT_S: Final = 10.0
_SHOWN: Final = 2_000
_T = TypeVar("_T", Ready, Answer)


class Worker:
    """A process that has collected tests, in a copy of a tree.

    Args:
        root: The copy.
        files: Files and folders of tests.
        changed: Texts of modules that it imports instead of those of the tree.
        probes: Modules that get probes.

    Raises:
        TreeError: It does not come up, which tests of a tree that is as it was never do.
    """

    def __init__(
        self, root: Path, files: Sequence[str], *, changed: dict[str, str] | None = None, probes: Sequence[str] = ()
    ) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True)
        base = Path(self._scratch.name)
        plan = Plan(str(root), tuple(files), str(base / "tests"), changed or {}, tuple(probes))
        self._log = (base / "log").open("wb")
        self._process = subprocess.Popen(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(_OWN)!r}); {_START}", _words(plan)],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=_environment(root),
        )
        late = threading.Timer(_START_LIMIT_S, self._process.kill)
        late.start()
        try:
            self.ready = self._read(Ready)
        except TreeError:
            self.close()
            raise
        finally:
            late.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, request: Request) -> Answer:
        """What becomes of a request.

        Raises:
            TreeError: The process has ended.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then there is no answer
            self._process.stdin.write(_words(request).encode() + b"\n")
            self._process.stdin.flush()
        return self._read(Answer)

    def close(self) -> None:
        """End the process, and remove what its tests wrote."""
        self._process.terminate()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait()
        self._log.close()
        self._scratch.cleanup()

    def _read(self, kind: type[_T]) -> _T:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = Path(self._log.name).read_text("utf-8", "replace")[-_SHOWN:].strip()
            raise TreeError(f"tests cannot be collected: {said}")
        return msgspec.json.decode(line, type=kind)


def _words(message: msgspec.Struct) -> str:
    return msgspec.json.encode(message).decode()


def _environment(root: Path) -> dict[str, str]:
    """That of this process, but everything is imported from the copy, and its compiled files lie beside it."""
    given = {name: value for name, value in os.environ.items() if name not in _UNWANTED}  # noqa: TID251  # passed on
    return {**given, "PYTHONPATH": str(root), "PYTHONPYCACHEPREFIX": f"{root}.pycache"}


_UNWANTED: Final = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS"})
