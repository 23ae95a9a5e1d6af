"""Runs with a part and without it are compared within a pair, and take turns in being the first."""

import pytest

from bench import spine
from bench.pairs import FULL, paired


def test_only_the_runs_of_a_pair_are_compared() -> None:
    order: list[bool] = []

    async def measure(has_part: bool, _: spine.Size) -> list[float]:  # noqa: FBT001  # as the port has it
        order.append(has_part)
        speed = 1000.0 / (1 + (len(order) - 1) // 2)  # the machine is slower in each pair
        cost = 0.75 if len(order) in {3, 4} else 0.96
        return [1.0, speed * (cost if has_part else 1.0), 10_000.0]

    rows = {one.metric: one for one in paired("the part", measure, FULL, least_percent=95.0)}
    assert order[:4] == [False, True, True, False]
    assert len(order) == 2 * FULL.pairs
    share = rows["rate with the part, of a pair"]
    assert (share.value, share.target, share.ok) == (96.0, 95.0, True)
    assert (rows["lowest of a pair"].value, rows["highest of a pair"].value) == (75.0, 96.0)
    assert rows["gangs with the part"].value < rows["gangs without the part"].value


@pytest.mark.parametrize(("cost", "is_met"), [(0.95, True), (0.94, False)])
def test_a_part_that_costs_more_than_its_target_is_told(cost: float, *, is_met: bool) -> None:
    async def measure(has_part: bool, _: spine.Size) -> list[float]:  # noqa: FBT001  # as the port has it
        return [100 * cost if has_part else 100.0]

    rows = {one.metric: one for one in paired("the part", measure, FULL, least_percent=95.0)}
    assert rows["rate with the part, of a pair"].ok is is_met
