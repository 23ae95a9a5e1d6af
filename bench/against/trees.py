"""The tree of another commit, and how programs run on it; all of it is removed at the end."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench.processes import ROOT
from tests.support.traces import traces_folder

_OURS: Final = ("bench", "tests")
"""Folders of this tree beside the product of the other one, so that the same work is measured."""
_ORIGIN: Final = "import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).origin)"


class BaseError(ValueError):
    """There is no such base, or it cannot be set up; the text is a sentence."""


class Side:
    """One of the two trees.

    Args:
        name: What it is called.
        code: Its folder.
        trees: Folders with benches that can measure its product, the best one first.
        folder: Folder for compiled and temporary files.
    """

    def __init__(self, name: str, code: Path, trees: Sequence[Path], folder: Path) -> None:
        self.name = name
        self.code = code
        self.trees = trees
        own = code / ".venv" / "bin" / "python"
        self.python = str(own) if own.exists() else sys.executable
        left_out = {"PYTHONPATH", "PYTHONSAFEPATH", "PYTHONDONTWRITEBYTECODE"}
        named = {key: value for key, value in os.environ.items() if key not in left_out}  # noqa: TID251  # for a child
        own_values = {
            "PYTHONPYCACHEPREFIX": folder / "pycache",
            "PYTHONHASHSEED": 0,
            "TMPDIR": folder,
            "BERTH_TRACES": traces_folder(),
        }
        self.environment = named | {key: str(value) for key, value in own_values.items()}

    def see_origin(self) -> None:
        """See that its services are those of its own folder.

        Raises:
            BaseError: They are not.
        """
        package = "berth.services" if (self.code / "berth" / "services").exists() else "services"
        command = [self.python, "-c", _ORIGIN, f"{package}.dispatcher"]
        done = subprocess.run(  # noqa: S603  # our own service
            command, cwd=self.code, env=self.environment, capture_output=True, text=True, check=False
        )
        file = Path(done.stdout.strip()).resolve()
        if done.returncode or not file.is_relative_to(self.code.resolve()):
            said = done.stderr.strip().splitlines()[-1:] or [f"it is {file}"]
            raise BaseError(f"the dispatcher of {self.name} is not that of {self.code}: {said[0]}")


@contextmanager
def sides(base: str) -> Iterator[tuple[Side, Side]]:
    """This tree, and a worktree of another commit.

    Args:
        base: The commit, in any form that git takes.

    Raises:
        BaseError: There is no such commit, or it cannot be set up.
    """
    commit = _commit(base)
    with tempfile.TemporaryDirectory(prefix="berth-against-", ignore_cleanup_errors=True) as root:
        folder = Path(root)
        tree = folder / "base"
        try:
            _git("worktree", "add", "--quiet", "--detach", str(tree), commit)
            _set_up(tree)
            mixed = _mixed(folder / "mixed", tree)
            has_own = (tree / "bench" / "against" / "worker.py").exists()
            found = (
                Side("this tree", ROOT, [ROOT], folder),
                Side(base, tree, [mixed, tree] if has_own else [mixed], folder),
            )
            for one in found:
                one.see_origin()
            yield found
        finally:
            with suppress(BaseError):  # an interrupted git may have left less than a worktree
                _git("worktree", "remove", "--force", str(tree))
            _git("worktree", "prune")


def _commit(base: str) -> str:
    """Full name of a commit.

    Raises:
        BaseError: There is none.
    """
    try:
        return _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}").strip()
    except BaseError:
        raise BaseError(f"base is {base!r}, expected a commit of this repository, such as HEAD~1") from None


def _set_up(tree: Path) -> None:
    """Give a tree its own environment if it locks other packages than this one.

    Raises:
        BaseError: That failed.
    """
    lock = "requirements.lock"
    if (tree / lock).read_bytes() == (ROOT / lock).read_bytes():
        return
    command = ["make", "--silent", "-C", str(tree), "setup", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # our own target
    if done.returncode:
        raise BaseError(f"make setup failed in the worktree of the base: {done.stderr.strip()[-1000:]}")


def _mixed(folder: Path, tree: Path) -> Path:
    """A folder with the product of a tree and the benches of this one."""
    folder.mkdir()
    links = {name: tree / name for name in ("berth", "services", "schemas", ".venv")}
    links |= {name: ROOT / name for name in _OURS}
    for name, target in links.items():
        if target.exists():
            (folder / name).symlink_to(target)
    return folder


def _git(*arguments: str) -> str:
    """Output of git in this tree.

    Raises:
        BaseError: It failed.
    """
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603, S607  # git of the developer
    if done.returncode:
        raise BaseError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout
