"""Which chips of a node go together in a pod, as the planner sees it.

Source: docs/reference/nodes-and-chips.md, "Product forms", "Rules per product".
"""

from typing import Final

RINGS: Final = {"module910x8": 4, "module910bx16": 8}
"""Forms in which up to so many chips of a pod are in one ring."""
QUAD: Final = 4
PAIRS: Final = frozenset({"module910a3x16", "module910a3x16-sp", "module910a3x8-sp"})
MESHES: Final = {
    "": 64, "module910bx8": 8, "half910x4": 4, "card910x2": 2, "chip8-node8-sp": 8, "chip8-node8-ra64-sp": 8,
    "310p": 64, "310-chip": 64, "310p-duo-chip": 16,
}  # fmt: skip
"""Forms in which any chips go together, and how many a node has at most; no form: pods without chips."""
CARDS: Final = {"310p-duo-card": (2, 32), "310-card": (4, 64)}
"""Forms in which chips of a pod are on one card: chips of a card, and how many a node has at most."""
QUADS: Final = {"chip4-node8": 8, "chip4-node16": 16}
"""Forms with meshes of four, and how many chips a node has at most."""
DUO: Final = "310p-duo-chip-distributed"
DUO_LABEL: Final = ("infer-card-type", "card-300i-duo")
DUO_FORMS: Final = frozenset({DUO, "310p-duo-chip"})
"""Forms whose nodes need the label."""
FORMS: Final = frozenset({*MESHES, *PAIRS, *RINGS, *CARDS, *QUADS, DUO})
"""Forms that are known here."""
_MOST: Final = 16


def most_of(form: str) -> int:
    """Most chips of a node of a form."""
    return MESHES.get(form) or CARDS.get(form, (0, _MOST))[1]


def choices(free: int, chips: int, form: str) -> list[int]:
    """Chips that a pod may get of a node; of choices that leave equally much one is enough."""
    if not chips:
        return [0]
    if form in PAIRS:
        return _in_pairs(free, chips)
    if form in QUADS and chips >= QUAD:
        return _in_quads(free, chips)
    if form == DUO:
        return _in_duos(free, chips)
    size = QUAD if form in QUADS else CARDS[form][0] if form in CARDS else RINGS.get(form, 64)
    if chips > size:
        return [free] if free.bit_count() == chips == 2 * size and form in RINGS else []
    rings = [free & ((1 << size) - 1) << at for at in range(0, max(free.bit_length(), 1), size)]
    return [_lowest(ring, chips) for ring in rings if ring.bit_count() >= chips]


def _in_pairs(free: int, chips: int) -> list[int]:
    """One chip, or whole pairs."""
    if chips == 1:
        return [1 << at for at in range(free.bit_length()) if free >> at & 1][:1]
    pairs = [3 << at for at in range(0, free.bit_length(), 2) if free >> at & 3 == 3]
    return [sum(pairs[: chips // 2])] if chips % 2 == 0 and len(pairs) >= chips // 2 else []


def _in_quads(free: int, chips: int) -> list[int]:
    """Four chips or more of nodes with meshes of four."""
    if chips % QUAD:
        return [_lowest(free, chips)] if free.bit_count() >= chips else []
    whole = [0xF << at for at in range(0, free.bit_length(), QUAD) if free >> at & 0xF == 0xF]
    return [sum(whole[: chips // QUAD])] if len(whole) >= chips // QUAD else []


def _in_duos(free: int, chips: int) -> list[int]:
    """Chips of whole cards of two, and of at most one half."""
    cards = [free & 3 << at for at in range(0, free.bit_length(), 2)]
    whole = [card for card in cards if card.bit_count() == 2]
    halves = [card for card in cards if card.bit_count() == 1]
    odd, pairs = chips % 2, chips // 2
    if len(whole) < pairs or (odd and not halves and len(whole) == pairs):
        return []
    rest = (halves[0] if halves else _lowest(whole[pairs], 1)) if odd else 0
    return [sum(whole[:pairs]) | rest]


def _lowest(mask: int, count: int) -> int:
    taken = 0
    for _ in range(count):
        bit = mask & -mask
        taken |= bit
        mask &= ~bit
    return taken
