"""Validation of a request for blocks, by its numbers only, without the cluster.

Source: docs/reference/superpods.md, "Terms of SuperPoDs" and "Validation of blocks".
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from berth.core.topologies.blocks.demand import SIZE_DEFAULT, Variant

SP_BLOCK: Final = "sp-block"
"""Annotation of a job: number of chips of a block."""
RA_BLOCK: Final = "ra-block"
"""Annotation of a job: number of chips of a part of a block that stays inside one rack."""
SUPER_POD_AFFINITY: Final = "super-pod-affinity"
"""Label of a job: with :data:`SOFT` blocks may be split; with any other value, or without the label, they may not."""
SOFT: Final = "soft"
UB_MEMORY: Final = "huawei.com/schedule_ubmemory"
"""Annotation of a job that shares memory over the unified bus; its value is ``true``."""
RACK_CHIPS: Final = 64
"""Chips of a rack."""
RACK_SIZE_MAX: Final = 1024
"""Most nodes of a SuperPoD with racks."""
UB_MEMORY_CHIPS_MAX: Final = 1024
"""Most chips of a gang that shares memory."""
RA_BLOCK_DEFAULT: Final = 8
_ROUND_UP: Final = 7
"""T is ``(ra-block + 7) div C`` for every C. Source: docs/reference/superpods.md, "Terms of SuperPoDs"."""

Reason = Literal[
    "InvalidArgument",
    "InvalidResourceRequest",
    "sp-block is invalid",
    "npu num is invalid",
    "job task num is invalid",
    "Parameter sp-block is invalid.",
    "Parameter super-pod-size is invalid.",
    "Parameter ra-block is invalid.",
]
"""Class of reason, in the words of the reference."""
Subject = Literal["sp-block", "super-pod-size", "ra-block", "chips", "pods"]
"""Invalid part: one of the two annotations, the setting, the chips of a task, or the number of pods."""

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64: Final = 1 << 63
_SHOWN_MAX: Final = 80


class Pods(NamedTuple):
    """Pods of a task.

    Attributes:
        replicas: Number of pods.
        chips: Chips per pod.
        may_lack_chips: The pods may have no chips: those of the task ``scheduler``, or of a job whose annotation allows
            it.
    """

    replicas: int
    chips: int
    may_lack_chips: bool = False


class BlockRequest(NamedTuple):
    """Fields of a job with SuperPoD affinity.

    Attributes:
        variant: Handler of the product.
        node_chips: C, chips of a node.
        sp_block: Annotation ``sp-block``; None if it is missing.
        tasks: Pods, task by task.
        size: Setting ``super-pod-size``. A value that is not positive means the default, except with racks, where it is
            rejected.
        ra_block: Annotation ``ra-block``, for racks; None if it is missing.
        ub_memory: The job shares memory over the unified bus.
        mixes_freely: Any task may lack chips, whatever its variant.
    """

    variant: Variant
    node_chips: int
    sp_block: str | None
    tasks: Sequence[Pods]
    size: int
    ra_block: str | None
    ub_memory: bool = False
    mixes_freely: bool = False

    @property
    def chips(self) -> int:
        """Chips of the whole job."""
        return sum(task.replicas * task.chips for task in self.tasks)

    @property
    def pods(self) -> int:
        """N, number of pods with chips."""
        return sum(task.replicas for task in self.tasks if task.chips)


class BlockShape(NamedTuple):
    """Result of a valid request.

    Attributes:
        block: B, number of nodes of a block.
        replicas: N, number of pods with chips; a multiple of ``block``.
        rack_block: T, number of nodes of a part of a block inside one rack; 0 without racks.
    """

    block: int
    replicas: int
    rack_block: int = 0


class BadBlocks(msgspec.Struct, frozen=True):
    """Reason why a request is rejected.

    Attributes:
        reason: Class of reason, in the words of the reference.
        subject: Invalid part.
        value: Invalid value, cut to 80 characters.
        expected: Valid values.
        task: Index of the task, if the chips of its pods are invalid; otherwise -1.
    """

    reason: Reason
    subject: Subject
    value: str
    expected: str
    task: int = -1


def check_blocks(request: BlockRequest) -> BlockShape | BadBlocks:
    """Shape of a valid request, or its first error."""
    chips, block_chips = request.node_chips, _sp_block(request)
    block = 1 if block_chips < chips else block_chips // chips
    ra_block = RA_BLOCK_DEFAULT if request.ra_block is None else int64_or_zero(request.ra_block)
    rack_block = (ra_block + _ROUND_UP) // chips
    fault = next(_faults(request, block_chips, block, ra_block, rack_block), None)
    if fault is not None:
        return fault
    return BlockShape(block, request.pods, rack_block if request.variant == "rack" else 0)


def int64_or_zero(text: str) -> int:
    """64-bit integer in decimal digits, with or without a sign; 0 for any other text, as the reference reads it."""
    value = int(text) if _INTEGER.fullmatch(text) else 0
    return value if -_INT64 <= value < _INT64 else 0


def _sp_block(request: BlockRequest) -> int:
    return request.chips if request.sp_block is None else int64_or_zero(request.sp_block)


def _faults(request: BlockRequest, block_chips: int, block: int, ra_block: int, rack_block: int) -> Iterator[BadBlocks]:
    match request.variant:
        case "a3":
            return _faults_a3(request, block_chips, block)
        case "850":
            return _faults_850(request, block_chips, block)
        case "rack":
            return _faults_rack(request, block_chips, block, ra_block, rack_block)


def _faults_a3(request: BlockRequest, block_chips: int, block: int) -> Iterator[BadBlocks]:
    """The table of A3, row by row; a negative ``sp-block`` is as wrong as none (decision D-14).

    Source: docs/reference/superpods.md, "Validation of A3".
    """
    chips, total = request.node_chips, request.chips
    wanted = f"a multiple of {chips}, the chips of a node, or all {total} chips of the job where that is less"
    if block_chips <= 0 or (block_chips < chips and block_chips != total):
        yield _bad_sp_block(request, "InvalidArgument", wanted)
    if block_chips >= chips and block_chips % chips:
        yield _bad_sp_block(request, "InvalidArgument", wanted)
    yield from _too_large(request, "InvalidResourceRequest", block, _size(request))
    if request.pods == 1 and total != 1 and (total % 2 or total > chips):
        yield _bad(
            "InvalidResourceRequest", "chips", total, f"1, or an even number up to {chips}, for the job's only pod"
        )
    yield from _not_whole(request, "InvalidResourceRequest", block_chips)
    if request.pods != 1:
        yield from _not_whole_nodes(request, "InvalidResourceRequest")


def _faults_850(request: BlockRequest, block_chips: int, block: int) -> Iterator[BadBlocks]:
    """The rules of Atlas 850.

    Source: docs/reference/superpods.md, "Validation of Atlas 850".
    """
    chips, total = request.node_chips, request.chips
    if block_chips <= 0 or (block_chips >= chips and block_chips % chips):
        yield _bad_sp_block(
            request, "sp-block is invalid", f"1 or more, and from {chips}, the chips of a node, a multiple of it"
        )
    yield from _too_large(request, "sp-block is invalid", block, _size(request))
    if request.pods == 1 and total > chips:
        yield _bad("npu num is invalid", "chips", total, f"1 to {chips} for the job's only pod")
    yield from _not_whole(request, "npu num is invalid", block_chips)
    if request.pods != 1:
        yield from _not_whole_nodes(request, "npu num is invalid")


def _faults_rack(
    request: BlockRequest, block_chips: int, block: int, ra_block: int, rack_block: int
) -> Iterator[BadBlocks]:
    """The table of Atlas 950, in its order.

    Source: docs/reference/superpods.md, "Validation of Atlas 950".
    """
    chips, pods, total = request.node_chips, request.pods, request.chips
    if block_chips <= 0 or (block_chips >= chips and block_chips % chips):
        wanted = f"1 or more, and from {chips}, the chips of a node, a multiple of it"
        yield _bad_sp_block(request, "Parameter sp-block is invalid.", wanted)
    if pods % block:
        wanted = f"a multiple of {block}, the nodes of a block ({SP_BLOCK} div {chips})"
        yield _bad("job task num is invalid", "pods", pods, wanted)
    if not 1 <= request.size <= RACK_SIZE_MAX:
        yield _bad("Parameter super-pod-size is invalid.", "super-pod-size", request.size, f"1 to {RACK_SIZE_MAX}")
    yield from _too_large(request, "Parameter super-pod-size is invalid.", block, request.size)
    if not 1 <= ra_block <= RACK_CHIPS or ra_block & (ra_block - 1):
        yield _bad_ra_block(request, f"a power of two from 1 to {RACK_CHIPS}")
    if rack_block > block or block % rack_block:
        yield _bad_ra_block(request, f"chips of nodes of which a block of {block} nodes is a multiple")
    yield from _faults_of_rack_chips(request, block_chips, ra_block)
    if request.ub_memory and total > UB_MEMORY_CHIPS_MAX:
        wanted = f"at most {UB_MEMORY_CHIPS_MAX} for a job that shares memory (annotation {UB_MEMORY})"
        yield _bad("npu num is invalid", "chips", total, wanted)


def _faults_of_rack_chips(request: BlockRequest, block_chips: int, ra_block: int) -> Iterator[BadBlocks]:
    """Rows 5 and 6 of the table of Atlas 950.

    Source: docs/reference/superpods.md, "Validation of Atlas 950".
    """
    chips, total = request.node_chips, request.chips
    if request.pods == 1 and not 1 <= total <= chips:
        yield _bad("npu num is invalid", "chips", total, f"1 to {chips} for the job's only pod")
    yield from _not_whole(request, "npu num is invalid", block_chips)
    if request.pods != 1:
        if total % ra_block:
            yield _bad("npu num is invalid", "chips", total, f"a multiple of {ra_block}, the chips of {RA_BLOCK}")
        yield from _not_whole_nodes(request, "npu num is invalid")


def _too_large(request: BlockRequest, reason: Reason, block: int, size: int) -> Iterator[BadBlocks]:
    if block > size:
        chips = size * request.node_chips
        yield _bad_sp_block(request, reason, f"at most {chips}, the chips of {size} nodes (setting super-pod-size)")


def _not_whole(request: BlockRequest, reason: Reason, block_chips: int) -> Iterator[BadBlocks]:
    """Errors if several pods do not form whole blocks; one pod is one block."""
    total = request.chips
    if request.pods == 1:
        if total != block_chips:
            yield _bad_sp_block(request, reason, f"{total}, the chips of the job's only pod")
    elif total < 1 or total % block_chips:
        wanted = f"in all, a multiple of {block_chips}, the chips of a block ({SP_BLOCK})"
        yield _bad(reason, "chips", total, f"{wanted}{_or_a_divisor(total, block_chips, request.node_chips)}")


def _or_a_divisor(total: int, block_chips: int, node_chips: int) -> str:
    """A smaller block that would do for a job of so many chips, in words; empty if there is none."""
    nodes, rest = divmod(total, node_chips)
    if rest or nodes < 1:
        return ""
    most = min(block_chips // node_chips, nodes)
    fits = next((size for size in range(most, 0, -1) if nodes % size == 0), 0)
    such = fits * node_chips
    return f"; or set annotation {SP_BLOCK} to a divisor of {total}, such as {such}" if fits else ""


def _not_whole_nodes(request: BlockRequest, reason: Reason) -> Iterator[BadBlocks]:
    """Errors if one of several pods does not use a whole node; by itself only A3 allows pods without chips."""
    chips = request.node_chips
    for index, task in enumerate(request.tasks):
        may_lack_chips = request.mixes_freely or (request.variant == "a3" and task.may_lack_chips)
        if task.chips != chips and (task.chips or not may_lack_chips):
            yield BadBlocks(reason, "chips", str(task.chips), f"{chips} in every pod, the chips of a node", index)


def _size(request: BlockRequest) -> int:
    return request.size if request.size > 0 else SIZE_DEFAULT


def _bad(reason: Reason, subject: Subject, value: object, expected: str) -> BadBlocks:
    return BadBlocks(reason, subject, str(value)[:_SHOWN_MAX], expected)


def _bad_sp_block(request: BlockRequest, reason: Reason, expected: str) -> BadBlocks:
    value = f"absent, so {request.chips}" if request.sp_block is None else request.sp_block
    return _bad(reason, "sp-block", value, expected)


def _bad_ra_block(request: BlockRequest, expected: str) -> BadBlocks:
    value = f"absent, so {RA_BLOCK_DEFAULT}" if request.ra_block is None else request.ra_block
    return _bad("Parameter ra-block is invalid.", "ra-block", value, expected)
