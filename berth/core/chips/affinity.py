"""Affinity class of a free mask: how well the free chips of a node suit a pod.

Class 0 is best; :data:`NEVER` means that the node cannot serve the pod. The order of free chips in a ring is the HCCS
affinity of the product: HCCS is the link between the chips of one ring.

Every rule has two implementations with equal results: one for an array of masks, which fills the tables, and one for a
single mask, which serves rows that are evaluated one at a time. A property test compares the two.

A mask has 64 bits: bit ``i`` is the chip with id ``i``. The caller checks first that there are enough free chips; a
class depends on the topology only.

Source: docs/reference/nodes-and-chips.md, "Rules per product".
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from berth.core.chips.meshes import MESH_IDS, WHOLE_MESHES_FROM, keeps_mesh
from berth.products.model import Form

Masks = NDArray[np.uint64]
Classes = NDArray[np.uint8]

NEVER: Final = 255
"""Class of a node whose topology cannot serve the pod."""
_CHUNK: Final = 1 << 16
_EVEN: Final = 0x5555_5555_5555_5555
_LOW_BYTE: Final = 0xFF
_NO_HALF_PAIR: Final = 16
"""Class of an A3 node on which a pod with one chip breaks a full pair.

Source: docs/reference/nodes-and-chips.md, "A3: pairs"."""
_DUO_WORST: Final = 16
_DUO_FREE_MAX: Final = 8
"""A Duo node with more free chips gets the worst class.

Source: docs/reference/nodes-and-chips.md, "310P Duo, distributed"."""


def classes_of(form: Form, masks: Masks, *, chips: int, distributed: bool) -> Classes:
    """Affinity class of each mask.

        >>> from berth.products.catalogue import FORMS
        >>> masks = np.array([0b1111, 0b0011_0001, 0], np.uint64)
        >>> classes_of(FORMS["module910x8"], masks, chips=1, distributed=False)
        array([  3,   0, 255], dtype=uint8)

    A 910A node has two HCCS rings of 4 chips. One chip prefers a ring with 1 free chip (class 0, second mask) to a ring
    with 4 (class 3, first mask); an empty node cannot serve it (third mask).

    Args:
        form: Product form.
        masks: ``uint64`` array of any shape: usable chips of each node.
        chips: Number of chips that the pod requests, at least 1.
        distributed: The job has more than one pod with chips.

    Returns:
        ``uint8`` array of the shape of ``masks``: 0 is best, :data:`NEVER` does not fit.
    """
    match form.rule:
        case "group":
            return _group_classes(form, masks, chips, distributed=distributed)
        case "pairs":
            return _pair_classes(masks, chips)
        case "mesh" if keeps_mesh(chips):
            return _mesh_classes(masks, chips)
        case "duo":
            return _duo_table(chips)[_duo_keys(masks)]
        case _:
            return np.zeros(masks.shape, np.uint8)


def class_of(form: Form, mask: int, *, chips: int, distributed: bool) -> int:
    """Affinity class of one mask. Equal to the result of :func:`classes_of` for an array with this mask."""
    match form.rule:
        case "group":
            return _group_class(form, mask, chips, distributed=distributed)
        case "pairs":
            return _pair_class(mask, chips)
        case "mesh" if keeps_mesh(chips):
            return _mesh_class(mask, chips)
        case "duo":
            return int(_duo_table(chips)[_duo_key(mask)])
        case _:
            return 0


# HCCS rings and cards: one group serves the pod, or the whole node, or both rings in equal parts.


def _row(form: Form, chips: int) -> tuple[int, ...]:
    """Class of a group by its number of free chips; index 0 is a group without free chips."""
    if chips > form.group_size:
        return (NEVER,) * (form.group_size + 1)
    return (NEVER, *(NEVER if value == form.group_size else value for value in form.classes[chips - 1]))


@lru_cache(maxsize=64)
def _chunk_table(row: tuple[int, ...]) -> Classes:
    """Best class over the groups of every 16-bit mask.

    Args:
        row: Class of a group by its number of free chips; the group size is ``len(row) - 1``.

    Returns:
        ``uint8[65536]``, indexed by mask.
    """
    size = len(row) - 1
    masks = np.arange(_CHUNK, dtype=np.uint16)
    by_count = np.array(row, np.uint8)
    best = np.full(_CHUNK, NEVER, np.uint8)
    for start in range(0, 16, size):
        counts = np.bitwise_count((masks >> np.uint16(start)) & np.uint16((1 << size) - 1))
        np.minimum(best, by_count[counts], out=best)
    return best


def _group_classes(form: Form, masks: Masks, chips: int, *, distributed: bool) -> Classes:
    if chips == form.whole:
        return np.where(np.bitwise_count(masks) == chips, 0, NEVER).astype(np.uint8)
    if form.cross and chips > form.group_size:
        return _cross_classes(masks, chips, distributed=distributed)
    table = _chunk_table(_row(form, chips))
    best: Classes = table[masks & np.uint64(_CHUNK - 1)]
    for start in (16, 32, 48):
        np.minimum(best, table[(masks >> np.uint64(start)) & np.uint64(_CHUNK - 1)], out=best)
    return best


def _group_class(form: Form, mask: int, chips: int, *, distributed: bool) -> int:
    if chips == form.whole:
        return 0 if mask.bit_count() == chips else NEVER
    if form.cross and chips > form.group_size:
        pairs = cross_pairs(mask, distributed=distributed)
        return pairs - chips // 2 if chips % 2 == 0 and pairs * 2 >= chips else NEVER
    row = _row(form, chips)
    full = (1 << form.group_size) - 1
    best = NEVER
    while mask:
        best = min(best, row[(mask & full).bit_count()])
        mask >>= form.group_size
    return best


def cross_pairs(mask: int, *, distributed: bool) -> int:
    """Number of pairs that the two HCCS rings of a Box16 node can form.

    For a single pod the partners are the chips i and i+8. In a distributed job their positions may differ.

    Source: docs/reference/nodes-and-chips.md, "A2 Box16: two rings of 8".
    """
    left, right = mask & _LOW_BYTE, mask >> 8 & _LOW_BYTE
    return min(left.bit_count(), right.bit_count()) if distributed else (left & right).bit_count()


def _cross_classes(masks: Masks, chips: int, *, distributed: bool) -> Classes:
    if chips % 2:
        return np.full(masks.shape, NEVER, np.uint8)
    left, right = masks & np.uint64(_LOW_BYTE), (masks >> np.uint64(8)) & np.uint64(_LOW_BYTE)
    if distributed:
        pairs = np.minimum(np.bitwise_count(left), np.bitwise_count(right))
    else:
        pairs = np.bitwise_count(left & right)
    return _surplus(pairs, chips // 2)


def _surplus(have: Classes, need: int) -> Classes:
    """Number of units left over, or NEVER if there are too few. ``need`` and all of ``have`` are below 128."""
    return np.where(have >= need, have - np.uint8(need), NEVER).astype(np.uint8)


# Pairs of A3.


def _pair_classes(masks: Masks, chips: int) -> Classes:
    pairs = np.bitwise_count(masks & (masks >> np.uint64(1)) & np.uint64(_EVEN))
    if chips == 1:
        has_half = np.bitwise_count(masks) > 2 * pairs
        return np.where(has_half, 0, _NO_HALF_PAIR).astype(np.uint8)
    return np.where(2 * pairs >= chips, 0, NEVER).astype(np.uint8)


def _pair_class(mask: int, chips: int) -> int:
    pairs = (mask & mask >> 1 & _EVEN).bit_count()
    if chips == 1:
        return 0 if mask.bit_count() > 2 * pairs else _NO_HALF_PAIR
    return 0 if 2 * pairs >= chips else NEVER


# Meshes of 4.


@lru_cache(maxsize=8)
def _mesh_table(least: int) -> Classes:
    """Number of meshes with at least ``least`` free chips, for every 16-bit mask: ``uint8[65536]``."""
    masks = np.arange(_CHUNK, dtype=np.uint16)
    total: Classes = np.zeros(_CHUNK, np.uint8)
    for start in range(0, MESH_IDS, 4):
        total += np.bitwise_count((masks >> np.uint16(start)) & np.uint16(0xF)) >= least
    return total


def _mesh_classes(masks: Masks, chips: int) -> Classes:
    have = _mesh_table(min(chips, WHOLE_MESHES_FROM))[masks & np.uint64(_CHUNK - 1)]
    return _surplus(have, max(chips // WHOLE_MESHES_FROM, 1))


def _mesh_class(mask: int, chips: int) -> int:
    least = min(chips, WHOLE_MESHES_FROM)
    have = sum((mask >> start & 0xF).bit_count() >= least for start in range(0, MESH_IDS, 4))
    need = max(chips // WHOLE_MESHES_FROM, 1)
    return have - need if have >= need else NEVER


# Duo cards for one pod of a distributed job: the class depends on the number of free chips and of full cards.

_DUO_SPAN: Final = 65
"""A node has 0 to 64 free chips."""


def _duo_keys(masks: Masks) -> NDArray[np.intp]:
    full = np.bitwise_count(masks & (masks >> np.uint64(1)) & np.uint64(_EVEN)).astype(np.intp)
    keys: NDArray[np.intp] = full * _DUO_SPAN + np.bitwise_count(masks)
    return keys


def _duo_key(mask: int) -> int:
    return (mask & mask >> 1 & _EVEN).bit_count() * _DUO_SPAN + mask.bit_count()


@lru_cache(maxsize=64)
def _duo_table(chips: int) -> Classes:
    """Class by number of full cards and of free chips; see :func:`_duo_keys` for the index."""
    table = [_duo_class(chips, free, full) for full in range(33) for free in range(_DUO_SPAN)]
    return np.array(table, np.uint8)


def _duo_class(chips: int, free: int, full: int) -> int:
    half = free - 2 * full
    in_cards = 2 * full
    fits = chips <= in_cards if chips % 2 == 0 else chips - 1 <= in_cards and chips <= half + in_cards
    if half < 0 or not fits:
        return NEVER
    if chips % 2 == 0:
        return free - chips + 1 if free <= _DUO_FREE_MAX else _DUO_WORST
    if half:
        return free - chips + 1 if free < _DUO_FREE_MAX else _DUO_WORST
    return 9 + (free - chips - 1) // 2 if free <= _DUO_FREE_MAX else _DUO_WORST
