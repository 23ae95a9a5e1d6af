"""Annotations that say on a pod in which block its rank lies, and in which SuperPoD the block.

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
"""Label of jobs and pods: the inference service that they are part of."""
BLOCK_MAX: Final = (1 << 16) - 2
"""Largest number of a block that a column holds."""


def block_annotations(block: int, superpod: str) -> dict[str, str]:
    """Annotations of a pod.

    Args:
        block: Number of its block.
        superpod: Physical SuperPoD of its node.
    """
    return {SUPER_POD_ID: superpod, SUPER_POD_RANK: str(block)}


def block_of(annotations: Mapping[str, str]) -> int | None:
    """Number of the block that a pod's annotations say; None without one, or where it is no such number."""
    return whole_number(annotations.get(SUPER_POD_RANK, ""), most=BLOCK_MAX)
