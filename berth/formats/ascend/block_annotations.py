"""The block of a pod, read from its annotations.

Source: docs/reference/superpods.md, "Ranks and annotations of blocks" and "Keys of SuperPoDs";
docs/reference/kubernetes.md, "Pod annotations".
"""

from collections.abc import Mapping
from typing import Final

from berth.formats.whole_numbers import whole_number
from berth.products.model import SUPER_POD_RANK

INFER_SERVICE: Final = "inferserviceid"
"""Label of jobs and pods with their inference service."""
BLOCK_MAX: Final = (1 << 16) - 2
"""Largest number of a block that fits a column."""


def block_of(annotations: Mapping[str, str]) -> int | None:
    """Number of the block in the annotations of a pod; None without one, or if it is not a valid number."""
    return whole_number(annotations.get(SUPER_POD_RANK, ""), most=BLOCK_MAX)
