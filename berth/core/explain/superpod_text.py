"""SuperPoDs in words: what is missing for a gang, how the nodes of a block were chosen, and where blocks are.

Source: docs/reference/superpods.md, "Selection of blocks", "Soft and hard", "After a fault of blocks",
"Inference on SuperPoDs", "Racks" and "Failure texts of SuperPoDs"; docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from berth.core.explain.text import pluralize, ranges
from berth.core.topologies.racks.limits import RACK_NODES
from berth.schemas.refusal import BlockLack

LEVELS: Final = "levels"
"""Variant with blocks in groups of a tree instead of SuperPoDs."""


class PhaseWords(NamedTuple):
    """Phase of the selection that chose the nodes of a block.

    Attributes:
        name: Short name.
        why: Description.
    """

    name: str
    why: str


_PHASES: Final[Mapping[str, PhaseWords]] = {
    "fits": PhaseWords(
        "queue 1, fits", "SuperPoDs with room for no more blocks than are open, which keep their reserve"
    ),
    "larger": PhaseWords(
        "queue 1, larger", "SuperPoDs with room for more blocks than are open, which keep their reserve"
    ),
    "reserve": PhaseWords("queue 2", "SuperPoDs that use nodes of their reserve, as no other one has room for a block"),
    "pieces": PhaseWords("queue 3", "the remaining nodes of SuperPoDs, in pieces, as blocks may be split"),
    "kept": PhaseWords("kept", "the nodes that the block had before"),
    "rebuilt": PhaseWords("rebuilding", "other nodes of the SuperPoD in which the block was before"),
    "replaced": PhaseWords("replacement", "other nodes of the same SuperPoD for lost pods alone"),
    "service": PhaseWords(
        "inference service", "SuperPoDs with jobs of its service go first, then those with the most usable nodes"
    ),
    "affinity": PhaseWords(
        "preferred affinity",
        "SuperPoDs that keep their reserve go first, then {near}{fit} ones",
    ),
    "rack": PhaseWords(
        "one rack", "the smallest that holds all of it, in the SuperPoD with the fewest usable nodes that can"
    ),
    "ub-memory": PhaseWords(
        "shared memory", "racks that share memory, in the SuperPoD with the fewest usable nodes that can"
    ),
    "superpod": PhaseWords(
        "one SuperPoD", "the one with the fewest usable nodes that holds all of it, small racks first"
    ),
    "multi-superpod": PhaseWords("several SuperPoDs", "those with the most usable nodes go first, small racks first"),
    "multi-superpod-pieces": PhaseWords(
        "pieces", "the remaining nodes of racks, one piece in each rack, as blocks may be split"
    ),
    "level": PhaseWords("levels", "groups of one tree; groups with the least left over go first"),
}
_NEAR: Final = "those with more nodes of the pods that it prefers to be near, then "
_RACK_SERVICE: Final = PhaseWords(
    "inference service", "racks with jobs of its service go first, then other racks of their SuperPoDs, then any"
)


def phase_words(phase: str, variant: str, *, idlest: bool = False, has_near: bool = False) -> PhaseWords:
    """Words for a phase; its name for an unknown phase.

    Args:
        phase: Phase in the placement.
        variant: Variant of the gang.
        idlest: For preferred affinity: SuperPoDs with more usable nodes go first.
        has_near: For preferred affinity: the gang names pods that it prefers to be near.
    """
    if (phase, variant) == ("service", "rack"):
        return _RACK_SERVICE
    found = _PHASES.get(phase)
    if found is None:
        return PhaseWords(phase, "")
    return found._replace(why=found.why.format(fit="emptier" if idlest else "fuller", near=_NEAR if has_near else ""))


def group_words(variant: str) -> str:
    """Container of the blocks of a variant: a SuperPoD, or a group of a tree."""
    return "group" if variant == LEVELS else "SuperPoD"


def blocks_words(blocks: Iterable[int]) -> str:
    """Ids of blocks: ``block 3``, ``blocks 0-2``; empty without any."""
    ids = sorted(set(blocks))
    return f"block{'' if len(ids) == 1 else 's'} {ranges(ids)}" if ids else ""


def lack_words(lack: BlockLack) -> str:
    """What is missing for a gang in SuperPoDs, as a sentence without a full stop."""
    return _LACKS.get(lack.rule, _blocks)(lack)


def missing_blocks(lack: BlockLack) -> int:
    """Missing blocks; 0 when something else is missing."""
    return max(lack.need - lack.have, 0) if lack.rule in _BY_BLOCK else 0


def _blocks(lack: BlockLack) -> str:
    return _needs_blocks(lack, "")


def _service(lack: BlockLack) -> str:
    return _needs_blocks(lack, " for its inference service")


def _affinity(lack: BlockLack) -> str:
    return _needs_blocks(lack, " near the pods that it prefers")


def _needs_blocks(lack: BlockLack, what_for: str) -> str:
    head = f"needs {pluralize(lack.need, 'logical SuperPoD')} of {pluralize(lack.size, 'node')}{what_for}"
    return f"{head}; {lack.have or 'none'} can be placed{_near(lack)}"


def _nodes(lack: BlockLack) -> str:
    return f"needs {pluralize(lack.nodes_need, 'node')}, and {_fitting(lack.nodes_have)}"


def _home(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')} in the SuperPoDs where its damaged blocks have to stay"
    return f"{head}, and {_fitting(lack.nodes_have)}"


def _fitting(nodes: int) -> str:
    return f"{nodes} fit" if nodes > 1 else f"{nodes or 'none'} fits"


def _incomplete(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')} in logical SuperPoDs of {lack.size}"
    return f"{head}; the SuperPoDs give {lack.nodes_have or 'none'}{_near(lack)}"


def _size(lack: BlockLack) -> str:
    return f"a SuperPoD has more usable nodes than super_pod_size allows{_near(lack)}"


def _rack(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')}"
    if lack.nodes_need <= RACK_NODES:
        return f"{head} of one rack; no rack has as many usable ones{_near(lack)}"
    return f"{head} of racks that share memory; no such racks have as many usable ones{_near(lack)}"


def _wait(lack: BlockLack) -> str:
    return f"waits for its own nodes: {lack.nodes_have:,} of {pluralize(lack.nodes_need, 'node')} are free again"


def _level(lack: BlockLack) -> str:
    if not lack.size:
        return f"needs a tree of {pluralize(lack.need, 'level')}; the highest one has {lack.have}"
    where = f" in tree {lack.near[0].name}, which comes closest" if lack.near else ""
    head = f"needs {pluralize(lack.need, 'group')} of {pluralize(lack.size, 'node')}"
    return f"{head}; {lack.have or 'none'} can be placed{where}"


def _near(lack: BlockLack) -> str:
    """The nearest SuperPoDs: all with room for blocks, or those with the most nodes.

    Racks reduce the blocks that fit on the nodes of a SuperPoD; then the count of blocks is left out.
    """
    if not lack.near:
        return ""
    blocks = sum(near.blocks for near in lack.near)
    parts: list[str] = []
    for near in lack.near:
        nodes = pluralize(near.nodes, "usable node") if not parts else f"{near.nodes:,}"
        made = f" ({pluralize(near.blocks, 'block')})" if near.blocks and blocks <= lack.have else ""
        parts.append(f"SuperPoD {near.name} has {nodes}{made}")
    return f"{', among others' if blocks < lack.have else ''}: {', '.join(parts)}"


_BY_BLOCK: Final = frozenset({"blocks", "service", "affinity", "level"})
_LACKS: Final[Mapping[str, Callable[[BlockLack], str]]] = {
    "nodes": _nodes,
    "blocks": _blocks,
    "incomplete": _incomplete,
    "size": _size,
    "service": _service,
    "affinity": _affinity,
    "rack": _rack,
    "wait": _wait,
    "home": _home,
    "level": _level,
}
