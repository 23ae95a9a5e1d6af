"""Map of the leaf switches for other programs: their states, and the jobs on the nodes below them.

Source: docs/reference/kubernetes.md, "Map of leaf switches"; docs/reference/switches.md,
"Ranks, scores and annotations".
"""

from collections.abc import Callable
from typing import Final

import msgspec

from berth.core.topologies.switches.occupancy.leaf_bits import STATE, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_index import LeafIndex
from berth.core.topologies.switches.occupancy.leaf_states import LeafOccupancy
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings

KEY: Final = "global-tor-info"
"""Key of the map in its ConfigMap."""
_TWO: Final = "2.0"


class _Node(msgspec.Struct, frozen=True):
    """A node below a leaf switch; fields have the names of the format."""

    address: str = msgspec.field(name="NodeIp")
    name: str = msgspec.field(name="NodeName")
    jobs: list[str] = msgspec.field(name="JobName")


class _Leaf(msgspec.Struct, frozen=True):
    """A leaf switch; fields have the names of the format."""

    unhealthy: int = msgspec.field(name="IsHealthy")
    """0 healthy, 1 unhealthy."""
    state: int = msgspec.field(name="IsSharedTor")
    """0 free, 1 shared, 2 exclusive."""
    nodes: list[_Node]


def leaf_map(index: LeafIndex, fact: TopologySeen, settings: Settings, jobs_on: Callable[[str], list[str]]) -> str:
    """JSON by name of the leaf switch; empty without policy 2.0 or leaf switches.

    Leaf switches are sorted by name; nodes are in the order of their ports.

    Args:
        index: Leaf switches and the jobs on them.
        fact: The fact that told of them.
        settings: Settings of the epoch.
        jobs_on: Names of the jobs on a node, sorted.
    """
    if settings.nslb_version != _TWO or index.leaves.is_single_layer or not index.counts_jobs:
        return ""
    bits = dict(zip(index.leaves.names, _occupancy(index).bits().tolist(), strict=True))
    found: dict[str, _Leaf] = {}
    for leaf in sorted(fact.leaves, key=lambda item: item.name):
        addresses = leaf.addresses or [""] * len(leaf.nodes)
        found[leaf.name] = _Leaf(
            unhealthy=int(bool(bits[leaf.name] & UNHEALTHY)),
            state=bits[leaf.name] & STATE,
            nodes=[
                _Node(address, name, jobs_on(name) if name else [])
                for address, name in zip(addresses, leaf.nodes, strict=True)
            ],
        )
    return msgspec.json.encode(found).decode()


def _occupancy(index: LeafIndex) -> LeafOccupancy:
    """Jobs by leaf switch, counted from the decision, even where decisions follow the reference implementation."""
    if not index.follows_pods:
        return index.occupancy
    occupancy = LeafOccupancy(index.leaves)
    for key, job in index.occupancy.jobs().items():
        occupancy.put(key, job)
    return occupancy
