"""Soft share: several pods use one chip, each with a quota of its cores and memory.

Rows of the arrays are nodes, columns are chip ids. A chip belongs to one policy while at least one pod uses it.

Source: docs/reference/nodes-and-chips.md, "Soft share".
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from berth.core.cluster.shared_use import CHIP_IDS, CORE_PERCENT, POLICY_NUMBERS
from berth.core.parity import differs
from berth.schemas.ledger import Settings
from berth.schemas.placement import Share
from berth.schemas.refusal import NodeReason

SCORE_WEIGHT: Final = 16
_FULLEST: Final = 100
"""A chip that the pod fills to 100 percent scores twice this value; an emptier chip scores less."""
_HBM_MAX: Final = (1 << 31) - 1
"""A larger quota does not fit into a column and therefore fits no node."""


class ShareColumns(NamedTuple):
    """Shared use of the nodes to evaluate; n rows, one per node, and one column per chip id.

    Attributes:
        core: ``int16[n, 16]`` percent of each chip's cores allocated to pods.
        hbm: ``int32[n, 16]`` MiB of each chip's memory allocated to pods.
        policy: ``uint8[n, 16]`` policy of each chip by ``POLICY_NUMBERS``; 0 if no pod uses it.
        memory_mib: ``int32[n]`` MiB of memory of one chip; 0 if the label is missing or invalid.
        enabled: ``bool[n]``, whether the node has the label that allows sharing.
        free: ``uint64[n]`` mask of the chips that a pod may get.
    """

    core: NDArray[np.int16]
    hbm: NDArray[np.int32]
    policy: NDArray[np.uint8]
    memory_mib: NDArray[np.int32]
    enabled: NDArray[np.bool_]
    free: NDArray[np.uint64]


class OwnUse(NamedTuple):
    """Use by the gang's own pods, as in :class:`ShareColumns`.

    ``free`` are the chips that a pod may get if these are left out.
    """

    core: NDArray[np.int16]
    hbm: NDArray[np.int32]
    free: NDArray[np.uint64]


def evaluate_share(
    columns: ShareColumns, share: Share, *, gang_pods: int, settings: Settings, own: OwnUse | None = None
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Reason and raw score of each node for one pod of a soft-share gang.

    A node fits if it can take the whole gang when the gang's own pods are not counted, and if one pod fits now.

    Args:
        columns: The nodes, n rows.
        share: Quota of one pod.
        gang_pods: Number of pods of the gang, at least 1.
        settings: Decide whether the score counts chips of another policy (decision softshare-self-compare).
        own: Use by the gang's own pods.

    Returns:
        ``uint8[n]`` of :class:`berth.schemas.refusal.NodeReason`, and ``int32[n]`` scores, 0 for a node that does not
        fit.
    """
    listed = _listed(columns.free)
    number = POLICY_NUMBERS[share.policy]
    hbm = min(share.hbm_mib, _HBM_MAX)
    fits = _fits(columns, share.aicore, hbm)
    used = columns.policy != 0
    same = columns.policy == number
    now = (listed & fits & (same | ~used)).any(axis=1)
    counted = listed if own is None else _listed(own.free)
    enough = _has_capacity(columns, counted, share.aicore, hbm, number=number, gang_pods=gang_pods, own=own)

    reasons = np.full(columns.free.shape, NodeReason.FITS, np.uint8)
    reasons[~(now & enough)] = NodeReason.QUOTA
    reasons[~columns.enabled | (columns.memory_mib <= 0)] = NodeReason.NODE_LABEL
    reasons[np.bitwise_count(columns.free) > CHIP_IDS] = NodeReason.TOO_MANY_CHIPS
    reasons[columns.free == 0] = NodeReason.NO_CHIP_LIST

    joined = listed & fits & (same if differs(settings).same_share_policy else used)
    filled = np.where(joined, columns.core + np.int16(share.aicore + _FULLEST), 0).max(axis=1).astype(np.int32)
    scores = SCORE_WEIGHT * np.where(joined.any(axis=1), filled, used.sum(axis=1, dtype=np.int32)).astype(np.int32)
    scores[reasons != NodeReason.FITS] = 0
    return reasons, scores


def pick_share(
    share: Share, *, free: int, core: Sequence[int], hbm: Sequence[int], policy: Sequence[int], memory_mib: int
) -> int | None:
    """Chip for one pod on a node: the fullest chip of the same policy that fits, otherwise the lowest unused chip.

    Args:
        share: Quota of the pod.
        free: Mask of the chips that a pod may get.
        core: Percent allocated, by chip id.
        hbm: MiB allocated, by chip id.
        policy: Policy by chip id; 0 if no pod uses the chip.
        memory_mib: Memory of one chip.

    Returns:
        The chip id, the lowest on ties; None if no chip fits.
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
    """Chips in the free list, as ``bool[n, 16]``."""
    ids = np.arange(CHIP_IDS, dtype=np.uint64)
    return (free[:, np.newaxis] >> ids & np.uint64(1)).astype(np.bool_)


def _fits(columns: ShareColumns, aicore: int, hbm: int) -> NDArray[np.bool_]:
    """Chips with room for one pod, regardless of policy: ``bool[n, 16]``."""
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
    """Whether each node can take the whole gang: its chips have enough whole quotas of cores and of memory.

    A used chip counts only if its policy is that of the gang. A chip that only the gang itself uses counts as unused.
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
    """``left`` rounded toward zero to a multiple of ``quota``. A chip that is overallocated by a quota is negative."""
    whole: NDArray[np.int64] = np.sign(left) * (np.abs(left) // quota * quota)
    return whole
