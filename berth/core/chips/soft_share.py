"""Soft share: several pods on one chip, each with a quota of its cores and memory.

Rows are nodes, columns of the arrays are chip ids. A chip belongs to one policy as long as a pod uses it.

Source: docs/reference/nodes-and-chips.md, "Soft share".
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.schemas.ledger import Settings
from berth.schemas.placement import Share
from berth.schemas.refusal import NodeReason

CHIP_IDS: Final = 16
"""Chips of a node that can be shared, and the longest free list that is accepted."""
CORE_PERCENT: Final = 100
"""Cores of a chip, in percent."""
POLICY_NUMBERS: Final = {"fixed-share": 1, "elastic": 2, "best-effort": 3}
"""Number of a policy in a column; 0 is a chip that nobody shares."""
SCORE_WEIGHT: Final = 16
_FULLEST: Final = 100
"""A chip that a pod fills to 100 percent counts twice this; emptier ones less."""
_HBM_MAX: Final = (1 << 31) - 1
"""Larger quotas than a column holds fit nowhere."""


class ShareColumns(NamedTuple):
    """Shared use of the nodes to look at, one row a node.

    Attributes:
        core: ``int16[n, 16]`` percent of each chip's cores given to pods.
        hbm: ``int32[n, 16]`` MiB of each chip's memory given to pods.
        policy: ``uint8[n, 16]`` policy of each chip by :data:`POLICY_NUMBERS`, 0 where no pod uses it.
        memory_mib: ``int32[n]`` memory of one chip; 0 where the label is missing or says something else.
        enabled: ``bool[n]`` the node carries the label that allows sharing.
        free: ``uint64[n]`` mask of the chips that a pod may get.
    """

    core: NDArray[np.int16]
    hbm: NDArray[np.int32]
    policy: NDArray[np.uint8]
    memory_mib: NDArray[np.int32]
    enabled: NDArray[np.bool_]
    free: NDArray[np.uint64]


class OwnUse(NamedTuple):
    """What the gang's own pods use already, as in :class:`ShareColumns`."""

    core: NDArray[np.int16]
    hbm: NDArray[np.int32]


def evaluate_share(
    columns: ShareColumns, share: Share, *, gang_pods: int, settings: Settings, own: OwnUse | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Reason and raw score of each node for one pod of a soft-share gang.

    A node fits when it could take the whole gang, whose own pods count as gone, and one pod fits as things are now.

    Args:
        columns: The nodes.
        share: Quota a pod.
        gang_pods: Pods of the gang, at least 1.
        settings: Under ``reference_parity`` the score also counts chips of another policy, as the reference does.
        own: Use by the gang's own pods.

    Returns:
        ``uint8`` of :class:`berth.schemas.refusal.NodeReason`, and ``int32`` scores, 0 where the node does not fit.
    """
    listed = _listed(columns.free)
    number = POLICY_NUMBERS[share.policy]
    hbm = min(share.hbm_mib, _HBM_MAX)
    fits = _fits(columns, share.aicore, hbm)
    used = columns.policy != 0
    same = columns.policy == number
    now = (listed & fits & (same | ~used)).any(axis=1)
    enough = _has_capacity(columns, listed, share.aicore, hbm, number=number, gang_pods=gang_pods, own=own)

    reasons = np.full(columns.free.shape, NodeReason.FITS, np.uint8)
    reasons[~(now & enough)] = NodeReason.QUOTA
    reasons[~columns.enabled | (columns.memory_mib <= 0)] = NodeReason.NODE_LABEL
    reasons[np.bitwise_count(columns.free) > CHIP_IDS] = NodeReason.TOO_MANY_CHIPS
    reasons[columns.free == 0] = NodeReason.NO_CHIP_LIST

    joined = listed & fits & (used if settings.reference_parity else same)
    filled = np.where(joined, columns.core + np.int16(share.aicore + _FULLEST), 0).max(axis=1).astype(np.int32)
    scores = SCORE_WEIGHT * np.where(joined.any(axis=1), filled, used.sum(axis=1, dtype=np.int32)).astype(np.int32)
    scores[reasons != NodeReason.FITS] = 0
    return reasons, scores


def pick_share(
    share: Share, *, free: int, core: Sequence[int], hbm: Sequence[int], policy: Sequence[int], memory_mib: int
) -> int | None:
    """Chip for one pod on a node: the fullest fitting chip of the same policy, else the lowest unused one.

    Args:
        share: Quota of the pod.
        free: Mask of the chips that a pod may get.
        core: Percent given away, by chip id.
        hbm: MiB given away, by chip id.
        policy: Policy by chip id; 0 where no pod uses the chip.
        memory_mib: Memory of one chip.

    Returns:
        The chip id, lowest on ties; None when no chip fits.
    """
    number = POLICY_NUMBERS[share.policy]
    fitting = [
        chip
        for chip in range(min(CHIP_IDS, len(core)))
        if free >> chip & 1
        and core[chip] + share.aicore <= CORE_PERCENT
        and hbm[chip] + share.hbm_mib <= memory_mib
        and policy[chip] in {0, number}
    ]
    return min(fitting, key=lambda chip: (policy[chip] != number, -core[chip], chip), default=None)


def _listed(free: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """``bool[n, 16]`` chips in the free list."""
    ids = np.arange(CHIP_IDS, dtype=np.uint64)
    return (free[:, np.newaxis] >> ids & np.uint64(1)).astype(np.bool_)


def _fits(columns: ShareColumns, aicore: int, hbm: int) -> NDArray[np.bool_]:
    """Chips with room for one pod, whatever their policy."""
    memory = columns.memory_mib[:, np.newaxis]
    return (columns.core <= CORE_PERCENT - aicore) & (columns.hbm <= memory - hbm)


def _has_capacity(
    columns: ShareColumns,
    listed: NDArray[np.bool_],
    aicore: int,
    hbm: int,
    *,
    number: int,
    gang_pods: int,
    own: OwnUse | None,
) -> NDArray[np.bool_]:
    """Whether a node could take the whole gang: whole quotas of cores, and of memory, that its chips could still give.

    A chip in use counts only under the gang's policy; one that only the gang itself uses counts as unused.
    """
    core, held = columns.core, columns.hbm
    if own is not None:
        core, held = core - own.core, held - own.hbm
    unused = (columns.policy == 0) | (core == 0)
    counted = listed & (unused | (columns.policy == number))
    core_left = np.where(unused, CORE_PERCENT, CORE_PERCENT - core).astype(np.int64)
    memory = columns.memory_mib[:, np.newaxis].astype(np.int64)
    hbm_left = np.where(unused, memory, memory - held)
    core_sum = np.where(counted, _whole_quotas(core_left, aicore), 0).sum(axis=1)
    hbm_sum = np.where(counted, _whole_quotas(hbm_left, hbm), 0).sum(axis=1)
    enough: NDArray[np.bool_] = (core_sum >= gang_pods * aicore) & (hbm_sum >= gang_pods * hbm)
    return enough


def _whole_quotas(left: NDArray[np.int64], quota: int) -> NDArray[np.int64]:
    """``left`` rounded to whole quotas, toward zero: a chip that was given away twice over counts against the node."""
    whole: NDArray[np.int64] = np.sign(left) * (np.abs(left) // quota * quota)
    return whole
