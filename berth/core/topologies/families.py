"""Families of topologies: of one are those that annotations of pods, which name groups, do not tell apart.

They are apart from the topologies, because whoever folds records needs them, and not all who do so plan.
"""

from typing import Final

_FAMILIES: Final[dict[str, str]] = {"racks": "superpods", "levels": "superpods"}
"""Topologies that do not have the name of their family."""


def family_of(topology: str) -> str:
    """Family of the topology with a name."""
    return _FAMILIES.get(topology, topology)
