"""All topologies, in the order in which a job is asked for its demand: the first one counts."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.job_registry import JOB_TOPOLOGIES
from berth.core.topologies.layouts import Seat
from berth.core.topologies.levels.topology import Levels
from berth.core.topologies.maps import DrawnCell, Maps
from berth.core.topologies.planning import Ground, Index, TopologyRound
from berth.core.topologies.port import Topology
from berth.core.topologies.racks.topology import Racks
from berth.core.topologies.superpods.topology import Superpods
from berth.core.topologies.switches.topology import Switches
from berth.schemas.facts import TopologySeen
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.refusal import Code, Refusal

TOPOLOGIES: Final[list[Topology[Any]]] = []
_BY_NAME: Final[dict[str, Topology[Any]]] = {}
_BY_CODE: Final[dict[Code, list[Topology[Any]]]] = {}
_NONE: Final[Topology[Any]] = Topology()
"""Of pods that demand none: all of its answers are neutral."""


def register(topology: Topology[Any]) -> None:
    """Add a topology, after all others.

    Raises:
        ValueError: Another topology has its name.
    """
    if topology.name in _BY_NAME:
        raise ValueError(f"topology {topology.name} is registered twice")
    TOPOLOGIES.append(topology)
    if all(one.name != topology.name for one in JOB_TOPOLOGIES):
        JOB_TOPOLOGIES.append(topology)
    _BY_NAME[topology.name] = topology
    for code in topology.codes:
        _BY_CODE.setdefault(code, []).insert(0, topology)  # the first topology answers for what no other one knows


for _topology in (
    Switches(),
    Superpods(),
    Racks(),
    Levels(),
):
    register(_topology)


def topology_of(demand: Demand | None) -> Topology[Any]:
    """The topology that a demand names.

    Raises:
        KeyError: There is none of this name.
    """
    return _NONE if demand is None else _BY_NAME[demand.topology]


def lack_words(refusal: Refusal) -> str:
    """What a gang lacks, in the words of the topology that refused it; empty if none did."""
    return next(filter(None, (topology.lack_words(refusal) for topology in _BY_CODE.get(refusal.code, ()))), "")


def seats_of(placement: Placement) -> list[Seat | None]:
    """Position of each rank; None for a rank that no topology planned."""
    found: list[Seat | None] = [None] * placement.pods()
    for groups in placement.groups:
        seats = _BY_NAME[groups.topology].seats(placement)
        found = [seat if before is None else before for before, seat in zip(found, seats, strict=True)]
    return found


def indexes_of(table: NodeTable) -> dict[str, Index]:
    """What topologies keep of the nodes of a table, by name of the index."""
    by_name = {topology.index_name: topology for topology in TOPOLOGIES}
    return {name: topology.index(table) for name, topology in by_name.items()}


def summary_of(
    indexes: Mapping[str, Index],
    facts: Mapping[str, TopologySeen],
    settings: Settings,
    jobs_on: Callable[[str], list[str]],
) -> dict[str, str]:
    """What topologies tell other programs in their ConfigMap, by key; empty if it should not exist.

    Args:
        indexes: What they keep of the nodes, by name of the index.
        facts: Newest facts about topologies, by kind.
        settings: Settings of the epoch.
        jobs_on: Names of the jobs on a node, sorted.
    """
    found: dict[str, str] = {}
    for topology in TOPOLOGIES:
        found |= topology.summary(indexes[topology.index_name], facts, settings, jobs_on)
    return found


def maps_of(name: str, indexes: Mapping[str, Index], cell: DrawnCell) -> Maps:
    """What is drawn of the topology with a name; nothing without it.

    Args:
        name: The name.
        indexes: What topologies keep of the nodes, by name of the index.
        cell: What it sees of the cell.
    """
    topology = _BY_NAME.get(name, _NONE)
    return topology.maps(indexes.get(topology.index_name), cell)


def begun(demand: Demand, ground: Ground, indexes: Mapping[str, Index]) -> TopologyRound:
    """The topology that a demand names, during a round.

    Args:
        demand: The demand.
        ground: What a topology sees of the round.
        indexes: What topologies keep of the nodes, by name of the index.
    """
    topology = topology_of(demand)
    return topology.begin(ground, indexes[topology.index_name])
