"""What topologies whose gangs are split into blocks answer alike."""

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Final

from berth.core.topologies.blocks.demand import blocks_of
from berth.core.topologies.blocks.explanation import seats_of
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.blocks.request import BlockJobs
from berth.core.topologies.blocks.text import LACKS, placed_lines, seat_words, waiting_lines
from berth.core.topologies.blocks.validation import RA_BLOCK, SP_BLOCK, int64_or_zero
from berth.core.topologies.layouts import Layouts, Seat, UnfitWords
from berth.core.topologies.leaving import Together
from berth.core.topologies.port import AnyIndex, Topology
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.refusal import BlockLack, Refusal

_FEWER_NODES_HELP: Final = frozenset({"size", "incomplete"})
"""Rules of plans that fewer free nodes may help."""


class BlockTopology(BlockJobs, Topology[AnyIndex]):
    """A topology whose gangs are split into blocks of nodes.

    Attributes:
        lacks: What is missing for a gang, as a sentence without a full stop, by rule.
    """

    lacks: Mapping[str, Callable[[BlockLack], str]] = LACKS
    codes = ("no-blocks",)
    record_bytes_a_pod = 2 + 2
    """Indexes of the block and of the SuperPoD of a pod."""
    heeds_fewer_nodes = True

    def for_some(self, annotations: Mapping[str, str], chips: Sequence[int]) -> dict[str, str]:
        """The largest blocks that are parts of the given ones: a whole one of those never waits at the same time."""
        found: dict[str, str] = {}
        for key in (SP_BLOCK, RA_BLOCK):
            given = int64_or_zero(annotations.get(key, "")) if key in self.keys else 0
            if given > 0 and (size := gcd(given, sum(chips))) % chips[0] == 0:
                found[key] = str(size)
        return found

    def is_beside(self, demand: Demand | None) -> bool:
        """Jobs of a service are near one another, and MindIE jobs near those that they name."""
        blocks = blocks_of(demand)
        return blocks is not None and bool(blocks.service or blocks.near)

    def together(self, demand: Demand, placement: Placement) -> Together:  # noqa: ARG002  # the port has it
        """The blocks of the placement."""
        if block_of(placement) is None:
            return Together()
        return Together(superpods=tuple(seat.block if seat is not None else -1 for seat in seats_of(placement)))

    def is_helped_by_loss(self, refusal: Refusal) -> bool | None:
        """The reference gives up where a SuperPoD has more free nodes than its size, and leaves a plan unfinished."""
        return refusal.blocks.rule in _FEWER_NODES_HELP if refusal.blocks is not None else None

    def lack_words(self, refusal: Refusal) -> str:
        """What is missing for the plan of a gang."""
        lack = refusal.blocks
        return self.lacks[lack.rule](lack) if lack is not None and lack.rule in self.lacks else ""

    def placed_lines(self, layouts: Layouts, *, form: str) -> list[str]:
        """The request, and the phases that chose the nodes."""
        layout = layouts.blocks
        return placed_lines(layout, form=form) if layout is not None and layout.variant in self.variants else []

    def waiting_lines(self, layouts: Layouts, unfit_words: UnfitWords) -> list[str]:
        """What is missing, and the nearest SuperPoDs or groups."""
        layout = layouts.blocks
        return waiting_lines(layout, unfit_words) if layout is not None and layout.variant in self.variants else []

    def seats(self, placement: Placement) -> Sequence[Seat | None]:
        """Block and SuperPoD, or group of level 1, of each rank with a block."""
        return seats_of(placement)

    def seat_words(self, seat: Seat, layouts: Layouts) -> tuple[str, str] | None:
        """Block of a rank."""
        variant = layouts.blocks.variant if layouts.blocks is not None else ""
        return (f" ({seat_words(seat.block, seat.superpod, variant)})", "block plan") if seat.superpod else None
