import pytest

from berth.formats.whole_numbers import WHOLE_MAX, whole_number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("0" * 19, 0), (str(WHOLE_MAX), WHOLE_MAX)])
def test_digits_are_a_number(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5", " 1", "\u00b2", "\u0663", str(WHOLE_MAX + 1), "9" * 5_000, "0" * 20])
def test_other_texts_are_none(text: str) -> None:
    assert whole_number(text) is None


def test_more_than_the_most_is_none() -> None:
    assert (whole_number("8", most=8), whole_number("9", most=8)) == (8, None)
