"""Times as texts: what is written is read back, and nothing else counts as a time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.units import rfc3339, unix_ms

LATEST = "9999-12-31T23:59:59Z"


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_a_time_is_read_back_to_the_second(at_ms: int) -> None:
    text = rfc3339(at_ms)
    assert len(text) == len("2026-11-20T08:00:00Z")
    assert unix_ms(text) == at_ms // 1_000 * 1_000


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [(0, "1970-01-01T00:00:00Z"), (1_709_208_000_999, "2024-02-29T12:00:00Z"), (1 << 62, LATEST)],
)
def test_a_time_is_written_as_kubernetes_writes_it(at_ms: int, text: str) -> None:
    assert rfc3339(at_ms) == text


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-11-20T08:00:00.123456Z", 1_795_161_600_123),
        ("2026-11-20T10:00:00+02:00", 1_795_161_600_000),
        ("2026-11-20T08:00:00", 0),
        ("1969-12-31T23:59:59Z", 0),
        ("0001-01-01T00:00:00+23:59", 0),
        (LATEST, 253_402_300_799_000),
        ("soon", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_only_a_time_with_an_offset_since_1970_counts(text: str | None, at_ms: int) -> None:
    assert unix_ms(text) == at_ms
