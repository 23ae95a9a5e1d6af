"""Explains gangs with blocks: the blocks of a placed gang, or the nearest SuperPoDs of a waiting one."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.gangs import Gang
from berth.core.topologies.blocks.demand import blocks_of_gang
from berth.core.topologies.blocks.placed import BlockPlacement, block_of
from berth.core.topologies.blocks.superpod_map import SuperpodMap
from berth.core.topologies.blocks.text import missing_blocks, words_of_phase
from berth.core.topologies.layouts import (
    NO_LAYOUTS,
    BlockLayout,
    BlockSeat,
    JobPods,
    Layouts,
    NearSuperpod,
    Seat,
    SuperpodUser,
    WaitingGang,
    unfit,
)
from berth.core.topologies.planning import Lack, TopologyRound
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement

NEAREST: Final = 3
"""SuperPoDs that are reported for a waiting gang."""
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


def seats_of(placement: Placement) -> list[Seat | None]:
    """Position of each rank, of which the SuperPoD is empty only for adopted pods; None for a rank without a block."""
    part = block_of(placement)
    if part is None or not part.block_index:
        return [None] * placement.pods()
    return [
        Seat(superpod=part.superpods[superpod - 1] if superpod else "", block=part.blocks[block - 1]) if block else None
        for block, superpod in zip(unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True)
    ]


def superpods_of(table: NodeTable, superpods: SuperpodMap) -> Places:
    """All SuperPoDs in their order."""
    of_row = np.full(len(table), _NO_PLACE, np.int64)
    pool = superpods.pool(np.ones(len(table), np.bool_))
    of_row[pool.rows] = np.repeat(np.arange(len(pool.ids)), pool.counts)
    return Places(pool.ids, of_row)


def users(table: NodeTable, places: Places, jobs: Iterable[JobPods]) -> dict[int, list[SuperpodUser]]:
    """Jobs with chips in each SuperPoD, by its index; the jobs of each SuperPoD in the order of ``jobs``."""
    row_of, of_row = table.row_of, places.of_row.tolist()
    found: dict[int, list[SuperpodUser]] = {}
    for job in jobs:
        here: dict[int, list[Seat | None]] = {}
        count = 0
        for pod, seat in zip(job.owned, seats_of(job.placement), strict=True):
            if not pod.mask:
                continue
            count += 1
            row = row_of.get(pod.node, _NO_PLACE)
            place = of_row[row] if 0 <= row < len(of_row) else _NO_PLACE
            if place >= 0:
                here.setdefault(place, []).append(seat)
        for place, seats in here.items():
            ids = sorted({seat.block for seat in seats if seat is not None})
            found.setdefault(place, []).append(SuperpodUser(job.job, len(seats), count, ids))
    return found


class BlockExplanations(TopologyRound):
    """A topology with blocks during a round: what it says of a gang.

    Attributes:
        table: The nodes.
        reserve_nodes: Nodes that stay reserved in a SuperPoD while another one has room.
    """

    table: NodeTable
    reserve_nodes: int = 0

    def places(self) -> Places:
        """All SuperPoDs, or groups of level 1."""
        raise NotImplementedError

    def candidates(self, asked: WaitingGang) -> Fits:
        """Rows that can take a pod of a gang, shape (rows,)."""
        return asked.usable

    def whole(self, layout: BlockLayout, rows: Rows) -> int:
        """Whole blocks that fit on some rows of a place."""
        return len(rows) // layout.size

    def explain_placed(
        self, gang: Gang, placement: Placement, usable: Fits, *, is_current: bool
    ) -> tuple[Layouts, bool]:
        """Blocks of a placement, and whether planning again gives the same nodes in the same blocks."""
        part = block_of(placement)
        if part is None:
            return NO_LAYOUTS, True
        layout = self._layout(gang)
        layout.annotated = part.annotated
        layout.seats = _block_seats(part)
        layout.words = {phase: words_of_phase(phase, blocks_of_gang(gang)) for phase in part.phases}
        return Layouts(blocks=layout), is_current or self._is_same(gang, placement, part, usable)

    def explain_waiting(self, asked: WaitingGang) -> Layouts:
        """The SuperPoDs, or groups of level 1, with most usable nodes for a waiting gang."""
        layout = self._layout(asked.gang)
        lack = asked.refusal.blocks if asked.refusal is not None else None
        if lack is None:
            return Layouts(blocks=layout)
        layout.rule, layout.missing, layout.missing_size = lack.rule, missing_blocks(lack), lack.size
        table, places, usable = self.table, self.places(), self.candidates(asked)
        nodes, counts = _count(places, table.present[table.view()]), _count(places, usable)
        jobs = users(table, places, asked.jobs())
        is_short = lack.rule in _BY_BLOCK and not layout.rack_size
        for place in np.argsort(-counts, kind="stable")[:NEAREST].tolist():
            count, here = int(counts[place]), places.of_row == place
            layout.nearest.append(
                NearSuperpod(
                    superpod=places.names[place],
                    usable=count,
                    nodes=int(nodes[place]),
                    blocks=self.whole(layout, np.flatnonzero(usable & here)),
                    lacks=layout.size - count % layout.size if is_short else 0,
                    unfit=unfit(asked.reasons[here]),
                    jobs=jobs.get(place, []),
                )
            )
        return Layouts(blocks=layout)

    def _layout(self, gang: Gang) -> BlockLayout:
        blocks = blocks_of_gang(gang)
        return BlockLayout(
            variant=blocks.variant,
            pods=sum(pods for shape, pods in gang.request_class if shape.is_planned),
            size=blocks.size,
            count=blocks.number,
            soft=blocks.soft,
            reserve=0 if blocks.service else self.reserve_nodes,
            rack_size=blocks.rack_size,
            levels=list(blocks.levels),
            service=blocks.service,
            mindie=blocks.mindie,
        )

    def _is_same(self, gang: Gang, placement: Placement, part: BlockPlacement, usable: Fits) -> bool:
        again = self.plan(gang, usable)
        if isinstance(again, Lack) or again.groups != [part.groups]:
            return False
        nodes = [self.table.names[row] for row in again.rows]
        in_blocks = zip(placement.names(), unpack(part.block_index, 2), strict=True)
        return nodes == [name for name, block in in_blocks if block]


def _count(places: Places, marks: Fits) -> Rows:
    """Marked nodes of each place."""
    return np.bincount(places.of_row[marks & (places.of_row >= 0)], minlength=len(places.names))


def _block_seats(part: BlockPlacement) -> list[BlockSeat]:
    """Ranks of each block, by its id; a block in two SuperPoDs has two entries."""
    ranks: dict[tuple[int, str], list[int]] = {}
    for rank, (block, superpod) in enumerate(
        zip(unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True)
    ):
        if block:
            seat = (part.blocks[block - 1], part.superpods[superpod - 1] if superpod else "")
            ranks.setdefault(seat, []).append(rank)
    phases = dict(zip(part.blocks, part.phases, strict=True))
    return [
        BlockSeat(block, superpod, len(found), found, phases[block])
        for (block, superpod), found in sorted(ranks.items(), key=lambda item: (item[0][0], item[1]))
    ]
