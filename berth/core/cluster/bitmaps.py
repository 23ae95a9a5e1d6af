"""Marks as bytes: one bit each, the lowest first, in an order that both sides know."""

import numpy as np
import numpy.typing as npt

Marks = npt.NDArray[np.bool_]
Order = npt.NDArray[np.signedinteger]
"""Which marks a mask speaks of, and in which order: their indexes."""


def mask_bytes(order: Order) -> int:
    """Length of a mask."""
    return (len(order) + 7) // 8


def bitmap_of(marks: Marks, order: Order) -> bytes:
    """The marks of ``order`` as bits."""
    return np.packbits(marks[order], bitorder="little").tobytes()


def marks_of(mask: bytes, order: Order, size: int, *, what: str) -> Marks:
    """Marks of a mask among ``size``; those of which it does not speak are not set.

    Args:
        mask: The bits.
        order: What they speak of.
        size: How many marks there are in all.
        what: What is marked, for the error.

    Raises:
        ValueError: The mask is not as long as the order asks.
    """
    if len(mask) != mask_bytes(order):
        raise ValueError(f"mask of {len(mask)} bytes for {len(order)} {what}")
    found = np.zeros(size, np.bool_)
    found[order] = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little", count=len(order)).astype(np.bool_)
    return found
