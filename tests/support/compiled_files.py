"""Where the tests, and the processes that they start, keep compiled files: below the environment, as make says it.

Without such a place each process compiles the modules of the product anew where ``PYTHONDONTWRITEBYTECODE`` is set.
"""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[2]
_FIRST: Final = "gw0"
_LONGEST_S: Final = 120.0
_AGAIN_S: Final = 0.05
COMPILED_FILES: Final[Mapping[str, str]] = (
    {} if sys.prefix == sys.base_prefix else {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "pycache")}
)
"""Variables for a process whose environment a test writes itself; none without a virtual environment."""


def use_compiled_files() -> None:
    """Let this process, and those that inherit its environment, use this place, also when pytest is started alone."""
    for name, folder in COMPILED_FILES.items():
        sys.pycache_prefix = folder
        sys.dont_write_bytecode = False
        os.environ[name] = folder  # noqa: TID251  # for child processes
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # noqa: TID251  # likewise


class FirstCompiler:
    """Of the processes that run tests beside one another, the first compiles the tests of a new clone for all.

    Args:
        worker: Name of this process among them; empty for one that is alone.
        folder: Of compiled files.
    """

    def __init__(self, worker: str, folder: Path) -> None:
        self._is_first = worker in {"", _FIRST}
        self._done = folder / "collected"

    def wait(self, *, longest_s: float = _LONGEST_S) -> None:
        """Wait until the first one has compiled everything, in this or an earlier run; not for ever, for it may end."""
        for _ in range(0 if self._is_first else round(longest_s / _AGAIN_S)):
            if self._done.exists():
                return
            time.sleep(_AGAIN_S)

    def finish(self) -> None:
        """Say that this process has compiled everything."""
        if self._is_first and self._done.parent.is_dir():
            self._done.touch()


def compiler_of(worker: str) -> FirstCompiler:
    """The one of this tree, for a process by its name among those beside one another."""
    folder = Path(sys.pycache_prefix or Path(sys.prefix) / "pycache")
    return FirstCompiler(worker, folder / _ROOT.relative_to(_ROOT.anchor))
