"""How a gang lies in SuperPoDs, or in groups of levels, or what it meets there: as data and in words."""

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
from berth.products.catalogue import FORMS
from berth.schemas.offers import Blocks

_BLOCKS_TOLD: Final = 8
_JOBS_TOLD: Final = 4


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


def placed_lines(told: BlockLayout, *, form: str) -> list[str]:
    """What was asked, and what gave each block its nodes, one sentence an entry.

    Args:
        told: What is known.
        form: Product form of the job.
    """
    lines = [_asked(told, form)]
    for phase in dict.fromkeys(seat.phase for seat in told.seats):
        seats = [seat for seat in told.seats if seat.phase == phase]
        parts = [_seat_words(seat, told) for seat in seats[:_BLOCKS_TOLD]]
        more = len(seats) - len(parts)
        rest = f" and {pluralize(more, 'more block')}" if more else ""
        lines.append(f"By {told.words.get(phase, phase)}: {', '.join(parts)}{rest}.")
    return lines


def waiting_lines(told: BlockLayout, *, chips: int, form: str) -> list[str]:
    """What is missing, and the SuperPoDs that come closest, one sentence an entry.

    Args:
        told: What is known.
        chips: Chips of a pod.
        form: Product form of the job.
    """
    nearest = [_near_words(near, told, chips=chips, form=form) for near in told.nearest]
    if not told.missing:
        return nearest
    verb = "is" if told.missing == 1 else "are"
    noun = "group" if told.variant == LEVELS else "block"
    return [f"{pluralize(told.missing, noun)} of {pluralize(told.missing_size, 'node')} {verb} missing.", *nearest]


def seat_words(block: int, superpod: str, variant: str) -> str:
    """Where a pod is: ``block 0, SuperPoD 3``."""
    return f"block {block}, {group_words(variant)} {superpod}"


def words_of_phase(phase: str, blocks: Blocks) -> str:
    """Name of a phase and what it means to a gang."""
    found = phase_words(phase, blocks.variant, idlest=blocks.idlest, has_near=bool(blocks.near))
    return f"{found.name} ({found.why})" if found.why else found.name


def _asked(told: BlockLayout, form: str) -> str:
    pods = pluralize(told.pods, "pod")
    if told.variant == LEVELS:
        levels = ", ".join(f"{size} in a group of level {level}" for level, size in enumerate(told.levels, start=1))
        return f"Levels put its {pods} with chips into groups of one tree: {levels}."
    mode = ", soft," if told.soft else ", hard,"
    if told.service:
        mode = f" for inference service {told.service}"
    elif told.mindie:
        mode = " for MindIE"
    noun = "block" if told.count == 1 else "blocks"
    blocks = f"{pluralize(told.count, 'logical SuperPoD')} ({noun}) of {pluralize(told.size, 'node')}{_parts(told)}"
    product = (FORMS[form].block_product if form in FORMS else "") or told.variant
    head = f"SuperPoD affinity of {product}{mode} asks for {blocks} for its {pods} with chips"
    if told.reserve:
        head += f"; a SuperPoD keeps {pluralize(told.reserve, 'node')} while another can give"
    return f"{head}."


def _parts(told: BlockLayout) -> str:
    """What of a block stays in one rack."""
    if told.rack_size in {0, 1} and not (told.service and told.variant == "rack"):
        return ""
    if told.service or told.rack_size == told.size:
        return ", each in one rack,"
    return f", whose parts of {pluralize(told.rack_size, 'node')} each stay in one rack,"


def _seat_words(seat: BlockSeat, told: BlockLayout) -> str:
    ranks = f"rank{'' if seat.pods == 1 else 's'} {ranges(seat.ranks)}"
    part = f", {seat.pods} of {pluralize(told.size, 'node')}" if seat.pods < told.size else ""
    return f"block {seat.block} in {group_words(told.variant)} {seat.superpod} ({ranks}{part})"


def _near_words(near: NearSuperpod, told: BlockLayout, *, chips: int, form: str) -> str:
    name = f"{group_words(told.variant)} {near.superpod}"
    words = f"Near: {name}, {near.usable} of {pluralize(near.nodes, 'node')} usable"
    words += f", {pluralize(near.blocks, 'block')}" if near.blocks else ""
    if near.lacks:
        words += f", {pluralize(near.lacks, 'node')} short of {'another' if near.blocks else 'a block'}"
    unfit = unfit_words(near.unfit, chips=chips, form=form)
    words += f"; {unfit}" if unfit else ""
    if near.jobs:
        more = len(near.jobs) - _JOBS_TOLD
        jobs = ", ".join(job.words() for job in near.jobs[:_JOBS_TOLD])
        words += f"; its jobs are {jobs}{f' and {more} more' if more > 0 else ''}"
    return f"{words}."
