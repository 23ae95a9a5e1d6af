"""Pseudo-random numbers that follow from their arguments alone (splitmix64)."""

from typing import Final

import numpy as np

MASK: Final = (1 << 64) - 1
GOLDEN: Final = 0x9E3779B97F4A7C15
_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_LAST: Final = 31

Words = np.ndarray[tuple[int], np.dtype[np.uint64]]


def mixed(values: Words) -> Words:
    """Mix each number, modulo 2^64."""
    found = values + np.uint64(GOLDEN)
    for shift, factor in _STEPS:
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    result: Words = found ^ (found >> np.uint64(_LAST))
    return result


def mixed_one(value: int) -> int:
    """As :func:`mixed`, for one number."""
    found = (value + GOLDEN) & MASK
    for shift, factor in _STEPS:
        found = ((found ^ (found >> shift)) * factor) & MASK
    return found ^ (found >> _LAST)
