"""What pairs say, noisy ones too, and what is said of a base that there is not."""

from collections.abc import Sequence

import pytest

from bench.against.rows import ROWS, Cost
from bench.against.trees import BaseError, sides
from bench.against.verdict import Compared, compared, ratio_of


def _row(*ratios: float, cpu: Sequence[float] = ()) -> Compared:
    """Pairs on a machine that is slower in each one."""
    used = cpu or [1.0] * len(ratios)
    numbered = enumerate(zip(ratios, used, strict=True), start=1)
    pairs = [(Cost(wall * number, one * number), Cost(number, number)) for number, (wall, one) in numbered]
    return compared("some", "work", pairs)


def test_only_the_sides_of_a_pair_are_compared() -> None:
    found = ratio_of([1.0, 20.0, 330.0], [1.0, 10.0, 300.0])
    assert (found.median, found.least, found.most) == (1.1, 1.0, 2.0)
    assert (found.this_s, found.base_s) == (20.0, 10.0)


_ONES = [1.0] * 8
_LOUD = [1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1]


@pytest.mark.parametrize(
    ("wall", "cpu", "verdict"),
    [
        (_ONES, _ONES, "ok"),
        ([1.05] * 8, _ONES, "ok"),
        ([1.051] * 8, _ONES, "slower"),
        ([0.5] * 8, _ONES, "ok"),
        (_ONES, [1.06] * 8, "slower"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0], _ONES, "ok, by CPU"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], _ONES, "ok"),
        (_LOUD, _ONES, "ok, by CPU"),
        (_LOUD, [1.06] * 8, "slower, by CPU"),
        (_LOUD, _LOUD, "slower, within the noise"),
        ([1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], _ONES, "slower"),
        ([1.0, 1.1, 1.0], [1.1, 1.0, 1.0], "ok, within the noise"),
    ],
)
def test_the_median_of_the_pairs_decides(wall: list[float], cpu: list[float], verdict: str) -> None:
    assert _row(*wall, cpu=cpu).verdict == verdict


def test_a_row_without_a_side_is_not_compared() -> None:
    found = Compared(row="some", note="base ended", is_measured=False)
    assert (found.verdict, found.is_slower) == ("not compared", False)


def test_the_interval_leaves_out_what_chance_allows() -> None:
    found = ratio_of([float(number) for number in range(1, 13)], [1.0] * 12)
    assert (found.low, found.high) == (3.0, 10.0), "of 12 signs, at most 2 are on one side with probability 0.019"


def test_a_base_that_there_is_not_is_one_sentence() -> None:
    with (
        pytest.raises(BaseError, match=r"^base is 'no-such-commit', expected a commit of this repository"),
        sides("no-such-commit"),
    ):
        pass


def test_the_set_has_the_rows_that_each_part_ends_with() -> None:
    wanted = {"spine-1", "spine-4", "gang", "switch", "superpod", "replay", "simulate", "restart-alone"}
    assert wanted <= set(ROWS)
