"""Gangs with SuperPoD affinity in one round: free nodes of SuperPoDs, and the plans of the gangs."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.gangs import Gang
from berth.core.parity import differs
from berth.core.placement.round_nodes import RoundNodes, TouchedMarks
from berth.core.state.ledger import pods_of
from berth.core.state.superpod_index import BlockInputs
from berth.core.topologies.blocks.demand import Blocks, blocks_of
from berth.core.topologies.blocks.drawing import candidates, draw_nodes, not_enough_nodes
from berth.core.topologies.blocks.model import (
    VARIANTS,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
    rack_number,
)
from berth.core.topologies.blocks.placed import BlockPart, service_of
from berth.core.topologies.levels.model import NoLevels, Tree
from berth.core.topologies.levels.planner import plan_levels
from berth.core.topologies.levels.rescheduling import neighbours
from berth.core.topologies.racks.inference import plan_rack_service
from berth.core.topologies.racks.planner import plan_racks
from berth.core.topologies.superpods.inference import AffinityPreference, mindie_allocations, service_allocations
from berth.core.topologies.superpods.planner import plan_blocks
from berth.products.catalogue import FORMS
from berth.schemas.columns import pack
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import BlockLack, NearGroup

_NONE: Final = -1


class BlockAnswer(NamedTuple):
    """Row of each pod with chips, by rank, and the record of the plan in the placement."""

    rows: list[int]
    part: BlockPart


class BlockRound:
    """SuperPoDs and trees of levels during a round.

    Args:
        nodes: Nodes as the round leaves them.
        inputs: SuperPoDs, trees, and the jobs that were placed before the round.
    """

    def __init__(self, nodes: RoundNodes, inputs: BlockInputs) -> None:
        settings = nodes.scorer.settings
        self._nodes = nodes
        self._scorer = nodes.scorer
        self._superpods = inputs.superpods
        self._levels = inputs.levels
        self._colocation = inputs.colocation
        self.rules = BlockRules(settings.reserve_nodes, settings.super_pod_size, differs(settings))
        self._placed: list[tuple[Gang, Placement]] = []
        self._usable = TouchedMarks(nodes, int)  # marks are by row

    def note(self, gang: Gang, placement: Placement) -> None:
        """Add a placement of the round."""
        self._placed.append((gang, placement))
        self._nodes.note(self._placed.pop)

    def usable(self, shape: Shape, offered: Fits | None) -> Fits:
        """Rows that can take a pod of a shape.

        Args:
            shape: Shape of the pod.
            offered: Rows that could take it before the round, shape (rows,); None when no shard answered.

        Returns:
            Marks of shape (rows,).
        """
        if offered is None:
            return np.zeros(len(self._scorer.table), np.bool_)
        return self._usable.now(shape, offered)

    def plan(self, gang: Gang, fits: Fits) -> BlockAnswer | BlockLack:
        """Plan all pods with chips of a gang.

        Args:
            gang: The gang.
            fits: Rows that can take any of its pods, shape (rows,).

        Returns:
            The plan, or what is missing for one.
        """
        blocks = blocks_of_gang(gang)
        if blocks.levels:
            return self._by_levels(gang, blocks, fits)
        demand = block_demand(gang, blocks)
        pool = self.pool(fits, demand)
        if blocks.service or blocks.mindie:
            found = self._beside(blocks, demand, pool)
        elif blocks.rack_size:
            found = plan_racks(pool, demand, self.rules, unlinked=self.unlinked(pool))
        else:
            found = plan_blocks(pool, demand, self.rules)
        if isinstance(found, NoBlocks):
            return lack_of(found)
        if not found.is_whole:
            return BlockLack(
                "incomplete",
                demand.blocks,
                0,
                demand.block,
                nodes_need=demand.replicas,
                nodes_have=int((found.rows >= 0).sum()),
            )
        phases: dict[int, str] = {}
        for allocation in found.allocations:
            phases.setdefault(allocation.block_id, allocation.phase)
        names = [pool.ids[pod] for pod in found.pods.tolist()]
        return BlockAnswer(found.rows.tolist(), _part(gang, blocks, found.block_ids.tolist(), names, phases))

    def pool(self, fits: Fits, demand: BlockDemand) -> CandidatePool:
        """SuperPoDs with the rows that can take any pod of a gang.

        Args:
            fits: The rows, shape (rows,).
            demand: Request of the gang.
        """
        return self._superpods.pool(fits, idle=self._idle() if demand.replicas == 1 else None)

    def _by_levels(self, gang: Gang, blocks: Blocks, fits: Fits) -> BlockAnswer | BlockLack:
        """Plan a gang with levels."""
        replicas = sum(pods for shape, pods in gang.request_class if shape.is_planned)
        trees = self.trees(self.whole_nodes(gang, fits))
        found = plan_levels(trees, blocks.levels, replicas)
        if isinstance(found, NoLevels):
            return level_lack(found, blocks.levels, trees, replicas)
        groups = trees[found.tree].groups[-1]
        block_ids = found.blocks.tolist()
        names = [groups[group] for group in found.groups[found.blocks].tolist()]
        return BlockAnswer(
            found.rows.tolist(), _part(gang, blocks, block_ids, names, dict.fromkeys(block_ids, "level"))
        )

    def around(self, blocks: Blocks, row: int) -> Fits:
        """Rows beside that of a pod, shape (rows,): in its SuperPoD and rack, or in its group of level 1.

        Args:
            blocks: Requested blocks of its gang.
            row: Its row; -1 for an unknown node, with no rows beside it.
        """
        table = self._scorer.table
        found: Fits = np.zeros(len(table), np.bool_)
        if row < 0:
            return found
        if blocks.levels:
            for tree in self.trees(~found):
                found[neighbours(tree, row)] = True
            return found
        view = table.view()
        found = (table.superpod[view] == table.superpod[row]) & (table.superpod[view] >= 0)
        return found & (table.rack[view] == table.rack[row]) if blocks.rack_size else found

    def whole_nodes(self, gang: Gang, fits: Fits) -> Fits:
        """Of some rows the empty nodes that one pod of a gang fills, shape (rows,). See decision D-11."""
        table = self._scorer.table
        chips = max(shape.chips for shape, _ in gang.request_class)
        view = table.view()
        found: Fits = fits & (table.capacity[view] == chips) & (np.bitwise_count(table.free[view]) == chips)
        return found

    def trees(self, fits: Fits) -> list[Tree]:
        """Trees of levels with some rows, shape (rows,)."""
        return self._levels.trees(fits, self._scorer.settings.resource_levels)

    def superpod_of(self, row: int) -> str:
        """SuperPoD of a row; empty without one."""
        return self._scorer.table.superpod_at(row)

    def rack_of(self, row: int) -> int:
        """Number of the rack of a row; -1 if it is not known."""
        table = self._scorer.table
        rack = int(table.rack[row]) if row >= 0 else _NONE
        return rack_number(table.racks[rack]) if rack >= 0 else _NONE

    def _idle(self) -> Rows:
        """Free chips of each row, shape (rows,)."""
        table = self._nodes.columns()
        idle: Rows = np.bitwise_count(table.free[table.view()]).astype(np.int64)
        return idle

    def _beside(self, blocks: Blocks, demand: BlockDemand, pool: CandidatePool) -> BlockPlan | NoBlocks:
        """Plan an inference job."""
        hosts: list[tuple[str, int]] = []
        if blocks.service:
            nodes = [*self._colocation.of_service(blocks.service), *self._new(blocks.service)]
            hosts = sorted(set(self._superpods.places_of(nodes)))
        if blocks.rack_size:
            return plan_rack_service(pool, demand, hosts)
        pool = candidates(pool, demand)
        if len(pool.rows) < demand.replicas:
            return not_enough_nodes(pool, demand)
        counts = pool.counts
        if blocks.service:
            allocations = service_allocations(pool.ids, counts, demand, [superpod for superpod, _ in hosts])
        else:
            preference = AffinityPreference(blocks.idlest, self._liked(blocks, pool) if blocks.near else None)
            allocations = mindie_allocations(pool.ids, counts, demand, self.rules, preference)
        return allocations if isinstance(allocations, NoBlocks) else draw_nodes(pool, allocations, demand.replicas)

    def unlinked(self, pool: CandidatePool) -> Rows:
        """Rows of a pool with chips that have no network, or whose network state is unknown; ascending."""
        table, rows = self._scorer.table, pool.rows
        found: Rows = rows[((table.network[rows] & table.chips[rows]) != 0) | ~table.network_known[rows]]
        return found

    def _liked(self, blocks: Blocks, pool: CandidatePool) -> Rows:
        """Count of nodes of each SuperPoD with pods that the gang prefers to be near, candidates excluded."""
        table = self._scorer.table
        near = dict(blocks.near)
        nodes = set(self._colocation.of_labels(near))
        for gang, placement in self._placed:
            if near.items() <= gang.labels.items():
                nodes.update(placement.names())
        nodes.difference_update(table.names[row] for row in pool.rows.tolist())
        place = {name: index for index, name in enumerate(pool.ids)}
        matching = np.zeros(len(pool.ids), np.int64)
        for superpod, _ in self._superpods.places_of(sorted(nodes)):
            if superpod in place:
                matching[place[superpod]] += 1
        return matching

    def _new(self, service: str) -> list[str]:
        """Nodes of the jobs of an inference service that the round has placed."""
        return [
            pod.node for _, placement in self._placed if service_of(placement) == service for pod in pods_of(placement)
        ]


def blocks_of_gang(gang: Gang) -> Blocks:
    """Requested blocks of a gang with SuperPoD affinity.

    Raises:
        ValueError: It has no SuperPoD affinity.
    """
    blocks = blocks_of(gang.demand)
    if blocks is None:
        raise ValueError(f"gang {gang.namespace}/{gang.name} has no SuperPoD affinity")
    return blocks


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


def _part(
    gang: Gang, blocks: Blocks, block_ids: Sequence[int], superpods: Sequence[str], phases: Mapping[int, str]
) -> BlockPart:
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


def part_of(gang: Gang, blocks: Blocks, pods: Sequence[tuple[int, str] | None], phases: Mapping[int, str]) -> BlockPart:
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
    return BlockPart(
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


def level_lack(found: NoLevels, sizes: Sequence[int], trees: Sequence[Tree], pods: int) -> BlockLack:
    """Part of the refusal for a plan of levels that was not found.

    Args:
        found: What is missing.
        sizes: Number of pods that share a group, level 1 first.
        trees: Trees with the candidates.
        pods: Number of pods to place.
    """
    # When no tree has enough levels, the numbers count levels instead of nodes.
    size = sizes[found.level - 1] if 0 < found.level <= len(sizes) else int(found.gap != "levels")
    near = [NearGroup(found.tree, found.have, found.have)] if found.tree else []
    lack = "nodes" if found.gap == "nodes" else "level"
    nodes = sum(len(tree.rows) for tree in trees)
    return BlockLack(lack, found.need, found.have, size, nodes_need=pods, nodes_have=nodes, near=near)
