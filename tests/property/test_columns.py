"""Packed columns and name tables: nothing is lost, and damage is a ValueError."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.columns import NAME_BYTES_MAX, offsets, pack, pack_names, unpack, unpack_names

WIDTHS = (1, 2, 4, 8)
COLUMNS = st.sampled_from(WIDTHS).flatmap(
    lambda width: st.tuples(st.just(width), st.lists(st.integers(0, 256**width - 1)))
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=80).filter(
    lambda name: len(name.encode()) <= NAME_BYTES_MAX
)
NODE_NAMES = st.from_regex(r"\A(?:node|rack)-[0-9]{1,3}(?:\.zone-[ab])?\Z")


@given(COLUMNS)
def test_a_column_comes_back_and_numpy_reads_the_same(column: tuple[int, list[int]]) -> None:
    width, values = column
    packed = pack(values, width)
    assert len(packed) == width * len(values)
    assert unpack(packed, width) == values
    assert np.frombuffer(packed, f"<u{width}").tolist() == values


@given(st.sampled_from(WIDTHS), st.integers())
def test_what_does_not_fit_is_an_overflow_error(width: int, value: int) -> None:
    if 0 <= value < 256**width:
        assert unpack(pack([value], width), width) == [value]
    else:
        with pytest.raises(OverflowError):
            pack([value], width)


@given(st.sampled_from(WIDTHS), st.binary(max_size=64))
def test_a_column_of_another_length_is_a_value_error(width: int, column: bytes) -> None:
    if len(column) % width:
        with pytest.raises(ValueError, match="multiple"):
            unpack(column, width)
    else:
        assert pack(unpack(column, width), width) == column


@given(st.lists(NAMES | NODE_NAMES))
def test_names_come_back_in_their_order(names: list[str]) -> None:
    assert unpack_names(pack_names(names)) == names


@given(st.lists(NODE_NAMES, min_size=1))
def test_a_table_is_never_larger_than_names_with_two_bytes_each(names: list[str]) -> None:
    assert len(pack_names(names)) <= sum(2 + len(name) for name in names)


@pytest.mark.parametrize("name", ["n" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2), ""])
def test_the_longest_and_the_shortest_names_come_back(name: str) -> None:
    assert unpack_names(pack_names([name, name, "other", name])) == [name, name, "other", name]


@pytest.mark.parametrize("name", ["n" * (NAME_BYTES_MAX + 1), "é" * (NAME_BYTES_MAX // 2 + 1)])
def test_a_longer_name_is_a_value_error(name: str) -> None:
    with pytest.raises(ValueError, match="at most 253"):
        pack_names([name])


def no_other_error(table: bytes) -> None:
    try:
        names = unpack_names(table)
    except UnicodeDecodeError as error:
        raise AssertionError("its text says nothing of a table") from error
    except ValueError:
        return
    assert all(len(name.encode()) <= NAME_BYTES_MAX for name in names)


@given(st.binary(max_size=64))
def test_random_bytes_are_names_or_a_value_error(table: bytes) -> None:
    no_other_error(table)


@given(st.lists(NAMES | NODE_NAMES, min_size=1, max_size=6), st.data())
def test_a_damaged_table_is_names_or_a_value_error(names: list[str], data: st.DataObject) -> None:
    table = bytearray(pack_names(names))
    table[data.draw(st.integers(0, len(table) - 1))] = data.draw(st.integers(0, 255))
    no_other_error(bytes(table))


@given(st.lists(NODE_NAMES, min_size=1, max_size=6), st.data())
def test_a_table_that_is_cut_off_is_fewer_names_or_a_value_error(names: list[str], data: st.DataObject) -> None:
    table = pack_names(names)
    cut = table[: data.draw(st.integers(0, len(table) - 1))]
    try:
        left = unpack_names(cut)
    except ValueError:
        return
    assert left == names[: len(left)]


@given(st.lists(st.integers(0, 100)))
def test_offsets_are_the_ends_of_runs(counts: list[int]) -> None:
    starts = offsets(counts)
    assert [end - start for start, end in pairwise(starts)] == counts
    assert starts[0] == 0
