"""Selection of chips on one node, in the order in which they are written to the pod.

Source: docs/reference/nodes-and-chips.md, "Rules per product".
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from itertools import islice
from operator import or_
from typing import TypeVar

from berth.core.chips.meshes import MESH_IDS, WHOLE_MESHES_FROM, keeps_mesh
from berth.products.model import Form

T = TypeVar("T")


def union_of(masks: Iterable[int]) -> int:
    """Chips that are in any of some masks."""
    return reduce(or_, masks, 0)


def ids_of(mask: int) -> tuple[int, ...]:
    """Chip ids of a mask, ascending."""
    ids = []
    while mask:
        low = mask & -mask
        ids.append(low.bit_length() - 1)
        mask ^= low
    return tuple(ids)


def named_by_several(named: Mapping[T, int]) -> list[tuple[int, list[T]]]:
    """Chips that more than one of some pods of a node names, ascending, and who does, in their order.

        >>> named_by_several({"a": 0b0110, "b": 0b1100})
        [(2, ['a', 'b'])]

    Args:
        named: Chips that each names, as a mask.
    """
    once = twice = 0
    for mask in named.values():
        twice |= once & mask
        once |= mask
    return [(chip, [who for who, mask in named.items() if mask >> chip & 1]) for chip in ids_of(twice)]


def pick_chips(form: Form, usable: int, *, chips: int, distributed: bool) -> tuple[int, ...]:
    """Chip ids for a pod, in the order of selection. The lowest id wins a tie.

        >>> from berth.products.catalogue import FORMS
        >>> pick_chips(FORMS["module910bx16"], 0xFFFF, chips=10, distributed=False)
        (0, 8, 1, 9, 2, 10, 3, 11, 4, 12)

    Args:
        form: Product form.
        usable: Mask of the usable chips. By the form's rule the pod fits.
        chips: Number of chips that the pod requests, at least 1.
        distributed: The job has more than one pod with chips.

    Returns:
        ``chips`` ids; fewer if the pod does not fit.
    """
    match form.rule:
        case "group":
            return _pick_group(form, usable, chips, distributed=distributed)
        case "pairs":
            return _pick_pairs(usable, chips)
        case "mesh" if keeps_mesh(chips):
            return _pick_mesh(usable, chips)
        case "duo":
            return _pick_duo(usable, chips)
        case _ if form.order == "fullest-card":
            return _pick_by_card(usable, chips, form.group_size)
        case _:
            return ids_of(usable)[:chips]


def _groups(mask: int, size: int) -> list[tuple[int, ...]]:
    """Free ids of each group (HCCS ring, pair, mesh or card) with free chips, by group index."""
    groups: dict[int, list[int]] = {}
    for chip in ids_of(mask):
        groups.setdefault(chip // size, []).append(chip)
    return [tuple(group) for group in groups.values()]


def _pick_group(form: Form, usable: int, chips: int, *, distributed: bool) -> tuple[int, ...]:
    if chips == form.whole:
        return ids_of(usable)[:chips]
    if chips > form.group_size:
        return _pick_cross(usable, chips, distributed=distributed) if form.cross else ()
    row = form.classes[chips - 1]
    best = min(_groups(usable, form.group_size), key=lambda group: row[len(group) - 1], default=())
    return best[:chips]


def _pick_cross(usable: int, chips: int, *, distributed: bool) -> tuple[int, ...]:
    """Pairs of chips from the two HCCS rings of 8: (0, 8, 1, 9, ..)."""
    left, right = usable & 0xFF, usable >> 8 & 0xFF
    if not distributed:
        left = right = left & right
    pairs = zip(ids_of(left), ids_of(right), strict=False)
    return tuple(chip for one, other in islice(pairs, chips // 2) for chip in (one, other + 8))


def _pick_pairs(usable: int, chips: int) -> tuple[int, ...]:
    if usable.bit_count() == chips:
        return ids_of(usable)
    groups = _groups(usable, 2)
    if chips == 1:
        return min(groups, key=len, default=())[:1]
    return tuple(chip for pair in groups if len(pair) == 2 for chip in pair)[:chips]  # noqa: PLR2004  # a pair is two


def _pick_mesh(usable: int, chips: int) -> tuple[int, ...]:
    meshes = _groups(usable & (1 << MESH_IDS) - 1, WHOLE_MESHES_FROM)
    if chips < WHOLE_MESHES_FROM:
        return min((mesh for mesh in meshes if len(mesh) >= chips), key=len, default=())[:chips]
    return tuple(chip for mesh in meshes if len(mesh) == WHOLE_MESHES_FROM for chip in mesh)[:chips]


def _pick_duo(usable: int, chips: int) -> tuple[int, ...]:
    """Full cards. For an odd number, the chip of the first half-free card comes first if there is such a card."""
    cards = _groups(usable, 2)
    halves = [card[0] for card in cards if len(card) == 1]
    full = [chip for card in cards if len(card) > 1 for chip in card]
    return (*(halves[:1] if chips % 2 else []), *full)[:chips]


def _pick_by_card(usable: int, chips: int, size: int) -> tuple[int, ...]:
    """Chips on the cards with the fewest free chips first; cards by index, ids ascending."""
    cards = sorted(_groups(usable, size), key=len)
    return tuple(chip for card in cards for chip in card)[:chips]
