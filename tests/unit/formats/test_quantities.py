from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.formats.quantities import (
    NUMBER_MAX,
    QuantityError,
    cpu_milli,
    duration_ms,
    go_duration_s,
    memory_mib,
    pieces,
    quantity,
)

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(1000),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip


@pytest.mark.parametrize(
    ("written", "milli"),
    [("500m", 500), ("4", 4000), (4, 4000), (0.5, 500), ("0.1", 100), (0.1, 100), ("100u", 1), ("1e3", 1_000_000), (".5", 500), ("2.", 2000), ("+1", 1000), (0, 0)],
)  # fmt: skip
def test_cpu_is_counted_in_thousandths_rounded_up(written: object, milli: int) -> None:
    assert cpu_milli(written) == milli


@pytest.mark.parametrize(
    ("written", "mib"),
    [("16Gi", 16384), ("1M", 1), ("1Mi", 1), ("1048577", 2), ("1.5Gi", 1536), ("1G", 954), ("1E-3", 1), ("128974848", 123), ("0", 0), ("1m", 1)],
)  # fmt: skip
def test_memory_is_counted_in_mebibytes_rounded_up(written: object, mib: int) -> None:
    assert memory_mib(written) == mib


@pytest.mark.parametrize(
    "written",
    ["", " ", "4 cores", "1K", "1ki", "-1", -1, "1e999", "1e31", True, None, [], {}, "NaN", "inf", float("inf"), float("nan"), "1.2.3", "0x10", "٣", "1Gii", "e3", "1" * 65],
)  # fmt: skip
def test_what_is_no_quantity_is_refused(written: object) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity(written)
    assert caught.value.expected


@pytest.mark.parametrize("written", ["0.5", "1m", "3e-1", "99999999999"])
def test_chips_come_in_whole_pieces(written: str) -> None:
    with pytest.raises(QuantityError):
        pieces(written)


def test_whole_pieces_may_be_written_in_any_way() -> None:
    assert [pieces(written) for written in (8, "8", "8.0", "8000m", "1k")] == [8, 8, 8, 8, 1000]


def test_a_number_too_large_for_a_column_is_refused() -> None:
    assert cpu_milli(NUMBER_MAX // 1000) == NUMBER_MAX // 1000 * 1000
    with pytest.raises(QuantityError):
        cpu_milli(NUMBER_MAX // 1000 + 1)
    with pytest.raises(QuantityError):
        memory_mib("1000000Ei")


@given(whole=st.integers(0, 10**12), part=st.integers(0, 10**9 - 1), suffix=st.sampled_from(sorted(SUFFIXES)))
def test_the_value_is_exact_whatever_the_suffix(whole: int, part: int, suffix: str) -> None:
    assert quantity(f"{whole}.{part:09}{suffix}") == (whole + Fraction(part, 10**9)) * SUFFIXES[suffix]


@given(number=st.integers(0, NUMBER_MAX * 2**20))
def test_rounding_up_never_takes_anything_away_and_never_adds_a_whole_unit(number: int) -> None:
    mib = memory_mib(number)
    assert (mib - 1) * 2**20 < number <= mib * 2**20


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("30s", 30_000), ("1h30m", 5_400_000), ("1.5s", 1500), ("250ms", 250), ("2m", 120_000), ("1s250ms", 1250), ("0", 0), (0, 0), ("1m30s", 90_000)],
)  # fmt: skip
def test_durations(written: object, milliseconds: int) -> None:
    assert duration_ms(written) == milliseconds


@pytest.mark.parametrize(
    "written",
    ["", "30", 30, "s", "30 s", "30s1m", "-1s", "1d", True, False, None, [], "1.5h", "9" * 30 + "s", "999999999h"],
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    if written == "999999999h":
        assert duration_ms(written) == 3_599_999_996_400_000
        return
    with pytest.raises(QuantityError):
        duration_ms(written)


@pytest.mark.parametrize(
    "value", [1 << 212, 10**5_000, -(10**5_000), "9" * 5_000, 1e300], ids=lambda value: type(value).__name__
)
def test_a_number_of_any_length_is_refused(value: object) -> None:
    for convert in (cpu_milli, memory_mib, pieces, duration_ms):
        with pytest.raises(QuantityError, match="expected") as refused:
            convert(value)
        assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("0", 0), ("+0", 0), ("-0", 0), ("30s", 30), ("10m", 600), ("1h30m", 5_400), ("30m1h", 5_400), ("1h1h", 7_200),
        ("1.5h", 5_400), (".5m", 30), ("2.s", 2), ("1ms", 1), ("1\u00b5s", 1), ("1\u03bcs", 1), ("1us", 1), ("1ns", 1),
        ("1000ms", 1), ("1001ms", 2), ("1m1ns", 61), ("-30s", -30), ("-1500ms", -1), ("2562047h", 9_223_369_200),
    ],
)  # fmt: skip
def test_durations_of_go_are_seconds_rounded_up(written: str, seconds: int) -> None:
    assert go_duration_s(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "3", ".", "s", ".s", "-", "--1s", "1 s", " 1s", "1d", "1S", "1.2.3s", "1h-1m", "2562048h", "1" * 64 + "s", "٣s"]
)  # fmt: skip
def test_what_is_no_duration_of_go_is_refused(written: str) -> None:
    with pytest.raises(QuantityError) as caught:
        go_duration_s(written)
    assert caught.value.expected
