"""All topologies, in the order in which a job is asked for its demand: the first one counts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from berth.core.topologies.levels.topology import Levels
from berth.core.topologies.port import Topology
from berth.core.topologies.racks.topology import Racks
from berth.core.topologies.superpods.topology import Superpods
from berth.core.topologies.switches.topology import Switches
from berth.schemas.offers import Demand

TOPOLOGIES: Final[tuple[Topology, ...]] = (Switches(), Superpods(), Racks(), Levels())
BY_NAME: Final[Mapping[str, Topology]] = MappingProxyType({topology.name: topology for topology in TOPOLOGIES})


def heeds_jobs(demand: Demand | None) -> bool:
    """Whether which jobs are in a group decides what it takes of a gang."""
    return demand is not None and BY_NAME[demand.topology].heeds_jobs


def heeds_fewer_nodes(demand: Demand | None) -> bool:
    """Whether fewer free nodes may help a gang."""
    return demand is not None and BY_NAME[demand.topology].heeds_fewer_nodes


def is_beside(demand: Demand | None) -> bool:
    """Whether the plan of a gang depends on where certain other jobs run."""
    return demand is not None and BY_NAME[demand.topology].is_beside(demand)
