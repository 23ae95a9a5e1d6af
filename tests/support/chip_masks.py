"""Masks of chips in tests."""

from collections.abc import Iterable


def mask_of(ids: Iterable[int]) -> int:
    """Mask of chip ids, each 0 to 63; an id may be repeated."""
    mask = 0
    for chip in ids:
        mask |= 1 << chip
    return mask
