"""Soft share on the state of nodes: applies the rules of ``soft_share`` to the rows of a node table.

Source: docs/reference/nodes-and-chips.md, "Soft share".
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from berth.core.chips.soft_share import OwnUse, ShareColumns, evaluate_share, pick_share
from berth.core.chips.soft_share_table import SoftShareTable
from berth.core.cluster.node_table import NodeTable
from berth.core.cluster.shared_use import SharedNode
from berth.core.errors import InvariantError
from berth.schemas.ledger import Settings
from berth.schemas.offers import Shape
from berth.schemas.placement import Share
from berth.schemas.refusal import NodeReason


def share_reasons(
    table: NodeTable, soft_shares: SoftShareTable, shape: Shape, settings: Settings
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """Reason and raw score of every row for one pod of a soft-share shape.

    Args:
        table: The nodes.
        soft_shares: Shared use of all nodes.
        shape: Pods that are requested, with a quota.
        settings: Settings of the epoch.

    Returns:
        ``uint8[rows]`` of :class:`berth.schemas.refusal.NodeReason`, and ``int32[rows]`` scores, 0 if the node does not
        fit.
    """
    reasons = np.full(len(table), NodeReason.NODE_LABEL, np.uint8)
    scores = np.zeros(len(table), np.int32)
    rows = sorted(row for row, node in soft_shares.nodes.items() if node.enabled)
    if rows and shape.share is not None:
        columns = _columns([soft_shares.nodes[row] for row in rows], [soft_shares.free_mask(row) for row in rows])
        reasons[rows], scores[rows] = evaluate_share(
            columns, shape.share, gang_pods=max(shape.gang_pods, 1), settings=settings
        )
    return reasons, scores


def share_row(
    soft_shares: SoftShareTable,
    shape: Shape,
    row: int,
    *,
    free: int,
    now: SharedNode | None,
    base: SharedNode | None,
    settings: Settings,
) -> tuple[int, int]:
    """Result of :func:`share_reasons` for one row.

    Args:
        soft_shares: Shared use of all nodes.
        shape: Pods that are requested.
        row: The node.
        free: Mask of its chips that no pod holds now.
        now: Its shared use now.
        base: Its shared use without pods of the gang; None if the gang has none there.
        settings: Settings of the epoch.
    """
    if now is None or not now.enabled or shape.share is None:
        return int(NodeReason.NODE_LABEL), 0
    usable = free_of(soft_shares, row, now, free)
    own = None
    if base is not None:
        # Chips that the gang itself has filled count in its capacity.
        counted = soft_shares.free_for(row, base, ~(free | now.mask))
        own = OwnUse(
            core=np.array([now.core], np.int16) - np.array([base.core], np.int16),
            hbm=np.array([now.hbm], np.int32) - np.array([base.hbm], np.int32),
            free=np.array([counted], np.uint64),
        )
    reasons, scores = evaluate_share(
        _columns([now], [usable]), shape.share, gang_pods=max(shape.gang_pods, 1), settings=settings, own=own
    )
    return int(reasons[0]), int(scores[0])


def pick_chip(soft_shares: SoftShareTable, share: Share, row: int, now: SharedNode, *, name: str, free: int) -> int:
    """Chip for one more pod on a node that fits.

    Args:
        soft_shares: Shared use of all nodes.
        share: Quota of the pod.
        row: The node.
        now: Its shared use now.
        name: Its name, for the error.
        free: Mask of its chips that no pod holds now.

    Raises:
        InvariantError: No chip fits.
    """
    chip = pick_share(
        share,
        free=free_of(soft_shares, row, now, free),
        core=now.core,
        hbm=now.hbm,
        policy=now.policy,
        memory_mib=now.memory_mib,
    )
    if chip is None:
        raise InvariantError("a node that fits has no chip for the pod", subject=f"node {name}")
    return chip


def free_of(soft_shares: SoftShareTable, row: int, now: SharedNode, free: int) -> int:
    """Mask of the chips of a node that a soft-share pod may get.

    A chip that is neither free nor shared belongs to other work, for example to an earlier gang of the same round.

    Args:
        soft_shares: Shared use of all nodes.
        row: The node.
        now: Its shared use now.
        free: Mask of its chips that no pod holds.
    """
    return soft_shares.free_for(row, now, ~(free | now.mask))


def _columns(nodes: Sequence[SharedNode], free: Sequence[int]) -> ShareColumns:
    return ShareColumns(
        core=np.array([node.core for node in nodes], np.int16),
        hbm=np.array([node.hbm for node in nodes], np.int32),
        policy=np.array([node.policy for node in nodes], np.uint8),
        memory_mib=np.array([node.memory_mib for node in nodes], np.int32),
        enabled=np.array([node.enabled for node in nodes], np.bool_),
        free=np.array(free, np.uint64),
    )
