"""SuperPoDs in words: what is missing for a gang, how the nodes of a block were chosen, and where blocks are.

Source: docs/reference/superpods.md, "Selection of blocks", "Soft and hard", "After a fault of blocks",
"Inference on SuperPoDs", "Racks" and "Failure texts of SuperPoDs"; docs/reference/levels.md, "Configuration of levels".
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from berth.core.text import pluralize, ranges
from berth.core.topologies.blocks.demand import LEVELS, Blocks
from berth.core.topologies.layouts import BlockLayout, BlockSeat, NearSuperpod, UnfitWords, near_sentence
from berth.products.catalogue import FORMS
from berth.schemas.refusal import BlockLack

_BLOCKS_SHOWN: Final = 8


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


def missing_blocks(lack: BlockLack) -> int:
    """Missing blocks; 0 when something else is missing."""
    return max(lack.need - lack.have, 0) if lack.rule in _BY_BLOCK else 0


def lacking_blocks(lack: BlockLack) -> str:
    """What is missing for a gang that needs whole blocks."""
    return _needs_blocks(lack, "")


def _service(lack: BlockLack) -> str:
    return _needs_blocks(lack, " for its inference service")


def _affinity(lack: BlockLack) -> str:
    return _needs_blocks(lack, " near the pods that it prefers")


def _needs_blocks(lack: BlockLack, what_for: str) -> str:
    head = f"needs {pluralize(lack.need, 'logical SuperPoD')} of {pluralize(lack.size, 'node')}{what_for}"
    return f"{head}; {lack.have or 'none'} can be placed{nearest(lack)}"


def _nodes(lack: BlockLack) -> str:
    return f"needs {pluralize(lack.nodes_need, 'node')}, and {_fitting(lack.nodes_have)}"


def _home(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')} in the SuperPoDs where its damaged blocks have to stay"
    return f"{head}, and {_fitting(lack.nodes_have)}"


def _fitting(nodes: int) -> str:
    return f"{nodes} fit" if nodes > 1 else f"{nodes or 'none'} fits"


def _incomplete(lack: BlockLack) -> str:
    head = f"needs {pluralize(lack.nodes_need, 'node')} in logical SuperPoDs of {lack.size}"
    return f"{head}; the SuperPoDs give {lack.nodes_have or 'none'}{nearest(lack)}"


def _size(lack: BlockLack) -> str:
    return f"a SuperPoD has more usable nodes than super_pod_size allows{nearest(lack)}"


def _wait(lack: BlockLack) -> str:
    return f"waits for its own nodes: {lack.nodes_have:,} of {pluralize(lack.nodes_need, 'node')} are free again"


def nearest(lack: BlockLack) -> str:
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
LACKS: Final[Mapping[str, Callable[[BlockLack], str]]] = {
    "nodes": _nodes,
    "blocks": lacking_blocks,
    "incomplete": _incomplete,
    "size": _size,
    "service": _service,
    "affinity": _affinity,
    "wait": _wait,
    "home": _home,
}
"""What is missing for a gang, as a sentence without a full stop, by rule."""


def placed_lines(layout: BlockLayout, *, form: str) -> list[str]:
    """The request and the phases that chose the nodes, one sentence for each entry.

    Args:
        layout: Blocks of the gang.
        form: Product form of the job.
    """
    lines = [_asked(layout, form)]
    for phase in dict.fromkeys(seat.phase for seat in layout.seats):
        seats = [seat for seat in layout.seats if seat.phase == phase]
        parts = [_seat_words(seat, layout) for seat in seats[:_BLOCKS_SHOWN]]
        more = len(seats) - len(parts)
        rest = f" and {pluralize(more, 'more block')}" if more else ""
        lines.append(f"By {layout.words.get(phase, phase)}: {', '.join(parts)}{rest}.")
    return lines


def waiting_lines(layout: BlockLayout, unfit_words: UnfitWords) -> list[str]:
    """What is missing and the nearest SuperPoDs, one sentence for each entry.

    Args:
        layout: The demand and the nearest SuperPoDs.
        unfit_words: Words about nodes that do not fit.
    """
    nearest = [_near_words(near, layout, unfit_words) for near in layout.nearest]
    if not layout.missing:
        return nearest
    verb = "is" if layout.missing == 1 else "are"
    noun = "group" if layout.variant == LEVELS else "block"
    return [f"{pluralize(layout.missing, noun)} of {pluralize(layout.missing_size, 'node')} {verb} missing.", *nearest]


def seat_words(block: int, superpod: str, variant: str) -> str:
    """Position of a pod: ``block 0, SuperPoD 3``."""
    return f"block {block}, {group_words(variant)} {superpod}"


def words_of_phase(phase: str, blocks: Blocks) -> str:
    """Name of a phase and its description for a gang."""
    found = phase_words(phase, blocks.variant, idlest=blocks.idlest, has_near=bool(blocks.near))
    return f"{found.name} ({found.why})" if found.why else found.name


def _asked(layout: BlockLayout, form: str) -> str:
    pods = pluralize(layout.pods, "pod")
    if layout.variant == LEVELS:
        levels = ", ".join(f"{size:,} in a group of level {level}" for level, size in enumerate(layout.levels, start=1))
        return f"Levels put its {pods} with chips into groups of one tree: {levels}."
    mode = ", soft," if layout.soft else ", hard,"
    if layout.service:
        mode = f" for inference service {layout.service}"
    elif layout.mindie:
        mode = " for MindIE"
    noun = "block" if layout.count == 1 else "blocks"
    blocks = (
        f"{pluralize(layout.count, 'logical SuperPoD')} ({noun}) of {pluralize(layout.size, 'node')}{_parts(layout)}"
    )
    product = (FORMS[form].block_product if form in FORMS else "") or layout.variant
    head = f"SuperPoD affinity of {product}{mode} asks for {blocks} for its {pods} with chips"
    if layout.reserve:
        head += f"; a SuperPoD keeps {pluralize(layout.reserve, 'node')} in reserve while another has room"
    return f"{head}."


def _parts(layout: BlockLayout) -> str:
    """Part of a block that stays in one rack."""
    if layout.rack_size in {0, 1} and not (layout.service and layout.variant == "rack"):
        return ""
    if layout.service or layout.rack_size == layout.size:
        return ", each in one rack,"
    return f", whose parts of {pluralize(layout.rack_size, 'node')} each stay in one rack,"


def _seat_words(seat: BlockSeat, layout: BlockLayout) -> str:
    ranks = f"rank{'' if seat.pods == 1 else 's'} {ranges(seat.ranks)}"
    part = f", {seat.pods:,} of {pluralize(layout.size, 'node')}" if seat.pods < layout.size else ""
    return f"block {seat.block} in {group_words(layout.variant)} {seat.superpod} ({ranks}{part})"


def _near_words(near: NearSuperpod, layout: BlockLayout, unfit_words: UnfitWords) -> str:
    name = f"{group_words(layout.variant)} {near.superpod}"
    words = f"Near: {name}, {near.usable:,} of {pluralize(near.nodes, 'node')} usable"
    words += f", {pluralize(near.blocks, 'block')}" if near.blocks else ""
    if near.lacks:
        words += f", {pluralize(near.lacks, 'node')} short of {'another' if near.blocks else 'a block'}"
    return near_sentence(words, unfit_words(near.unfit), [job.words() for job in near.jobs])
