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
_BY_NAME: Final[Mapping[str, Topology]] = MappingProxyType({topology.name: topology for topology in TOPOLOGIES})
_NONE: Final = Topology()
"""Of pods that demand none: all of its answers are neutral."""


def topology_of(demand: Demand | None) -> Topology:
    """The topology that a demand names.

    Raises:
        KeyError: There is none of this name.
    """
    return _NONE if demand is None else _BY_NAME[demand.topology]
