"""Levels in words: what is missing for a gang.

Source: docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Callable, Mapping
from typing import Final

from berth.core.text import pluralize
from berth.core.topologies.blocks.text import LACKS
from berth.schemas.refusal import BlockLack


def _level(lack: BlockLack) -> str:
    if not lack.size:
        return f"needs a tree of {pluralize(lack.need, 'level')}; the highest one has {lack.have}"
    where = f" in tree {lack.near[0].name}, which comes closest" if lack.near else ""
    head = f"needs {pluralize(lack.need, 'group')} of {pluralize(lack.size, 'node')}"
    return f"{head}; {lack.have or 'none'} can be placed{where}"


LEVEL_LACKS: Final[Mapping[str, Callable[[BlockLack], str]]] = {**LACKS, "level": _level}
"""What is missing for a gang with levels, by rule."""
