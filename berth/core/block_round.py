"""Gangs with SuperPoD affinity in one round: which nodes are left for them, and who gets them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from berth.core.gangs import Gang
from berth.core.ledger import pods_of
from berth.core.scoring import Fits, RowState, Scorer
from berth.core.superpod_ground import Company, SuperpodMap
from berth.core.superpod_infer import Taste, mindie_grants, service_grants
from berth.core.superpod_terms import BlockPlan, NoBlocks, Rows, Rules, Want, Yard
from berth.core.superpods import candidates, drawn, not_enough_nodes, plan_blocks
from schemas.columns import pack
from schemas.offers import Blocks, Shape
from schemas.placement import BlockPart, Placement
from schemas.refusal import BlockLack, NearGroup

_ANNOTATED: Final = frozenset({"a3", "850"})
"""Variants whose pods are told where they are. Source: specification, SuperPoD affinity, section 11."""
_NONE: Final = -1


class BlockRound:
    """SuperPoDs while a round goes on.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged while the round goes on.
        ground: The SuperPoDs.
        company: Jobs that were placed before the round.
    """

    def __init__(self, scorer: Scorer, ground: SuperpodMap, company: Company) -> None:
        settings = scorer.settings
        self._scorer = scorer
        self._ground = ground
        self._company = company
        self._rules = Rules(settings.reserve_nodes, settings.super_pod_size, settings.reference_parity)
        self._placed: list[tuple[Gang, Placement]] = []
        self._marks: dict[Shape, tuple[Fits, int]] = {}
        """Rows that take a pod of a shape, and how much of the log of touched rows is in them."""

    def note(self, gang: Gang, placement: Placement) -> None:
        """Note what the round has given a gang."""
        self._placed.append((gang, placement))

    def usable(self, shape: Shape, offered: Fits, log: Sequence[int], state_of: Callable[[int], RowState]) -> Fits:
        """Rows that can take a pod of a shape now.

        Args:
            shape: What is asked.
            offered: Rows that could before the round.
            log: Rows that the round has touched so far, in its order.
            state_of: State in which it left a row.
        """
        marks, seen = self._marks.get(shape) or (offered.copy(), 0)
        for row in dict.fromkeys(log[seen:]):
            marks[row] = not self._scorer.evaluate_one(shape, row, state_of(row))[0]
        self._marks[shape] = (marks, len(log))
        return marks

    def plan(self, gang: Gang, fits: Fits, states: Mapping[int, RowState]) -> BlockPlan | NoBlocks:
        """Where the pods with chips of a gang go, every one of them, when these rows are usable for each.

        Args:
            gang: The gang.
            fits: One mark a row.
            states: Rows that the round has touched, as it left them.
        """
        blocks = blocks_of(gang)
        want = want_of(gang)
        idle = self._idle(states) if want.replicas == 1 else None
        yard = self._ground.yard(fits, idle=idle)
        if blocks.service or blocks.mindie:
            found = self._beside(blocks, want, candidates(yard, want))
        else:
            found = plan_blocks(yard, want, self._rules)
        if isinstance(found, BlockPlan) and not found.is_whole:
            return NoBlocks(
                lack="incomplete",
                block=want.block,
                blocks_need=want.blocks,
                blocks_have=len({grant.vid for grant in found.grants if grant.nodes >= want.block}),
                nodes_need=want.replicas,
                nodes_have=int((found.rows >= 0).sum()),
            )
        return found

    def part(self, gang: Gang, found: BlockPlan) -> BlockPart:
        """What a placement says of a plan."""
        blocks = blocks_of(gang)
        vids, pods = found.vids.tolist(), found.pods.tolist()
        block_order = {vid: index for index, vid in enumerate(sorted(set(vids)), start=1)}
        pod_order = {pod: index for index, pod in enumerate(dict.fromkeys(pods), start=1)}
        phases: dict[int, str] = {}
        for grant in found.grants:
            phases.setdefault(grant.vid, grant.phase)
        block_index: list[int] = []
        superpod_index: list[int] = []
        ranks = iter(zip(vids, pods, strict=True))
        for shape, count in gang.klass:
            for _ in range(count):
                vid, pod = next(ranks) if shape.blocks is not None else (_NONE, _NONE)
                block_index.append(block_order.get(vid, 0))
                superpod_index.append(pod_order.get(pod, 0))
        ids = self._ground.ids
        return BlockPart(
            variant=blocks.variant,
            size=blocks.size,
            blocks=list(block_order),
            phases=[phases[vid] for vid in block_order],
            superpods=[ids[pod] for pod in pod_order],
            block_index=pack(block_index, 2),
            superpod_index=pack(superpod_index, 2),
            annotated=blocks.variant in _ANNOTATED,
            service=blocks.service,
        )

    def _idle(self, states: Mapping[int, RowState]) -> Rows:
        """Free chips of each row."""
        table = self._scorer.table
        idle: Rows = np.bitwise_count(table.free[table.view()]).astype(np.int64)
        for row, state in states.items():
            idle[row] = state.free.bit_count()
        return idle

    def _beside(self, blocks: Blocks, want: Want, yard: Yard) -> BlockPlan | NoBlocks:
        """Plan of an inference job."""
        if len(yard.rows) < want.replicas:
            return not_enough_nodes(yard, want)
        counts = yard.counts
        if blocks.service:
            hosts = self._superpods([*self._company.of_service(blocks.service), *self._new(blocks.service)])
            grants = service_grants(yard.ids, counts, want, sorted(set(hosts)))
        else:
            taste = Taste(blocks.idlest, self._liked(blocks, yard) if blocks.near else None)
            grants = mindie_grants(yard.ids, counts, want, self._rules, taste)
        return grants if isinstance(grants, NoBlocks) else drawn(yard, grants, want.replicas)

    def _liked(self, blocks: Blocks, yard: Yard) -> Rows:
        """Nodes of each SuperPoD that carry pods which the gang wants beside it, candidates left out."""
        table = self._scorer.table
        near = dict(blocks.near)
        nodes = set(self._company.of_labels(near))
        for gang, placement in self._placed:
            if near.items() <= gang.labels.items():
                nodes.update(placement.names())
        nodes.difference_update(table.names[row] for row in yard.rows.tolist())
        place = {name: index for index, name in enumerate(yard.ids)}
        liked = np.zeros(len(yard.ids), np.int64)
        for superpod in self._superpods(sorted(nodes)):
            if superpod in place:
                liked[place[superpod]] += 1
        return liked

    def _superpods(self, nodes: Sequence[str]) -> list[str]:
        return self._ground.superpods_of(nodes)

    def _new(self, service: str) -> list[str]:
        """Nodes that the round has given to jobs of a service."""
        return [
            pod.node
            for _, placement in self._placed
            if placement.block is not None and placement.block.service == service
            for pod in pods_of(placement)
        ]


def blocks_of(gang: Gang) -> Blocks:
    """How the pods with chips of a gang with SuperPoD affinity are to lie.

    Raises:
        ValueError: It has no SuperPoD affinity.
    """
    for shape, _ in gang.klass:
        if shape.blocks is not None:
            return shape.blocks
    raise ValueError(f"gang {gang.namespace}/{gang.name} has no SuperPoD affinity")


def want_of(gang: Gang) -> Want:
    """What a gang with SuperPoD affinity asks of SuperPoDs."""
    blocks = blocks_of(gang)
    replicas = sum(pods for shape, pods in gang.klass if shape.blocks is not None)
    variant = blocks.variant
    if variant not in {"a3", "850", "rack"}:
        raise ValueError(f"variant {variant} is not planned in SuperPoDs")
    return Want(
        variant,
        blocks.size,
        replicas,
        soft=blocks.soft,
        rack_block=blocks.rack_size,
        ub_memory=blocks.memory,
    )


def lack_of(found: NoBlocks) -> BlockLack:
    """What a refusal says of a plan that was not found."""
    return BlockLack(
        rule=found.lack,
        need=found.blocks_need,
        have=found.blocks_have,
        size=found.block,
        nodes_need=found.nodes_need,
        nodes_have=found.nodes_have,
        near=[NearGroup(near.superpod, near.free, near.blocks) for near in found.closest],
    )
