"""Annotations of placed pods with the state of the leaf switch above their nodes, as the job uses it.

Source: docs/reference/switches.md, "Shared leaf states" and "Ranks, scores and annotations". See decision
annotations-in-1.0.
"""

from typing import Final

from berth.core.topologies.switches.occupancy.leaf_bits import SHARED, STATE, UNHEALTHY
from berth.core.topologies.switches.placed import switch_of
from berth.products.model import IS_HEALTHY, IS_SHARED, SHARED_IP
from berth.schemas.columns import unpack
from berth.schemas.placement import Placement

_INDEX_BYTES: Final = 2


def switch_annotations(state: int, leaf: str) -> dict[str, str]:
    """Annotations of a pod: the state as two numbers, and the name of a shared leaf.

    Args:
        state: State byte of the leaf in the plan of the job.
        leaf: Name of the leaf.
    """
    shared = state & STATE
    found = {IS_SHARED: str(shared), IS_HEALTHY: "1" if state & UNHEALTHY else "0"}
    if shared == SHARED:
        found[SHARED_IP] = leaf
    return found


def leaf_annotations(placement: Placement) -> list[dict[str, str]]:
    """Annotations of each rank below a leaf; none for a placement without annotations.

    Raises:
        ValueError: The columns do not have one entry per rank.
    """
    part = switch_of(placement)
    ranks = placement.pods()
    if part is None or not part.annotated:
        return [{}] * ranks
    indexes = unpack(part.leaf_index, _INDEX_BYTES)
    if len(indexes) != ranks or len(part.states) != ranks:
        raise ValueError(
            f"placement has leaves of {len(indexes)} ranks and states of {len(part.states)}: expected {ranks}"
        )
    return [
        switch_annotations(state, part.leaves[index - 1]) if index else {}
        for index, state in zip(indexes, part.states, strict=True)
    ]
