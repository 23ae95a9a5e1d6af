"""What gangs hold, node by node, and what nodes have if they leave."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from berth.core.placement.projected_state import ResourceFootprint, footprint_of
from berth.core.queues.charges import charge_of_placement
from berth.core.state.cell import State
from berth.core.state.ledger import Holding, PodShare
from berth.schemas.placement import Placement, Share
from berth.schemas.queues.queue import Amounts

_Key = tuple[str, int]


class OnRow(NamedTuple):
    """What pods of a gang hold on a node.

    Attributes:
        row: The node.
        mask: Their chips; of pods that share chips, each is one of its own.
        cpu_milli: Cpu in thousandths.
        memory_mib: Memory in MiB.
        share: Quota of each pod; None for whole chips.
    """

    row: int
    mask: int
    cpu_milli: int
    memory_mib: int
    share: Share | None


class Held(NamedTuple):
    """What a gang holds, or some of its ranks.

    Attributes:
        footprint: The same as a projection has it.
        rows: The same node by node.
        chips: Number of chips; one that several pods share counts for each of them.
    """

    footprint: ResourceFootprint
    rows: Sequence[OnRow]
    chips: int


class Footprints:
    """What the placed gangs of a cell hold; it may be kept from round to round.

    What was made of a placement is used again as long as the gang holds exactly that.
    """

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[Placement, list[int], int, Held]] = {}

    def of(self, state: State, key: _Key) -> Held | None:
        """What an attempt holds with all that is reserved for it; None if it holds nothing."""
        holding = state.fold.holdings.get(key)
        if holding is None:
            return None
        layout = state.table.layout_revision
        known = self._known.get(key) if not holding.moves else None
        if known is not None and known[0] is holding.placement and known[1:3] == (holding.gone, layout):
            return known[3]
        held = held_of(state, state.held_by(key), holding.placement)
        if not holding.moves:
            self._known[key] = holding.placement, holding.gone, layout, held
        return held

    def part(self, state: State, key: _Key, ranks: Iterable[int]) -> Held:
        """What some ranks of an attempt hold."""
        holding = state.fold.holdings[key]
        owned = state.held_by(key)
        return held_of(state, [owned[rank] for rank in ranks], holding.placement)

    def keep_only(self, keys: Iterable[_Key]) -> None:
        """Forget all other attempts."""
        kept = set(keys)
        self._known = {key: known for key, known in self._known.items() if key in kept}


def held_of(state: State, pods: Iterable[PodShare], placement: Placement) -> Held:
    """What pods of a placement hold."""
    footprint = footprint_of(state, pods, placement)
    each = zip(
        footprint.rows.tolist(),
        footprint.masks.tolist(),
        footprint.cpu.tolist(),
        footprint.memory.tolist(),
        strict=True,
    )
    chips = int(np.bitwise_count(footprint.masks).sum())
    if placement.share is not None:
        return Held(footprint, [OnRow(*pod, placement.share) for pod in each], chips)
    merged: dict[int, tuple[int, int, int]] = {}
    for row, mask, cpu, memory in each:
        before = merged.get(row, (0, 0, 0))
        merged[row] = (before[0] | mask, before[1] + cpu, before[2] + memory)
    return Held(footprint, [OnRow(row, *sums, None) for row, sums in merged.items()], chips)


def surplus_of(holding: Holding, ranks: Iterable[int]) -> tuple[Amounts, int]:
    """What some ranks of an attempt count for in its queue, and how many chips they have."""
    placement, leaving = holding.placement, set(ranks)
    staying = [rank for rank in range(placement.pods()) if rank not in leaving]
    chips = first = 0
    for run in placement.runs:
        chips += run.chips * sum(first <= rank < first + run.pods for rank in leaving)
        first += run.pods
    return charge_of_placement(placement, staying), chips
