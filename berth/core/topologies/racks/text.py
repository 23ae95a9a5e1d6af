"""Racks in words: what is missing for a gang.

Source: docs/reference/superpods.md, "Failure texts of SuperPoDs".
"""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.text import pluralize
from berth.core.topologies.blocks.text import LACKS, nearest
from berth.core.topologies.racks.limits import RACK_NODES
from berth.schemas.refusal import BlockLack


def _rack(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')}"
    if lack.nodes_need <= RACK_NODES:
        return f"{head} of one rack; no rack has as many usable ones{nearest(lack)}"
    return f"{head} of racks that share memory; no such racks have as many usable ones{nearest(lack)}"


RACK_LACKS: Final[Mapping[str, Callable[[BlockLack], str]]] = {**LACKS, "rack": _rack}
"""What is missing for a gang in racks, by rule."""
