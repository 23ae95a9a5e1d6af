"""Gangs with blocks in one round: free nodes of SuperPoDs, and what a placement records of the plans."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.gangs import Gang
from berth.core.parity import differs
from berth.core.pod_shares import pods_of
from berth.core.topologies.blocks.demand import VARIANTS, Blocks, blocks_of_gang
from berth.core.topologies.blocks.explanation import BlockExplanations, Places, superpods_of
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, BlockRules, CandidatePool, NoBlocks
from berth.core.topologies.blocks.placed import BlockPlacement, service_of
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.planning import Ground, Lack, Planned
from berth.products.catalogue import FORMS
from berth.schemas.columns import pack
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.refusal import BlockLack, NearGroup

CODE: Final = "no-blocks"


class BlockRound(BlockExplanations):
    """SuperPoDs during a round.

    Args:
        ground: What it sees of the round.
        superpods: SuperPoDs of the nodes.
    """

    def __init__(self, ground: Ground, superpods: SuperpodMap) -> None:
        settings = ground.settings
        self.ground = ground
        self.table = ground.table
        self.rules = BlockRules(settings.reserve_nodes, settings.super_pod_size, differs(settings))
        self.superpods = superpods

    def plan(self, gang: Gang, usable: Fits) -> Planned | Lack:
        """Plan all pods with chips of a gang."""
        blocks = blocks_of_gang(gang)
        demand = block_demand(gang, blocks)
        pool = self.pool(usable, demand)
        found = self.found(blocks, demand, pool)
        if isinstance(found, NoBlocks):
            return block_lack(lack_of(found))
        if not found.is_whole:
            have = int((found.rows >= 0).sum())
            return block_lack(
                BlockLack("incomplete", demand.blocks, 0, demand.block, nodes_need=demand.replicas, nodes_have=have)
            )
        phases: dict[int, str] = {}
        for allocation in found.allocations:
            phases.setdefault(allocation.block_id, allocation.phase)
        names = [pool.ids[pod] for pod in found.pods.tolist()]
        part = whole_part(gang, blocks, found.block_ids.tolist(), names, phases)
        return Planned(found.rows.tolist(), [part.groups])

    def found(self, blocks: Blocks, demand: BlockDemand, pool: CandidatePool) -> BlockPlan | NoBlocks:
        """Plan of a gang in SuperPoDs.

        Args:
            blocks: Its requested blocks.
            demand: The same for the planners.
            pool: SuperPoDs with the rows that can take any of its pods.
        """
        raise NotImplementedError

    def pool(self, fits: Fits, demand: BlockDemand) -> CandidatePool:
        """SuperPoDs with the rows that can take any pod of a gang.

        Args:
            fits: The rows, shape (rows,).
            demand: Request of the gang.
        """
        return self.superpods.pool(fits, idle=self._idle() if demand.replicas == 1 else None)

    def places(self) -> Places:
        """All SuperPoDs in their order."""
        return superpods_of(self.table, self.superpods)

    def beside(self, demand: Demand, row: int) -> Fits:  # noqa: ARG002  # the port has it
        """Rows in the SuperPoD of a row, shape (rows,)."""
        view = self.table.view()
        if row < 0:
            return np.zeros(len(self.table), np.bool_)
        found: Fits = (self.table.superpod[view] == self.table.superpod[row]) & (self.table.superpod[view] >= 0)
        return found

    def hosts(self, service: str) -> list[tuple[str, int]]:
        """SuperPoD and rack of the nodes with jobs of an inference service, each once, in order; none without one."""
        if not service:
            return []

        def serves(placement: Placement) -> bool:
            return service_of(placement) == service

        placed = (one.placement for one in self.ground.placed)
        new = [pod.node for placement in placed if serves(placement) for pod in pods_of(placement)]
        nodes = [*self.ground.colocation.of_placed(serves), *new]
        return sorted(set(self.superpods.places_of(nodes)))

    def _idle(self) -> Rows:
        """Free chips of each row, shape (rows,)."""
        table = self.ground.columns()
        idle: Rows = np.bitwise_count(table.free[table.view()]).astype(np.int64)
        return idle


def block_demand(gang: Gang, blocks: Blocks) -> BlockDemand:
    """Demand of a gang with SuperPoD affinity for the planner."""
    return BlockDemand(
        VARIANTS[blocks.variant],
        blocks.size,
        sum(pods for shape, pods in gang.request_class if shape.is_planned),
        soft=blocks.soft,
        rack_block=blocks.rack_size,
        ub_memory=blocks.memory,
    )


def whole_part(
    gang: Gang, blocks: Blocks, block_ids: Sequence[int], superpods: Sequence[str], phases: Mapping[int, str]
) -> BlockPlacement:
    """Record of a plan in the placement.

    Args:
        gang: The gang.
        blocks: Its requested blocks.
        block_ids: Block of each pod with chips, by rank.
        superpods: SuperPoD, or group of the lowest level, of each of these pods.
        phases: Phase of the selection that chose the nodes of each block.
    """
    ranks = iter(zip(block_ids, superpods, strict=True))
    shapes = [shape for shape, pods in gang.request_class for _ in range(pods)]
    return part_of(gang, blocks, [next(ranks) if shape.is_planned else None for shape in shapes], phases)


def part_of(
    gang: Gang, blocks: Blocks, pods: Sequence[tuple[int, str] | None], phases: Mapping[int, str]
) -> BlockPlacement:
    """Record of planned pods in a placement.

    Args:
        gang: Their gang.
        blocks: Its requested blocks.
        pods: Block and SuperPoD, or group of the lowest level, of each pod of the placement; None for a pod without.
        phases: Phase of the selection that chose the nodes of each block.
    """
    known = [pod for pod in pods if pod is not None]
    block_order = {block_id: index for index, block_id in enumerate(sorted({pod[0] for pod in known}), start=1)}
    superpod_order = {name: index for index, name in enumerate(dict.fromkeys(pod[1] for pod in known), start=1)}
    return BlockPlacement(
        variant=blocks.variant,
        size=blocks.size,
        blocks=list(block_order),
        phases=[phases[block_id] for block_id in block_order],
        superpods=list(superpod_order),
        block_index=pack([0 if pod is None else block_order[pod[0]] for pod in pods], 2),
        superpod_index=pack([0 if pod is None else superpod_order[pod[1]] for pod in pods], 2),
        annotated=FORMS[gang.form].block_annotations,
        service=blocks.service,
    )


def lack_of(found: NoBlocks) -> BlockLack:
    """Part of the refusal for a plan that was not found."""
    return BlockLack(
        rule=found.lack,
        need=found.blocks_need,
        have=found.blocks_have,
        size=found.block,
        nodes_need=found.nodes_need,
        nodes_have=found.nodes_have,
        near=[NearGroup(near.superpod, near.free, near.blocks) for near in found.closest],
    )


def block_lack(lack: BlockLack) -> Lack:
    """Why there is no plan of blocks."""
    return Lack(CODE, {"blocks": lack})
