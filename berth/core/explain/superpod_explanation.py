"""Explains gangs with SuperPoD affinity: the blocks of a placed gang, or the nearest SuperPoDs of a waiting one."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.explain.superpod_layout import BlockLayout, BlockSeat, NearSuperpod, SuperpodUser, words_of_phase
from berth.core.explain.superpod_text import missing_blocks
from berth.core.gangs import Gang
from berth.core.placement.scoring import Reasons
from berth.core.state.cell import State
from berth.core.state.ledger import PodShare, pods_of
from berth.core.topologies.blocks.block_round import blocks_of_gang
from berth.core.topologies.blocks.demand import Blocks
from berth.core.topologies.blocks.placed import BlockPart, block_of
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.levels.level_map import LevelMap
from berth.core.topologies.planning import Ground, Planned
from berth.core.topologies.registry import begun
from berth.schemas.columns import unpack
from berth.schemas.ledger import Verdict
from berth.schemas.offers import Shape
from berth.schemas.placement import Placement
from berth.schemas.refusal import BlockLack, NodeReason

NEAREST: Final = 3
"""SuperPoDs that are reported for a waiting gang."""
_FITS: Final = int(NodeReason.FITS)
_NO_PLACE: Final = -1
_BY_BLOCK: Final = frozenset({"blocks", "service", "affinity"})
"""Refusal rules for which the nodes missing for one more block are reported."""


class Places(NamedTuple):
    """SuperPoDs, or groups of level 1, and their nodes.

    Attributes:
        names: Name of each.
        of_row: Index in ``names`` of each row, shape (rows,); -1 for none.
    """

    names: Sequence[str]
    of_row: Rows


class JobNodes(NamedTuple):
    """Nodes of a job.

    Attributes:
        job: ``namespace/name``.
        pods: Resources of each rank.
        part: Its blocks; None without SuperPoD affinity.
    """

    job: str
    pods: list[PodShare]
    part: BlockPart | None


class Seat(NamedTuple):
    """Position of a rank: its block, and its SuperPoD or group of level 1, which is empty only for adopted pods."""

    block: int
    superpod: str


def seats_of(part: BlockPart | None, ranks: int) -> list[Seat | None]:
    """Position of each rank; None for a rank without a block.

    Args:
        part: Blocks of the placement.
        ranks: Count of ranks of the placement.
    """
    if part is None:
        return [None] * ranks
    return [
        Seat(part.blocks[block - 1], part.superpods[superpod - 1] if superpod else "") if block else None
        for block, superpod in zip(unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True)
    ]


def superpods_of(state: State) -> Places:
    """All SuperPoDs in order of the table."""
    superpod_map = SuperpodMap(state.table)
    of_row = np.full(len(state.table), _NO_PLACE, np.int64)
    pool = superpod_map.pool(np.ones(len(state.table), np.bool_))
    of_row[pool.rows] = np.repeat(np.arange(len(pool.ids)), pool.counts)
    return Places(pool.ids, of_row)


def groups_of(state: State) -> Places:
    """All groups of level 1, tree after tree."""
    of_row = np.full(len(state.table), _NO_PLACE, np.int64)
    names: list[str] = []
    everyone = np.ones(len(state.table), np.bool_)
    for tree in LevelMap(state.table).trees(everyone, state.fold.settings.resource_levels):
        of_row[tree.rows] = tree.paths[-1] + len(names)
        names += tree.groups[-1]
    return Places(names, of_row)


def jobs_with_nodes(state: State, more: Iterable[tuple[str, Placement]] = ()) -> list[JobNodes]:
    """Nodes of all jobs, by job name.

    Args:
        state: The cell.
        more: Names and placements of jobs that are not yet in the state.
    """
    found = [
        JobNodes(f"{one.namespace}/{one.name}", state.owned(key), block_of(one.placement))
        for key, one in state.fold.holdings.items()
    ]
    found += [JobNodes(job, pods_of(placement), block_of(placement)) for job, placement in more]
    return sorted(found, key=lambda taken: taken.job)


def users(state: State, places: Places, jobs: Iterable[JobNodes]) -> dict[int, list[SuperpodUser]]:
    """Jobs with chips in each SuperPoD, by its index; the jobs of each SuperPoD by name."""
    row_of, of_row = state.table.row_of, places.of_row.tolist()
    found: dict[int, list[SuperpodUser]] = {}
    for taken in jobs:
        here: dict[int, list[Seat | None]] = {}
        count = 0
        for pod, seat in zip(taken.pods, seats_of(taken.part, len(taken.pods)), strict=True):
            if not pod.mask:
                continue
            count += 1
            row = row_of.get(pod.node, _NO_PLACE)
            place = of_row[row] if 0 <= row < len(of_row) else _NO_PLACE
            if place >= 0:
                here.setdefault(place, []).append(seat)
        for place, seats in here.items():
            ids = sorted({seat.block for seat in seats if seat is not None})
            found.setdefault(place, []).append(SuperpodUser(taken.job, len(seats), count, ids))
    return found


class SuperpodSnapshot:
    """SuperPoDs and their jobs just before a gang was placed."""

    def __init__(self, state: State, ground: Ground) -> None:
        self._state = state
        self._ground = ground
        self._more: list[tuple[str, Placement]] = []

    def take(self, verdict: Verdict, placement: Placement) -> None:
        """Apply an earlier verdict of the record."""
        self._more.append((f"{verdict.namespace}/{verdict.name}", placement))

    def placed(self, gang: Gang, part: BlockPart) -> BlockLayout:
        """Blocks of a placement.

        Args:
            gang: The gang.
            part: Blocks in its placement.
        """
        layout = self._layout(gang)
        layout.annotated = part.annotated
        layout.seats = _block_seats(part)
        layout.words = {phase: words_of_phase(phase, blocks_of_gang(gang)) for phase in part.phases}
        return layout

    def is_same(
        self,
        gang: Gang,
        part: BlockPart,
        names: Sequence[str],
        reasons: Mapping[Shape, Reasons],
    ) -> bool:
        """Whether planning again gives the same nodes in the same blocks.

        Args:
            gang: The gang.
            part: Blocks in its placement.
            names: Node of each rank.
            reasons: Reasons of all nodes by shape, before the gang took anything.
        """
        if gang.demand is None:
            return False
        turn = begun(gang.demand, self._ground, self._state.indexes)
        again = turn.plan(gang, _usable(gang, reasons))
        if not isinstance(again, Planned) or again.groups != [part.groups]:
            return False
        nodes = [self._state.table.names[row] for row in again.rows]
        return nodes == [name for name, block in zip(names, unpack(part.block_index, 2), strict=True) if block]

    def waiting(
        self, gang: Gang, lack: BlockLack | None, shape: Shape, reasons: Mapping[Shape, Reasons]
    ) -> BlockLayout:
        """The SuperPoDs with most usable nodes for a waiting gang.

        Args:
            gang: The gang.
            lack: What is missing, if known.
            shape: Shape of its pods.
            reasons: Reasons of all nodes, by shape.
        """
        layout = self._layout(gang)
        if lack is None:
            return layout
        layout.rule, layout.missing, layout.missing_size = lack.rule, missing_blocks(lack), lack.size
        blocks = blocks_of_gang(gang)
        places = groups_of(self._state) if blocks.levels else superpods_of(self._state)
        usable = _usable(gang, reasons)
        if blocks.levels:  # only nodes that one pod fills are candidates
            usable &= self._state.table.capacity[self._state.table.view()] == shape.chips
        nodes = _count(places, self._state.table.present[self._state.table.view()])
        counts = _count(places, usable)
        jobs = users(self._state, places, jobs_with_nodes(self._state, self._more))
        for place in np.argsort(-counts, kind="stable")[:NEAREST].tolist():
            count = int(counts[place])
            is_short = lack.rule in _BY_BLOCK and not blocks.rack_size
            layout.nearest.append(
                NearSuperpod(
                    superpod=places.names[place],
                    usable=count,
                    nodes=int(nodes[place]),
                    blocks=self._whole(blocks, np.flatnonzero(usable & (places.of_row == place))),
                    lacks=blocks.size - count % blocks.size if is_short else 0,
                    unfit=_unfit(reasons[shape][(places.of_row == place)]),
                    jobs=jobs.get(place, []),
                )
            )
        return layout

    def _layout(self, gang: Gang) -> BlockLayout:
        blocks = blocks_of_gang(gang)
        keeps = not (blocks.service or blocks.rack_size or blocks.levels)
        return BlockLayout(
            variant=blocks.variant,
            pods=sum(pods for shape, pods in gang.request_class if shape.is_planned),
            size=blocks.size,
            count=blocks.number,
            soft=blocks.soft,
            reserve=self._ground.settings.reserve_nodes if keeps else 0,
            rack_size=blocks.rack_size,
            levels=list(blocks.levels),
            service=blocks.service,
            mindie=blocks.mindie,
        )

    def _whole(self, blocks: Blocks, rows: Rows) -> int:
        """Whole blocks that fit on some nodes of a SuperPoD; with racks, of parts that stay in one rack."""
        if not blocks.rack_size:
            return len(rows) // blocks.size
        racks = Counter(self._state.table.rack[rows].tolist())
        part = blocks.size if blocks.service else blocks.rack_size
        return sum(nodes // part for rack, nodes in racks.items() if rack >= 0) * part // blocks.size


def _usable(gang: Gang, reasons: Mapping[Shape, Reasons]) -> Fits:
    """Nodes that can take any planned pod of the gang, shape (rows,)."""
    found: Fits = np.logical_and.reduce(
        [reasons[shape] == _FITS for shape, _ in gang.request_class if shape.is_planned]
    )
    return found


def _count(places: Places, marks: Fits) -> Rows:
    """Marked nodes of each place."""
    return np.bincount(places.of_row[marks & (places.of_row >= 0)], minlength=len(places.names))


def _unfit(reasons: Reasons) -> dict[str, int]:
    """Nodes that do not fit, by reason, most frequent first."""
    counts = Counter(int(reason) for reason in reasons.tolist() if reason != _FITS)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {NodeReason(reason).name.lower(): nodes for reason, nodes in ordered}


def _block_seats(part: BlockPart) -> list[BlockSeat]:
    """Ranks of each block, by its id; a block in two SuperPoDs has two entries."""
    ranks: dict[Seat, list[int]] = {}
    for rank, seat in enumerate(seats_of(part, len(part.block_index) // 2)):
        if seat is not None:
            ranks.setdefault(seat, []).append(rank)
    phases = dict(zip(part.blocks, part.phases, strict=True))
    return [
        BlockSeat(seat.block, seat.superpod, len(found), found, phases[seat.block])
        for seat, found in sorted(ranks.items(), key=lambda item: (item[0].block, item[1]))
    ]
