"""Resource names of chips, from the product catalogue, and of what the device plug-in makes of chips.

A name that is neither is an extended resource like any other, whatever its prefix.

Source: docs/reference/nodes-and-chips.md, "Resource names".
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from berth.products.catalogue import PRODUCTS
from berth.products.model import RESOURCE_310P

RESOURCES: Final = tuple(dict.fromkeys(node.resource for entry in PRODUCTS for node in entry.nodes))
"""Resource names of whole chips, in the order of the catalogue."""
MIXED_CARDS: Final = frozenset(f"{RESOURCE_310P}-{kind}" for kind in ("V", "VPro", "IPro"))
"""Names of 310P chips of nodes with cards of several kinds. Source: MindCluster, device plug-in."""
_SIMILAR: Final = 0.8
_CHIPS: Final = frozenset(RESOURCES)


def is_chips(name: str) -> bool:
    """Whether a resource is whole chips."""
    return name in _CHIPS


def is_npu(name: str) -> bool:
    """Whether a resource is whole chips, virtual NPUs, or chips of :data:`MIXED_CARDS`.

    Virtual NPUs are named after their chip: ``huawei.com/Ascend910-12c.3cpu.32g``, ``huawei.com/npu-core``.
    """
    return name.partition("-")[0] in _CHIPS


def is_virtual(name: str) -> bool:
    """Whether a resource is virtual NPUs: static ones, or parts that are cut on demand."""
    return is_npu(name) and name not in _CHIPS and name not in MIXED_CARDS


def similar_resource(name: str, known: Iterable[str]) -> str:
    """The known name that a name is probably meant for, the first by name of several; empty without one."""
    folded = {one.casefold(): one for one in sorted({*known} - {name}, reverse=True)}
    close = get_close_matches(name.casefold(), sorted(folded), n=1, cutoff=_SIMILAR)
    return folded[close[0]] if close else ""
