"""Annotations of a pod that name the block of its rank and the SuperPoD of the block.

``super-pod-id`` is the physical SuperPoD, ``super-pod-rank`` the number of the block (the logical SuperPoD) in the job.

Source: docs/reference/superpods.md, "Ranks and annotations of blocks" and "Keys of SuperPoDs";
docs/reference/kubernetes.md, "Pod annotations".
"""

from collections.abc import Mapping
from typing import Final

from berth.formats.whole_numbers import whole_number

SUPER_POD_ID: Final = "super-pod-id"
SUPER_POD_RANK: Final = "super-pod-rank"
INFER_SERVICE: Final = "inferserviceid"
"""Label of jobs and pods with their inference service."""
BLOCK_MAX: Final = (1 << 16) - 2
"""Largest number of a block that fits a column."""


def block_annotations(block: int, superpod: str) -> dict[str, str]:
    """Annotations of a pod.

    Args:
        block: Number of its block.
        superpod: Physical SuperPoD of its node.
    """
    return {SUPER_POD_ID: superpod, SUPER_POD_RANK: str(block)}


def block_of(annotations: Mapping[str, str]) -> int | None:
    """Number of the block in the annotations of a pod; None without one, or if it is not a valid number."""
    return whole_number(annotations.get(SUPER_POD_RANK, ""), most=BLOCK_MAX)
