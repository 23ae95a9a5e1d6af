"""SuperPoDs in few words: node ``13`` is the fourth of SuperPoD 1."""

from collections.abc import Sequence

import numpy as np

from berth.core.topologies.blocks.model import BlockPlan, CandidatePool, pool_of
from berth.core.topologies.superpods.block_history import NOWHERE, HeldBlock, PodFate

STAYS = {"": PodFate.RUNS, "r": PodFate.RETURNS, "x": PodFate.LOST}


def a_pool(candidates: str, *, superpods: int = 4, sub_healthy: str = "") -> CandidatePool:
    """SuperPoDs with these candidates; those of ``sub_healthy`` are sub-healthy."""
    rows = [int(word) for word in candidates.split()]
    sick = {int(word) for word in sub_healthy.split()}
    return pool_of(
        [str(superpod) for superpod in range(superpods)],
        np.array([row // 10 for row in rows], np.int64),
        np.array(rows, np.int64),
        sub_healthy=np.array([row in sick for row in rows], np.bool_),
    )


def blocks(*words: str, first: Sequence[int] = ()) -> list[HeldBlock]:
    """Blocks of consecutive ranks: ``13`` runs, ``13r`` returns, ``13x`` is lost, ``?x`` is lost from nobody knows
    where.

    Args:
        words: Nodes of each block.
        first: Ids of the blocks; without, counted from 0.
    """
    held, rank = [], 0
    for index, block in enumerate(words):
        nodes = block.split()
        rows = tuple(NOWHERE if node.startswith("?") else int(node.rstrip("rx")) for node in nodes)
        fates = tuple(STAYS[node.lstrip("?0123456789")] for node in nodes)
        home = next((str(row // 10) for row in rows if row != NOWHERE), "")
        ranks = tuple(range(rank, rank + len(nodes)))
        held.append(HeldBlock(first[index] if first else index, home, ranks, rows, fates))
        rank += len(nodes)
    return held


def nodes_of(plan: BlockPlan) -> str:
    """Node of each rank."""
    return " ".join(f"{row:02}" if row != NOWHERE else "--" for row in plan.rows.tolist())


def grants_of(plan: BlockPlan) -> str:
    """Each grant: block, SuperPoD, nodes and what gave them."""
    return ", ".join(
        f"{allocation.block_id}:{allocation.pod}x{allocation.nodes} {allocation.phase}"
        for allocation in plan.allocations
    )
