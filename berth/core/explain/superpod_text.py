"""SuperPoDs in words: what a gang lacks in them, what gave a block its nodes, and where blocks are.

Source: docs/reference/superpods.md, "Selection of blocks", "Soft and hard", "After a fault of blocks",
"Inference on SuperPoDs", "Racks" and "Failure texts of SuperPoDs"; docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from berth.core.explain.text import pluralize, ranges
from berth.core.superpods.racks import RACK_NODES
from berth.schemas.refusal import BlockLack

LEVELS: Final = "levels"
"""Variant whose blocks are in groups of a tree, not in SuperPoDs."""


class PhaseWords(NamedTuple):
    """What gave a block its nodes.

    Attributes:
        name: In few words.
        why: What it means.
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
    "reserve": PhaseWords(
        "queue 2", "SuperPoDs that give up nodes of their reserve, as none can give a block and keep it"
    ),
    "pieces": PhaseWords("queue 3", "what SuperPoDs have left, in pieces, as blocks may be split"),
    "kept": PhaseWords("what it had", "the nodes that the block had before"),
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
    "multi-superpod-pieces": PhaseWords("pieces", "what racks have left, a piece a rack, as blocks may be split"),
    "level": PhaseWords("levels", "groups of one tree, those first that are used up with the least left over"),
}
_NEAR: Final = "those with more nodes of the pods beside which it wants to be, then "
_RACK_SERVICE: Final = PhaseWords(
    "inference service", "racks with jobs of its service go first, then other racks of their SuperPoDs, then any"
)


def phase_words(phase: str, variant: str, *, idlest: bool = False, has_near: bool = False) -> PhaseWords:
    """What gave a block its nodes, by the name of the phase; the name itself where it is unknown.

    Args:
        phase: As the placement has it.
        variant: Of the gang.
        idlest: By preferred affinity: the SuperPoDs with more usable nodes go first.
        has_near: By preferred affinity: it names pods beside which it wants to be.
    """
    if (phase, variant) == ("service", "rack"):
        return _RACK_SERVICE
    found = _PHASES.get(phase)
    if found is None:
        return PhaseWords(phase, "")
    return found._replace(why=found.why.format(fit="emptier" if idlest else "fuller", near=_NEAR if has_near else ""))


def group_words(variant: str) -> str:
    """What the blocks of a variant are in: a SuperPoD, or a group of a tree."""
    return "group" if variant == LEVELS else "SuperPoD"


def blocks_words(blocks: Iterable[int]) -> str:
    """Ids of blocks: ``block 3``, ``blocks 0-2``; empty without any."""
    ids = sorted(set(blocks))
    return f"block{'' if len(ids) == 1 else 's'} {ranges(ids)}" if ids else ""


def lack_words(lack: BlockLack) -> str:
    """What a gang lacks in SuperPoDs and where, as a sentence without a full stop."""
    return _LACKS.get(lack.rule, _blocks)(lack)


def missing_blocks(lack: BlockLack) -> int:
    """Blocks that are missing; 0 where it is something else that is."""
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
    return f"a SuperPoD has more usable nodes than super_pod_size says{_near(lack)}"


def _rack(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')}"
    if lack.nodes_need <= RACK_NODES:
        return f"{head} of one rack; no rack has as many usable ones{_near(lack)}"
    return f"{head} of racks that share memory; no such racks have as many usable ones{_near(lack)}"


def _wait(lack: BlockLack) -> str:
    return f"waits for its own nodes: {lack.nodes_have} of {pluralize(lack.nodes_need, 'node')} are free again"


def _level(lack: BlockLack) -> str:
    if not lack.size:
        return f"needs a tree of {pluralize(lack.need, 'level')}; the highest one has {lack.have}"
    where = f" in tree {lack.near[0].name}, which comes closest" if lack.near else ""
    head = f"needs {pluralize(lack.need, 'group')} of {pluralize(lack.size, 'node')}"
    return f"{head}; {lack.have or 'none'} can be placed{where}"


def _near(lack: BlockLack) -> str:
    """The SuperPoDs that come closest: all that can give blocks, or those with the most nodes.

    What stands in racks makes fewer blocks than the nodes of a SuperPoD would; then none are told.
    """
    if not lack.near:
        return ""
    blocks = sum(near.blocks for near in lack.near)
    told: list[str] = []
    for near in lack.near:
        nodes = pluralize(near.nodes, "usable node") if not told else str(near.nodes)
        made = f" ({pluralize(near.blocks, 'block')})" if near.blocks and blocks <= lack.have else ""
        told.append(f"SuperPoD {near.name} has {nodes}{made}")
    return f"{', among others' if blocks < lack.have else ''}: {', '.join(told)}"


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
