"""What pairs say, noisy ones too, and what is said of a base that there is not."""

import pytest

from bench.against.rows import ROWS, Cost
from bench.against.trees import BaseError, sides
from bench.against.verdict import Compared, compared, ratio_of


def _pairs(*ratios: float, cpu: float | None = 1.0) -> list[tuple[Cost, Cost]]:
    """Pairs on a machine that is slower in each one."""
    return [
        (Cost(ratio * number, None if cpu is None else cpu * number), Cost(number, None if cpu is None else number))
        for number, ratio in enumerate(ratios, start=1)
    ]


def _row(*ratios: float, cpu: float | None = 1.0) -> Compared:
    return compared("some", "work", _pairs(*ratios, cpu=cpu))


def test_only_the_sides_of_a_pair_are_compared() -> None:
    found = ratio_of([1.0, 20.0, 330.0], [1.0, 10.0, 300.0])
    assert (found.median, found.least, found.most) == (1.1, 1.0, 2.0)
    assert (found.this_s, found.base_s) == (20.0, 10.0)


@pytest.mark.parametrize(
    ("ratios", "cpu", "verdict"),
    [
        ([1.0] * 8, 1.0, "ok"),
        ([1.05] * 8, 1.0, "ok"),
        ([1.051] * 8, 1.0, "slower"),
        ([0.5] * 8, 1.0, "ok"),
        ([1.0] * 8, 1.06, "slower"),
        ([1.0] * 8, None, "ok"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0], 1.0, "ok, by CPU"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0], None, "ok, within the noise"),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0], 1.0, "ok"),
        ([1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], 1.0, "ok, by CPU"),
        ([1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], 1.06, "slower, by CPU"),
        ([1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], None, "slower, within the noise"),
        ([1.0, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1], 1.0, "slower"),
        ([1.0, 1.1, 1.0], None, "ok, within the noise"),
    ],
)
def test_the_median_of_the_pairs_decides(ratios: list[float], cpu: float | None, verdict: str) -> None:
    assert _row(*ratios, cpu=cpu).verdict == verdict


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
