"""Documented decisions that change, or may change, the plan of a gang in comparison with the reference."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from berth.core.cluster.node_groups import Counts
from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.blocks.model import BlockDemand, BlockRules, CandidatePool, NoBlocks
from berth.core.topologies.blocks.node_assignment import candidates
from berth.core.topologies.superpods.block_history import DisruptedGang
from berth.core.topologies.superpods.block_selection import OpenBlocks, _select, select
from berth.core.topologies.superpods.planner import open_blocks_of
from berth.core.topologies.superpods.rescheduling import _first_pass, _FirstPass, _unneeded_ids
from berth.core.topologies.switches.model import Demand, Policy, SwitchRules

_OF_SELECTION: Final = {
    "D-1": "large_superpods",
    "D-3": "whole_blocks",
    "D-4": "pieces_until_complete",
    "D-5": "small_pieces",
    "D-6": "large_pieces_first",
}
_OF_REPLACEMENTS: Final[Mapping[Policy, str]] = {
    "1.0": "slice-of-lost-pod",
    "2.0": "deterministic-scores",
    "single-layer": "survivors-leaf",
}


def block_decisions(pool: CandidatePool, demand: BlockDemand, rules: BlockRules) -> tuple[str, ...]:
    """Names of the documented decisions that change the plan of a gang."""
    eligible = candidates(pool, demand)
    if len(eligible.rows) < demand.replicas:
        return ()
    return selection_decisions(eligible.ids, eligible.counts, open_blocks_of(demand), rules)


def selection_decisions(
    ids: Sequence[str], counts: Counts, open_blocks: OpenBlocks, rules: BlockRules
) -> tuple[str, ...]:
    """Names of the documented decisions that change the selection.

    A decision counts if the selection changes when it alone is applied, or when it alone is left out.
    """
    own = _select(ids, counts, open_blocks, rules, OWN)
    reference = _select(ids, counts, open_blocks, rules, REFERENCE)
    return tuple(
        name
        for name, field in _OF_SELECTION.items()
        if _select(ids, counts, open_blocks, rules, msgspec.structs.replace(OWN, **{field: False})) != own
        or _select(ids, counts, open_blocks, rules, msgspec.structs.replace(REFERENCE, **{field: True})) != reference
    )


def decisions_after(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, failure: DisruptedGang
) -> tuple[str, ...]:
    """Names of the documented decisions that can change the plan.

    D-10: running pods are moved, or nodes are set aside for that. D-3: a block is opened that is not needed. D-5: more
    nodes are taken than are missing, or a piece moves though its SuperPoD has room for it. D-8: a new piece has the id
    of a block that stays. The others are those of the selection.
    """
    by_reference = rules._replace(differs=REFERENCE)
    reference = _first_pass(pool, demand, by_reference, failure)
    if not isinstance(reference, _FirstPass):
        return ()
    names = dict.fromkeys(selection_decisions(pool.ids, reference.rest.counts, reference.open_blocks, rules))
    allocations = select(pool.ids, reference.rest.counts, reference.open_blocks, by_reference)
    if not isinstance(allocations, NoBlocks):
        if sum(allocation.nodes for allocation in allocations) > reference.open_blocks.missing:
            names["D-5"] = None
        if any(allocation.block_id in reference.settled for allocation in allocations):
            names["D-8"] = None
    pieces = (held for held in failure.held if held.block_id not in reference.settled)
    if any(not held.runs and len(held.rows) < demand.block for held in pieces):
        names["D-5"] = None
    if _unneeded_ids(demand, failure):
        names["D-3"] = None
    if reference.is_overdrawn or any(held.runs and held.block_id not in reference.settled for held in failure.held):
        names["D-10"] = None
    return tuple(names)


def rack_decisions(pool: CandidatePool, demand: BlockDemand, rules: BlockRules) -> tuple[str, ...]:
    """Names of the documented decisions that change the plan of a gang."""
    return ("D-1",) if candidates(pool, demand).counts.max(initial=0) > rules.size else ()


def replacement_decisions(demand: Demand, rules: SwitchRules) -> tuple[str, ...]:
    """Names of the documented decisions that may make the result differ from the reference.

    Policy 1.0 places a padding job only as a whole, so that the decision on positions does not apply to it.
    """
    is_whole = rules.policy == "1.0" and demand.kind == "padding"
    return () if is_whole else (_OF_REPLACEMENTS[rules.policy],)
