"""Copies of the tree in which mutants live, and pytest in them.

A copy is a repository of its own, so that patches are applied to it wherever it lies. Byte code of a changed file is
removed whenever the file changes: two versions may have the same size and second, and Python would take one for the
other.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutants.patches import Mutant

TIMED_OUT: Final = -1
_ORIGIN: Final = """
import sys
from importlib.util import find_spec
for name in sys.argv[1:]:
    spec = find_spec(name)
    print(next(iter(spec.submodule_search_locations or [spec.origin])) if spec else "")
"""


class TreeError(Exception):
    """A copy that cannot be used."""


class Run(NamedTuple):
    """What pytest said.

    Attributes:
        code: Its exit code; :data:`TIMED_OUT` when it was stopped.
        seconds: How long it ran.
        text: What it wrote.
    """

    code: int
    seconds: float
    text: str


def files_of(root: Path) -> list[str]:
    """Files of a tree, tracked or new, without ignored ones; links to folders count as files."""
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = {name for name in listed.stdout.split("\0") if name}
    return sorted(name for name in names if (root / name).is_file() or (root / name).is_symlink())


def applies(root: Path, mutant: Mutant) -> str:
    """Why a mutant does not apply to a tree; empty when it does."""
    done = _git(root, "apply", "--check", "-", words=mutant.patch)
    return done.stderr.strip() if done.returncode else ""


class Tree:
    """A copy of a tree.

    Args:
        source: What is copied.
        root: An empty folder for the copy.
    """

    def __init__(self, source: Path, root: Path) -> None:
        self.root = root
        for name in files_of(source):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, root / name, follow_symlinks=False)
        _git(root, "init", "--quiet")

    def check_origin(self, mutants: Iterable[Mutant]) -> None:
        """See that tests in the copy import what the mutants change from the copy, not from where it was installed.

        Raises:
            TreeError: Something is imported from elsewhere.
        """
        names = sorted({Path(name).parts[0].removesuffix(".py") for mutant in mutants for name in mutant.changes})
        done = subprocess.run(  # noqa: S603  # our own interpreter and text
            [sys.executable, "-c", _ORIGIN, *names], cwd=self.root, capture_output=True, text=True, check=True
        )
        for name, origin in zip(names, done.stdout.splitlines(), strict=True):
            if not Path(origin).resolve().is_relative_to(self.root.resolve()):
                raise TreeError(f"{name} is imported from {origin or 'nowhere'}, not from {self.root}")

    def apply(self, mutant: Mutant) -> str:
        """Apply a mutant; why it cannot be, or empty."""
        return self._patch(mutant, "apply", "-")

    def reverse(self, mutant: Mutant) -> None:
        """Take a mutant back.

        Raises:
            TreeError: It cannot be taken back.
        """
        wrong = self._patch(mutant, "apply", "--reverse", "-")
        if wrong:
            raise TreeError(f"{mutant.name} cannot be taken back: {wrong}")

    def _patch(self, mutant: Mutant, *words: str) -> str:
        done = _git(self.root, *words, words=mutant.patch)
        for name in mutant.changes:
            Path(cache_from_source(str(self.root / name))).unlink(missing_ok=True)
        return done.stderr.strip() if done.returncode else ""

    def pytest(self, tests: Sequence[str], *, limit_s: float) -> Run:
        """Run some tests until the first that fails."""
        start = time.perf_counter()
        with subprocess.Popen(  # noqa: S603  # our own interpreter and tests
            [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
            cwd=self.root,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # what the tests started ends with them
        ) as process:
            try:
                text, _ = process.communicate(timeout=limit_s)
                code = process.returncode
            except subprocess.TimeoutExpired:
                code, text = TIMED_OUT, ""
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return Run(code, time.perf_counter() - start, text)


def _git(root: Path, *arguments: str, words: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # our own words
        ["git", *arguments],  # noqa: S607  # whichever git the user has
        cwd=root,
        input=words,
        capture_output=True,
        text=True,
        check=False,
    )
