"""Imports of libraries without the optional parts that they would load for features that Berth does not use.

Some libraries import others if they are installed: a logger another one for colours, a client another one for a
transport. Each process would pay for them in memory and in time to start.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Import in the block as if some packages were not installed; those that are loaded already stay.

    Args:
        names: Packages that a library imports only if they are there.
    """
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None means: not to be found
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
