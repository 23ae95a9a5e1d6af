"""The leaf switches as they are drawn: their places, their states, and the jobs below them."""

from berth.core.cluster.node_packing import SWITCHES as KIND
from berth.core.topologies.layouts import LeafUser
from berth.core.topologies.maps import DrawnCell, LeafRow, PlaceRow, SwitchesShown, place_kind
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, NOT_NORMAL, STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.planner import switch_rules
from berth.core.topologies.switches.rounds.explanation import leaf_users
from berth.core.topologies.switches.text import STATES, bits_words


def switches_shown(index: LeafIndex, cell: DrawnCell) -> SwitchesShown:
    """All leaves in the order of their source."""
    leaves = index.leaves
    rules = switch_rules(cell.settings, is_single_layer=leaves.is_single_layer)
    users = leaf_users(leaves, cell.jobs)
    bits = index.occupancy.bits().tolist()
    return SwitchesShown(
        policy=rules.policy,
        shared_max=rules.shared_max if rules.policy == "2.0" else 0,
        places=leaves.places,
        total=len(leaves),
        reason=cell.facts[KIND].reason if KIND in cell.facts else "",
        leaves=[_leaf(cell, index, leaf, bits[leaf], users.get(leaf, []), rules.policy) for leaf in range(len(leaves))],
    )


def _leaf(cell: DrawnCell, index: LeafIndex, leaf: int, bits: int, jobs: list[LeafUser], policy: str) -> LeafRow:
    leaves = index.leaves
    at = leaf * leaves.width
    places = [
        PlaceRow(
            leaves.node_names[at + place],
            int(leaves.slices[leaf, place]),
            place_kind(cell.table, leaves.node_names[at + place]),
        )
        for place in range(leaves.width)
        if leaves.listed[leaf, place]
    ]
    has_states = policy == "2.0"
    return LeafRow(
        name=leaves.names[leaf],
        free=sum(place.kind == "free" for place in places),
        nodes=sum(place.kind != "none" for place in places),
        state=STATES[bits & STATE] if has_states else "",
        healthy=not (has_states and bits & UNHEALTHY),
        cross=bool(bits & CROSS),
        only_common=not bits & NOT_NORMAL,
        words=bits_words(bits, policy),
        jobs=jobs,
        places=places,
    )
