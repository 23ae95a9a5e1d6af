"""How a gang lies in SuperPoDs, or in groups of levels, or what it meets there: as data and in words."""

from typing import Final

import msgspec

from berth.core.explain.refusal_text import unfit_words
from berth.core.explain.superpod_text import (
    LEVELS,
    blocks_words,
    group_words,
    phase_words,
    product_words,
)
from berth.core.explain.text import pluralize, ranges
from berth.schemas.offers import Blocks

_BLOCKS_SHOWN: Final = 8
_JOBS_SHOWN: Final = 4


class SuperpodUser(msgspec.Struct, frozen=True):
    """A job with pods in a SuperPoD; pods without chips do not count."""

    job: str
    """``namespace/name``."""
    pods: int
    """Its pods here, of ..."""
    of: int
    """... so many in all."""
    blocks: list[int] = []
    """Its blocks that have nodes here."""

    def words(self) -> str:
        """Name, and how many of its pods and which of its blocks are meant."""
        pods = pluralize(self.of, "pod") if self.pods == self.of else f"{self.pods} of {self.of} pods"
        blocks = blocks_words(self.blocks)
        return f"{self.job} ({pods}, {blocks})" if blocks else f"{self.job} ({pods})"


class BlockSeat(msgspec.Struct, frozen=True):
    """Where a block is."""

    block: int
    superpod: str
    """Physical SuperPoD, or group of level 1."""
    pods: int
    ranks: list[int]
    phase: str
    """What gave it its nodes."""


class NearSuperpod(msgspec.Struct, frozen=True):
    """A SuperPoD, or a group of level 1, that has much to give to a gang that waits."""

    superpod: str
    usable: int
    """Nodes that can take a pod."""
    nodes: int
    """Nodes that are known."""
    blocks: int
    """Whole blocks that the usable ones make."""
    lacks: int
    """Nodes that are missing for one more; 0 where that is not what it waits for."""
    unfit: dict[str, int] = {}
    """Nodes that cannot take a pod, by reason."""
    jobs: list[SuperpodUser] = []


class BlockLayout(msgspec.Struct):
    """How a gang lies in SuperPoDs, or what it meets there."""

    variant: str
    """``a3``, ``850``, ``rack`` or ``levels``."""
    pods: int
    """Pods with chips."""
    size: int
    """Nodes of a block."""
    count: int
    """Blocks that it asks for."""
    soft: bool = False
    """Its blocks may be split."""
    reserve: int = 0
    """Nodes that a SuperPoD keeps while another can give; 0 where reserves play no part."""
    rack_size: int = 0
    """Nodes that stay in one rack; 0 without racks."""
    levels: list[int] = []
    """Levels: pods that share a group, level 1 first."""
    service: str = ""
    """Inference service; empty without."""
    mindie: bool = False
    rule: str = ""
    """What is missing, while it waits."""
    missing: int = 0
    """Blocks, or with levels groups, that are missing; 0 where it is something else that is."""
    missing_size: int = 0
    """Nodes of each of them."""
    seats: list[BlockSeat] = []
    words: dict[str, str] = {}
    """What each phase of ``seats`` means."""
    nearest: list[NearSuperpod] = []
    annotated: bool = False
    """Pods carry ``super-pod-id`` and ``super-pod-rank``."""


def placed_lines(layout: BlockLayout) -> list[str]:
    """What was asked, and what gave each block its nodes, one sentence an entry."""
    lines = [_asked(layout)]
    for phase in dict.fromkeys(seat.phase for seat in layout.seats):
        seats = [seat for seat in layout.seats if seat.phase == phase]
        parts = [_seat_words(seat, layout) for seat in seats[:_BLOCKS_SHOWN]]
        more = len(seats) - len(parts)
        rest = f" and {pluralize(more, 'more block')}" if more else ""
        lines.append(f"By {layout.words.get(phase, phase)}: {', '.join(parts)}{rest}.")
    return lines


def waiting_lines(layout: BlockLayout, *, chips: int, form: str) -> list[str]:
    """What is missing, and the SuperPoDs that come closest, one sentence an entry.

    Args:
        layout: What is known.
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
    """Where a pod is: ``block 0, SuperPoD 3``."""
    return f"block {block}, {group_words(variant)} {superpod}"


def words_of_phase(phase: str, blocks: Blocks) -> str:
    """Name of a phase and what it means to a gang."""
    found = phase_words(phase, blocks.variant, idlest=blocks.idlest, has_near=bool(blocks.near))
    return f"{found.name} ({found.why})" if found.why else found.name


def _asked(layout: BlockLayout) -> str:
    pods = pluralize(layout.pods, "pod")
    if layout.variant == LEVELS:
        levels = ", ".join(f"{size} in a group of level {level}" for level, size in enumerate(layout.levels, start=1))
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
    head = f"SuperPoD affinity of {product_words(layout.variant)}{mode} asks for {blocks} for its {pods} with chips"
    if layout.reserve:
        head += f"; a SuperPoD keeps {pluralize(layout.reserve, 'node')} while another can give"
    return f"{head}."


def _parts(layout: BlockLayout) -> str:
    """What of a block stays in one rack."""
    if layout.rack_size in {0, 1} and not (layout.service and layout.variant == "rack"):
        return ""
    if layout.service or layout.rack_size == layout.size:
        return ", each in one rack,"
    return f", whose parts of {pluralize(layout.rack_size, 'node')} each stay in one rack,"


def _seat_words(seat: BlockSeat, layout: BlockLayout) -> str:
    ranks = f"rank{'' if seat.pods == 1 else 's'} {ranges(seat.ranks)}"
    part = f", {seat.pods} of {pluralize(layout.size, 'node')}" if seat.pods < layout.size else ""
    return f"block {seat.block} in {group_words(layout.variant)} {seat.superpod} ({ranks}{part})"


def _near_words(near: NearSuperpod, layout: BlockLayout, *, chips: int, form: str) -> str:
    name = f"{group_words(layout.variant)} {near.superpod}"
    words = f"Near: {name}, {near.usable} of {pluralize(near.nodes, 'node')} usable"
    words += f", {pluralize(near.blocks, 'block')}" if near.blocks else ""
    if near.lacks:
        words += f", {pluralize(near.lacks, 'node')} short of {'another' if near.blocks else 'a block'}"
    unfit = unfit_words(near.unfit, chips=chips, form=form)
    words += f"; {unfit}" if unfit else ""
    if near.jobs:
        more = len(near.jobs) - _JOBS_SHOWN
        jobs = ", ".join(job.words() for job in near.jobs[:_JOBS_SHOWN])
        words += f"; its jobs are {jobs}{f' and {more} more' if more > 0 else ''}"
    return f"{words}."
