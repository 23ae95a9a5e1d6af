"""Bitmaps of nodes, in an order that writer and reader share."""

import numpy as np
import pytest

from berth.core.cluster.bitmaps import bitmap_of, unpack_bitmap


def test_a_bitmap_has_one_bit_an_entry_of_its_order_and_comes_back() -> None:
    order = np.array([4, 0, 2, 3])
    marks = np.array([False, True, True, True, False])
    assert bitmap_of(marks, order) == bytes([0b1100])
    assert unpack_bitmap(bytes([0b1100]), order, 5).tolist() == [False, False, True, True, False]
    assert not unpack_bitmap(bytes([0b1111_0000]), order, 5).any(), "bits behind the last are nothing"


@pytest.mark.parametrize("count", [0, 1, 8, 9, 82])
def test_a_bitmap_of_any_length_comes_back(count: int) -> None:
    order = np.arange(count)[::-1]
    marks = np.arange(count) % 3 == 0
    mask = bitmap_of(marks, order)
    assert len(mask) == (count + 7) // 8
    assert (unpack_bitmap(mask, order, count) == marks).all()


@pytest.mark.parametrize("mask", [b"", bytes(2)])
def test_a_bitmap_of_another_length_is_refused(mask: bytes) -> None:
    with pytest.raises(ValueError, match=f"mask of {len(mask)} bytes for 4 nodes"):
        unpack_bitmap(mask, np.arange(4), 4)
