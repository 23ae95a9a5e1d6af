"""The annotation that names the record by which a pod was bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.ascend.ledger_mark import LedgerMark, ledger_mark, mark_of

NUMBERS = st.integers(0, (1 << 63) - 1)


@given(st.text(min_size=1), NUMBERS, NUMBERS)
def test_a_mark_is_read_as_it_was_written(stream: str, epoch: int, sequence: int) -> None:
    assert mark_of(ledger_mark(stream, epoch, sequence)) == LedgerMark(stream, epoch, sequence)


@pytest.mark.parametrize(
    "text", ["", "/", "//", "/1/2", "2026", "2026/1", "2026/1/", "2026//2", "2026/1/-2", "2026/x/2"]
)
def test_another_text_is_no_mark(text: str) -> None:
    assert mark_of(text) is None


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    mark_of(text)
