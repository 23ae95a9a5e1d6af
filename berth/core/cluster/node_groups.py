"""Nodes by groups, such as SuperPoDs and the groups of a level: rows and counts as columns, and the order of groups."""

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]
"""Nodes by their row in the caller's node table."""
Counts = npt.NDArray[np.int64]
"""Number of nodes of each group."""
NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
"""A name that is a number. A name with more digits is compared as text."""


def running(counts: npt.NDArray[Any]) -> Rows:
    """Sums of all earlier counts, and the total at the end.

        >>> running(np.array([3, 0, 2]))
        array([0, 3, 3, 5])

    Args:
        counts: Integer array of shape (n,).

    Returns:
        ``int64[n + 1]``.
    """
    sums = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=sums[1:])
    return sums


def group_key(name: str) -> tuple[int, int, str]:
    """Sort key of groups: names that are numbers first, by value, then the others as text."""
    return (0, int(name), name) if NUMBER.fullmatch(name) else (1, 0, name)
