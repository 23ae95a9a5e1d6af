"""Planned pods of a placed gang with SuperPoD affinity, racks or levels, and their new places."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.node_groups import Rows
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.block_round import block_demand, block_lack, part_of
from berth.core.topologies.blocks.demand import Blocks, blocks_of_gang
from berth.core.topologies.blocks.model import BlockDemand
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Lack, Replaced
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement
from berth.schemas.refusal import BlockLack


class BlockPods:
    """Planned pods of a gang, numbered by rank as the planners do it.

    An attempt that was found again, because its record is lost, may lack blocks: not every product names them in the
    annotations of its pods, and some pods may be gone. The block of such a pod follows from its rank, its SuperPoD from
    its node or from its block. A pod that is gone has no place at all, and gets a new one.

    Source: docs/reference/superpods.md, "Places after a fault".

    Args:
        leaving: The leaving pods.
        own: Places of the gang.
        table: The nodes.

    Attributes:
        request: Requested blocks.
        ranks: Rank of each planned pod.
        rows: Row of its node; -1 for an unknown node.
        block_ids: Its block.
        superpods: Its SuperPoD, or its group of the lowest level.
        moving: Whether it leaves.
        homes: Row to which it can return without a fault, by number.
        faulty_homes: Row to which it could return though it is faulty, by number.
    """

    def __init__(self, leaving: LeavingPods, own: OwnPlaces, table: NodeTable) -> None:
        self._leaving = leaving
        self._own = own
        self.request: Blocks = blocks_of_gang(leaving.gang)
        self.ranks = [rank for rank, shape in enumerate(own.shapes) if shape.is_planned]
        self.rows = [own.row(rank) if own.pods[rank].mask else -1 for rank in self.ranks]
        known = _known_blocks(leaving.placement)
        size = self.request.levels[0] if self.request.levels else self.request.size
        self.block_ids = _filled([known[rank][0] if rank in known else None for rank in self.ranks], size)
        seats = zip(self.ranks, self.rows, strict=True)
        self.superpods = [known[rank][1] if rank in known else table.superpod_at(row) for rank, row in seats]
        of_block = {block: name for block, name in zip(self.block_ids, self.superpods, strict=True) if name}
        self.superpods = [
            name or of_block.get(block, "") for block, name in zip(self.block_ids, self.superpods, strict=True)
        ]
        leaves = frozenset(leaving.ranks)
        self.moving = [rank in leaves for rank in self.ranks]
        self.homes: dict[int, int] = {}
        self.faulty_homes: dict[int, int] = {}
        for number, rank in enumerate(self.ranks):
            home = own.usable(rank)
            if home is not None:
                (self.faulty_homes if rank in leaving.faulty else self.homes)[number] = home

    @property
    def demand(self) -> BlockDemand:
        """Requested blocks for the planners; not for levels."""
        return block_demand(self._leaving.gang, self.request)

    def is_faulty(self, number: int) -> bool:
        """Whether a pod is faulty."""
        return self.ranks[number] in self._leaving.faulty

    def is_released(self, number: int) -> bool:
        """Whether a pod owns nothing any more of the place that it had."""
        return self.rows[number] >= 0 and self.ranks[number] in self._leaving.released

    def staying(self, numbers: Sequence[int]) -> list[int]:
        """Ranks of those of some pods that keep their places, ascending."""
        staying = frozenset(self._own.staying)
        return sorted(rank for rank in (self.ranks[number] for number in numbers) if rank in staying)

    def trials(self, fits: Fits, avoided: Collection[int]) -> Iterator[tuple[Fits, dict[int, int]]]:
        """Rows for new places, shape (rows,), and the row to which each leaving pod can return, by number; best first.

        Args:
            fits: Rows that can take any of the pods, shape (rows,).
            avoided: Rows that are used last.
        """
        if avoided:
            others = fits.copy()
            others[list(avoided)] = False
            yield others, dict(self.homes)
        yield fits.copy(), dict(self.homes)
        if self.faulty_homes:
            yield fits.copy(), self.homes | self.faulty_homes

    def held(self, open_rows: Fits, homes: Mapping[int, int], given_up: Collection[int] = ()) -> Rows:
        """Row that each pod keeps or can return to, shape (pods,); -1 for none, and for a faulty pod.

        Args:
            open_rows: Rows for new places, shape (rows,).
            homes: Row to which each leaving pod can return, by number.
            given_up: Pods that are to move, by number.
        """
        rows = [-1 if number in given_up else row for number, row in enumerate(self.rows)]
        for number in (number for number, leaves in enumerate(self.moving) if leaves):
            returns = number in homes or (
                self.is_released(number) and rows[number] >= 0 and bool(open_rows[rows[number]])
            )
            if self.is_faulty(number) or not returns:
                rows[number] = -1
        return np.array(rows, np.int64)

    def places(self, rows: Sequence[int], open_rows: Fits, homes: Mapping[int, int]) -> int:
        """Number of leaving pods with a place of their own: on an open row, or the one to which they can return.

        Args:
            rows: New row of each pod.
            open_rows: Rows for new places, shape (rows,).
            homes: Row to which each leaving pod can return, by number.
        """
        new = [(number, row) for number, row in enumerate(rows) if self.moving[number] and row >= 0]
        return len({row for number, row in new if open_rows[row] or homes.get(number) == row})

    def foreign(self, rows: Sequence[int], own: Mapping[int, int]) -> list[int]:
        """Pods to whose own nodes other pods would go, by number.

        Args:
            rows: New row of each pod.
            own: Row that some pods keep or can return to, by number.
        """
        at = {row: number for number, row in enumerate(rows)}
        return [number for number, home in own.items() if at.get(home, number) != number]

    def give_up(self, pods: Iterable[int], given_up: set[int], open_rows: Fits, homes: dict[int, int]) -> None:
        """Leave the own nodes of some pods out of the next plan: nobody gets them.

        Args:
            pods: The pods, by number.
            given_up: Pods that are to move, by number; they are added to it.
            open_rows: Rows for new places, shape (rows,); is changed.
            homes: Row to which each leaving pod can return, by number; is changed.
        """
        for number in pods:
            given_up.add(number)
            homes.pop(number, None)
            open_rows[self.rows[number]] = False

    def answer(
        self, rows: Sequence[int], block_ids: Sequence[int], superpods: Sequence[str], phases: Mapping[int, str]
    ) -> Replaced:
        """Places of the pods that leave.

        Args:
            rows: New row of each pod.
            block_ids: Its block.
            superpods: Its SuperPoD, or its group of the lowest level.
            phases: Rule that chose the nodes of each block; ``kept`` for a block without one.
        """
        new = {rank: rows[number] for number, rank in enumerate(self.ranks) if self.moving[number]}
        place = {rank: (block_ids[number], superpods[number]) for number, rank in enumerate(self.ranks)}
        rules = dict.fromkeys(block_ids, "kept") | dict(phases)
        pods = [place.get(rank) for rank in self._leaving.ranks]
        return Replaced(new, [part_of(self._leaving.gang, self.request, pods, rules).groups])

    def incomplete(self, found: int) -> Lack:
        """A plan that has places for too few of the pods that leave.

        Args:
            found: Number of its places.
        """
        request, need = self.request, sum(self.moving)
        return block_lack(BlockLack("incomplete", request.number, 0, request.size, nodes_need=need, nodes_have=found))


def _known_blocks(placement: Placement) -> dict[int, tuple[int, str]]:
    """Block and SuperPoD, or group of the lowest level, of the ranks of which the placement says both."""
    part = block_of(placement)
    if part is None:
        return {}
    seats = zip(unpack(part.block_index, 2), unpack(part.superpod_index, 2), strict=True)
    return {
        rank: (part.blocks[block - 1], part.superpods[superpod - 1])
        for rank, (block, superpod) in enumerate(seats)
        if block and superpod
    }


def _filled(blocks: Sequence[int | None], size: int) -> list[int]:
    """Block of each pod: of one without, that of its rank, or the first with room if that is full.

    Args:
        blocks: Known blocks of the pods, by rank; None for a pod without.
        size: Pods of a block.
    """
    pods = Counter(block for block in blocks if block is not None)
    found: list[int] = []
    for number, known in enumerate(blocks):
        block = known
        if block is None:
            own = number // size
            block = own if pods[own] < size else next(one for one in itertools.count() if pods[one] < size)
            pods[block] += 1
        found.append(block)
    return found
