"""Where the tests, and the processes that they start, keep compiled files: below the environment, as make says it.

Without such a place each process compiles the modules of the product anew where ``PYTHONDONTWRITEBYTECODE`` is set.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

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
