"""Which ranks of a placed gang may leave while the rest goes on."""

import pytest

from berth.core.preemption.surplus import surplus_ranks

ROLES = ["master", "worker", "worker", "worker", "ps", "ps"]


@pytest.mark.parametrize(
    ("gone", "least", "by_role", "surplus"),
    [
        ((), 0, {}, ()),
        ((), 6, {}, ()),
        ((), 7, {}, ()),
        ((), 4, {}, (5, 4)),
        ((5,), 4, {}, (4,)),
        ((4, 5), 4, {}, ()),
        ((3, 4, 5), 4, {}, ()),
        ((), 1, {"master": 1}, (5, 4, 3, 2, 1)),
        ((), 4, {"ps": 2}, (3, 2)),
        ((), 3, {"master": 1, "ps": 1}, (5, 3, 2)),
        ((), 3, {"worker": 3, "ps": 2}, (5, 4, 3)),
        ((), 3, {"other": 1}, (5, 4, 3)),
    ],
    ids=[
        "no minimum",
        "all are needed",
        "more than there are",
        "the last ones leave first",
        "what is gone is part of it",
        "none at the minimum",
        "none below it",
        "a role keeps its number",
        "and so does the last role",
        "each role its own",
        "numbers above the minimum do not count",
        "a role that has no ranks",
    ],
)
def test_surplus(gone: tuple[int, ...], least: int, by_role: dict[str, int], surplus: tuple[int, ...]) -> None:
    assert surplus_ranks(ROLES, gone, least, by_role) == surplus
