"""Blocks of a gang in SuperPoDs or in groups of levels, or the nearest SuperPoDs: as data and in words."""

from typing import Final

import msgspec

from berth.core.explain.refusal_text import unfit_words
from berth.core.explain.superpod_text import (
    LEVELS,
    blocks_words,
    group_words,
    phase_words,
)
from berth.core.explain.text import pluralize, ranges
from berth.core.topologies.blocks.demand import Blocks
from berth.products.catalogue import FORMS

_BLOCKS_SHOWN: Final = 8
_JOBS_SHOWN: Final = 4


class SuperpodUser(msgspec.Struct, frozen=True):
    """A job with pods in a SuperPoD; pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods in this SuperPoD."""
    of: int
    """All its pods with chips."""
    blocks: list[int]
    """Its blocks with nodes in this SuperPoD."""

    def words(self) -> str:
        """Name, pods and blocks."""
        pods = pluralize(self.of, "pod") if self.pods == self.of else f"{self.pods:,} of {self.of:,} pods"
        blocks = blocks_words(self.blocks)
        return f"{self.job} ({pods}, {blocks})" if blocks else f"{self.job} ({pods})"


class BlockSeat(msgspec.Struct, frozen=True):
    """Position of a block."""

    block: int
    superpod: str
    """Physical SuperPoD, or group of level 1."""
    pods: int
    ranks: list[int]
    phase: str
    """Phase of the selection that chose its nodes."""


class NearSuperpod(msgspec.Struct, frozen=True):
    """A SuperPoD, or a group of level 1, with many usable nodes for a waiting gang."""

    superpod: str
    usable: int
    """Nodes that can take a pod."""
    nodes: int
    """Known nodes."""
    blocks: int
    """Whole blocks that fit on the usable nodes."""
    lacks: int
    """Nodes missing for one more block; 0 when the gang waits for something else."""
    unfit: dict[str, int]
    """Nodes that cannot take a pod, by reason."""
    jobs: list[SuperpodUser]


class BlockLayout(msgspec.Struct):
    """Blocks of a placed gang, or the demand of a waiting gang and the nearest SuperPoDs."""

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``."""
    pods: int
    """Pods with chips."""
    size: int
    """Nodes of a block."""
    count: int
    """Requested blocks."""
    soft: bool
    """Blocks may be split."""
    reserve: int
    """Nodes that stay reserved in a SuperPoD while another one has room; 0 when reserves do not apply."""
    rack_size: int
    """Nodes that stay in one rack; 0 without racks."""
    levels: list[int]
    """Pods in one group of each level, level 1 first."""
    service: str
    """Inference service; empty without."""
    mindie: bool
    rule: str = ""
    """What is missing, while it waits."""
    missing: int = 0
    """Missing blocks, or groups for levels; 0 when something else is missing."""
    missing_size: int = 0
    """Nodes of each missing block."""
    seats: list[BlockSeat] = []
    words: dict[str, str] = {}
    """Description of each phase of ``seats``."""
    nearest: list[NearSuperpod] = []
    annotated: bool = False
    """Pods carry ``super-pod-id`` and ``super-pod-rank``."""


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


def waiting_lines(layout: BlockLayout, *, chips: int, form: str) -> list[str]:
    """What is missing and the nearest SuperPoDs, one sentence for each entry.

    Args:
        layout: The demand and the nearest SuperPoDs.
        chips: Chips of a pod.
        form: Product form of the job.
    """
    nearest = [_near_words(near, layout, chips=chips, form=form) for near in layout.nearest]
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


def _near_words(near: NearSuperpod, layout: BlockLayout, *, chips: int, form: str) -> str:
    name = f"{group_words(layout.variant)} {near.superpod}"
    words = f"Near: {name}, {near.usable:,} of {pluralize(near.nodes, 'node')} usable"
    words += f", {pluralize(near.blocks, 'block')}" if near.blocks else ""
    if near.lacks:
        words += f", {pluralize(near.lacks, 'node')} short of {'another' if near.blocks else 'a block'}"
    unfit = unfit_words(near.unfit, chips=chips, form=form)
    words += f"; {unfit}" if unfit else ""
    if near.jobs:
        more = len(near.jobs) - _JOBS_SHOWN
        jobs = ", ".join(job.words() for job in near.jobs[:_JOBS_SHOWN])
        words += f"; its jobs are {jobs}{f' and {more:,} more' if more > 0 else ''}"
    return f"{words}."
