"""Leaf switches in a round: plans of gangs with switch affinity, and what their policy does not support."""

from collections.abc import Mapping
from typing import Final

from berth.core.cluster.bitmaps import Fits
from berth.core.gangs import Gang
from berth.core.topologies.layouts import NO_LAYOUTS, Layouts, WaitingGang
from berth.core.topologies.leaving import LeavingPods, OwnPlaces
from berth.core.topologies.planning import Ground, Lack, PlacedGang, Planned, Replaced, TopologyRound
from berth.core.topologies.switches.demand import TOR_AFFINITY, label_of
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.placed import switch_of
from berth.core.topologies.switches.planner import NoPlan
from berth.core.topologies.switches.rounds.explanation import placed_layout, waiting_layout
from berth.core.topologies.switches.rounds.leaf_round import LeafRound
from berth.core.topologies.switches.rounds.replacement import LeavesMissing, replace_below_leaves
from berth.schemas.placement import Placement
from berth.schemas.refusal import Code, Refusal, SwitchLack

_CODES: Final[Mapping[str, Code]] = {
    "one-leaf": "no-leaf",
    "leaf-size": "no-leaf",
    "logical-switches": "no-rows",
    "idle-and-shared": "no-leaves",
    "any-leaf": "no-leaves",
    "open-places": "no-leaves",
    "shared-limit": "no-leaves",
    "own-leaves": "no-leaves",
}
_UNKNOWN: Final = Lack("no-topology", is_first=True)


class SwitchRound(TopologyRound):
    """Leaf switches (ToR) during a round.

    Args:
        ground: What it sees of the round.
        index: The leaf switches, and the jobs on them before the round.

    Attributes:
        leaves: The leaf switches, the placements of the round included.
    """

    def __init__(self, ground: Ground, index: LeafIndex) -> None:
        self.leaves = LeafRound(ground, index)
        self._table = ground.table
        self._is_known = bool(len(index.leaves))

    def plan(self, gang: Gang, usable: Fits) -> Planned | Lack:
        """Plan all pods with chips of a gang."""
        if not self._is_known:
            return _UNKNOWN
        leaves = self.leaves
        found = leaves.plan(gang, usable)
        if isinstance(found, NoPlan):
            return _lack(found.lack)
        return Planned(leaves.rows_of(found.cells), [leaves.part(gang, found).groups])

    def replace(self, leaving: LeavingPods, own: OwnPlaces, usable: Fits) -> Replaced | Lack:
        """New places of the planned pods that leave, or what is missing."""
        if not self._is_known:
            return _UNKNOWN
        found = replace_below_leaves(self.leaves, leaving, own, self.leaves.places_of(usable))
        if isinstance(found, LeavesMissing):
            return _lack(found.lack)._replace(ranks=found.ranks)
        return Replaced(found.rows, [found.part.groups])

    def unsupported(self, gang: Gang) -> Refusal | None:
        """Refusal of a gang whose product or framework the policy does not support."""
        warning = self.leaves.warning(gang) if self._is_known else ""
        if not warning:
            return None
        return Refusal(
            code="product-support",
            field=f"labels.{TOR_AFFINITY}",
            value=label_of(gang.demand),
            expected=f"a job that the policy supports (setting strict_product_support): {warning}",
            form=gang.form,
            form_because=gang.form_because,
        )

    def explain_placed(
        self, gang: Gang, placement: Placement, usable: Fits, *, is_current: bool
    ) -> tuple[Layouts, bool]:
        """Leaf switches of a placement, and whether planning again gives the same nodes."""
        part = switch_of(placement)
        if part is None or not part.policy:
            return NO_LAYOUTS, True
        layout, is_same = placed_layout(self.leaves, gang, part, placement.names(), usable, is_current=is_current)
        return Layouts(switch=layout), is_same

    def explain_waiting(self, asked: WaitingGang) -> Layouts:
        """The leaves with most usable nodes for a waiting gang."""
        return Layouts(switch=waiting_layout(self.leaves, self._table, asked))

    def take_back(self, last: PlacedGang) -> None:
        """Remove the last placement."""
        self.leaves.take_back(last)


def _lack(lack: SwitchLack) -> Lack:
    return Lack(_CODES[lack.rule], {"switch": lack})
