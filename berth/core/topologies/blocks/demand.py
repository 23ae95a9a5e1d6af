"""What a gang demands of SuperPoDs, racks or levels: blocks of nodes, as the demand in its shapes states them."""

import functools
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

from berth.core.gangs import Gang
from berth.schemas.offers import Demand

SUPERPODS: Final = "superpods"
RACKS: Final = "racks"
LEVELS: Final = "levels"
TOPOLOGY_OF: Final[Mapping[str, str]] = {"a3": SUPERPODS, "850": SUPERPODS, "rack": RACKS, "levels": LEVELS}
"""Topology by variant."""
SIZE_DEFAULT: Final = 48
"""Nodes of a physical SuperPoD if no size is configured."""
Variant = Literal["a3", "850", "rack"]
"""Handler of the product: Atlas A3 with 16 or 8 chips per node, Atlas 850, Atlas 950 with racks."""
VARIANTS: Final[Mapping[str, Variant]] = {variant: variant for variant in get_args(Variant)}
"""Handlers by the text that stands for them in messages."""
_SOFT: Final = "soft"
_MEMORY: Final = "memory"
_SERVICE: Final = "service"
_MINDIE: Final = "mindie"
_IDLEST: Final = "idlest"
_NEAR: Final = "near/"
"""Before the key of a label."""
_KNOWN_MAX: Final = 4096


class Blocks(NamedTuple):
    """How the pods with chips of a gang must be distributed over SuperPoDs, or over groups of several levels."""

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``."""
    size: int
    """Nodes of a logical SuperPoD."""
    number: int
    """Logical SuperPoDs of the gang."""
    soft: bool = False
    """Blocks may be split where no whole block fits."""
    rack_size: int = 0
    """Racks: nodes that must be in one rack."""
    memory: bool = False
    """Racks: the pods share memory (``huawei.com/schedule_ubmemory``)."""
    service: str = ""
    """Label ``inferserviceid``; empty without."""
    mindie: bool = False
    """A MindIE service: labels ``app`` and ``jobID``."""
    idlest: bool = False
    """MindIE: SuperPoDs with the most free nodes first (``sp-fit``), not those with the fewest."""
    near: tuple[tuple[str, str], ...] = ()
    """MindIE: labels of jobs near which it prefers to run."""
    levels: tuple[int, ...] = ()
    """Levels: pods of a group at each level, the one nearest to the node first."""

    def demand(self, *, gang_pods: int) -> Demand:
        """The same as shapes have it.

        Several blocks use the network; inside one SuperPoD traffic stays on its bus (HCCS). With racks it depends on
        the placement of the block. Groups of several levels are not SuperPoDs.

        Source: docs/reference/superpods.md, "Filter per node of a SuperPoD".

        Args:
            gang_pods: Pods with chips of the whole gang.
        """
        flags = {_IDLEST: self.idlest, _MEMORY: self.memory, _MINDIE: self.mindie, _SOFT: self.soft}
        options = [(name, "true") for name, is_set in flags.items() if is_set]
        options += [(_NEAR + key, value) for key, value in self.near]
        options += [(_SERVICE, self.service)] if self.service else []
        uses_network = gang_pods > 1 if self.levels else gang_pods // self.size > 1 and not self.rack_size
        return Demand(
            topology=TOPOLOGY_OF[self.variant],
            policy=self.variant,
            sizes=self.levels or ((self.rack_size, self.size) if self.variant == "rack" else (self.size,)),
            groups=self.number,
            options=tuple(sorted(options)),
            uses_network=uses_network,
        )


@functools.lru_cache(maxsize=_KNOWN_MAX)
def blocks_of(demand: Demand | None) -> Blocks | None:
    """Blocks or groups that a demand states; None for one of another topology."""
    if demand is None or demand.topology != TOPOLOGY_OF.get(demand.policy):
        return None
    options = dict(demand.options)
    is_levels, is_rack = demand.topology == LEVELS, demand.topology == RACKS
    return Blocks(
        demand.policy,
        demand.sizes[-1] if is_rack else demand.sizes[0],
        demand.groups,
        soft=_SOFT in options,
        rack_size=demand.sizes[0] if is_rack else 0,
        memory=_MEMORY in options,
        service=options.get(_SERVICE, ""),
        mindie=_MINDIE in options,
        idlest=_IDLEST in options,
        near=tuple((key.removeprefix(_NEAR), value) for key, value in demand.options if key.startswith(_NEAR)),
        levels=demand.sizes if is_levels else (),
    )


def blocks_of_gang(gang: Gang) -> Blocks:
    """Requested blocks of a gang with SuperPoD affinity.

    Raises:
        ValueError: It has no SuperPoD affinity.
    """
    blocks = blocks_of(gang.demand)
    if blocks is None:
        raise ValueError(f"gang {gang.namespace}/{gang.name} has no SuperPoD affinity")
    return blocks
