"""Boolean columns as bitmaps: one bit per entry, lowest bit first, in an order that writer and reader share."""

import numpy as np
import numpy.typing as npt

Marks = npt.NDArray[np.bool_]
Fits = Marks
"""One mark for each row of a node table: the node takes one more pod of a shape. Shape (rows,)."""
Order = npt.NDArray[np.signedinteger]
"""Indexes of the entries of a bitmap, in the order of its bits."""


def mask_bytes(order: Order) -> int:
    """Length in bytes of a bitmap of ``order``."""
    return (len(order) + 7) // 8


def bitmap_of(marks: Marks, order: Order) -> bytes:
    r"""Bitmap of the entries ``order`` of ``marks``.

        >>> bitmap_of(np.array([True, False, False, True]), np.array([3, 1, 0]))
        b'\x05'

    Args:
        marks: ``bool`` array of shape (size,).
        order: Index of the entry of each bit, shape (bits,).

    Returns:
        ``mask_bytes(order)`` bytes; bit n, from the lowest bit of the first byte on, is ``marks[order[n]]``.
    """
    return np.packbits(marks[order], bitorder="little").tobytes()


def unpack_bitmap(mask: bytes, order: Order, size: int) -> Marks:
    """Entries of a bitmap as a boolean array. Entries outside ``order`` are False.

    Args:
        mask: The bitmap.
        order: Index of the entry of each bit, shape (bits,).
        size: Length of the result.

    Returns:
        ``bool`` array of shape (size,).

    Raises:
        ValueError: The length of the bitmap does not match ``order``.
    """
    if len(mask) != mask_bytes(order):
        raise ValueError(f"mask of {len(mask)} bytes for {len(order)} nodes")
    found = np.zeros(size, np.bool_)
    found[order] = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little", count=len(order)).astype(np.bool_)
    return found
