"""Leaf switches as a topology."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from berth.core.cluster.node_packing import SWITCHES as KIND
from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.layouts import Layouts, Seat, UnfitWords
from berth.core.topologies.maps import DrawnCell, Maps
from berth.core.topologies.planning import Areas, Ground
from berth.core.topologies.port import FoundPods, Topology
from berth.core.topologies.switches.adopted import adopted_part
from berth.core.topologies.switches.demand import SWITCHES
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.occupancy.leaf_table import check_topology
from berth.core.topologies.switches.placed import switch_of
from berth.core.topologies.switches.request import SwitchJobs
from berth.core.topologies.switches.rounds.drawing import switches_shown
from berth.core.topologies.switches.rounds.switch_round import SwitchRound
from berth.core.topologies.switches.summary import KEY, leaf_map
from berth.core.topologies.switches.text import UNKNOWN, lack_words, near_words, placed_lines
from berth.schemas.columns import unpack
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Groups, Placement
from berth.schemas.refusal import Refusal


class Switches(SwitchJobs, Topology[LeafIndex]):
    """Leaf (ToR) switches."""

    index_name = SWITCHES
    record_bytes_a_pod = 2 + 1
    """Index of its leaf, and its leaf state."""
    heeds_jobs = True
    codes = ("no-topology", "no-leaf", "no-rows", "no-leaves")

    def index(self, table: NodeTable) -> LeafIndex:  # noqa: ARG002  # the port has it
        """No leaf switches: none are known."""
        return LeafIndex()

    def areas(
        self,
        table: NodeTable,
        index: LeafIndex,
        demand: Demand | None,  # noqa: ARG002  # the port has it
        settings: Settings,  # noqa: ARG002  # as above
    ) -> list[Areas]:
        """The leaf switches."""
        leaves = index.leaves
        of_row = np.full(len(table), -1, np.int64)
        rows = leaves.rows(table)
        known = np.flatnonzero(rows >= 0)
        of_row[rows[known]] = known // max(leaves.width, 1)
        return [Areas("leaf", leaves.names, of_row)]

    def begin(self, ground: Ground, index: LeafIndex) -> SwitchRound:
        """Leaf switches during a round."""
        return SwitchRound(ground, index)

    def adopted(self, found: FoundPods) -> Groups | None:
        """States of leaf switches, by annotations."""
        part = adopted_part(found.fact, found.runs)
        return part.groups if part is not None else None

    def summary(
        self,
        index: LeafIndex,
        facts: Mapping[str, TopologySeen],
        settings: Settings,
        jobs_on: Callable[[str], list[str]],
    ) -> dict[str, str]:
        """The map of the leaf switches."""
        text = leaf_map(index, facts[KIND], settings, jobs_on) if KIND in facts else ""
        return {KEY: text} if text else {}

    def maps(self, index: LeafIndex, cell: DrawnCell) -> Maps:
        """The leaf switches."""
        return Maps(switches=switches_shown(index, cell))

    def check_fact(self, fact: TopologySeen) -> None:
        """Check that a fact about leaf switches is valid."""
        if fact.kind == KIND:
            check_topology(fact)

    def lack_words(self, refusal: Refusal) -> str:
        """What is missing for the plan of a gang."""
        if refusal.code == "no-topology":
            return UNKNOWN
        return lack_words(refusal.switch) if refusal.switch is not None else ""

    def placed_lines(self, layouts: Layouts, *, form: str) -> list[str]:  # noqa: ARG002  # the port has it
        """Rule, leaves and warning of a placed gang."""
        return placed_lines(layouts.switch) if layouts.switch is not None else []

    def waiting_lines(self, layouts: Layouts, unfit_words: UnfitWords) -> list[str]:
        """The nearest leaves."""
        return [near_words(near, unfit_words) for near in layouts.switch.nearest] if layouts.switch is not None else []

    def seats(self, placement: Placement) -> Sequence[Seat | None]:
        """Leaf switch of each rank that was planned by leaf."""
        part = switch_of(placement)
        if part is None or not part.policy:
            return [None] * placement.pods()
        return [Seat(leaf=part.leaves[leaf - 1]) if leaf else None for leaf in unpack(part.leaf_index, 2)]

    def seat_words(self, seat: Seat, layouts: Layouts) -> tuple[str, str] | None:
        """Leaf switch of a rank."""
        return (f" below {seat.leaf}", "leaf plan") if seat.leaf and layouts.switch is not None else None
