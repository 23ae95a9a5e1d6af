"""The whole decider on histories that combine all features; ``make fuzz`` runs many more of the same kind."""

import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.fuzz.batch import command, depth_of, hush, run_batch
from tests.fuzz.draws import draw_history
from tests.fuzz.run import Depth, live
from tests.fuzz.steps import NUMBER_MAX, VERBS, History, Step, draw_way

_NUMBERS = st.integers(0, NUMBER_MAX)
STEPS = st.lists(
    st.builds(
        Step,
        verb=st.sampled_from(VERBS),
        one=_NUMBERS,
        two=_NUMBERS,
        three=_NUMBERS,
        turns=st.sampled_from((1, 1, 0, 2)),
    ),
    min_size=10,
    max_size=35,
)
CLOSE = Depth(shards=2, snapshot=3, sleepers=8, counts=1)
BATCHES = 2
BATCH = 40
FOUND = (391, 7067, 10781, 10909, 12495, 13573, 13805, 15381, 18809, 24553, 29141, 43031, 55645, 56389, 59997)
"""Histories of the long run in which faults were found."""


@pytest.mark.timeout(600)  # to make a failing history short takes up to five minutes
@settings(
    max_examples=settings().max_examples * 5,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(way=st.integers(0, 1 << 32), steps=STEPS)
def test_everything_holds_after_each_record_of_any_history(way: int, steps: list[Step]) -> None:
    hush()
    drawn = draw_way(random.Random(way))  # noqa: S311  # the same for the same number
    live(History(drawn, tuple(steps)), way, Counter(), CLOSE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, BATCHES * BATCH, BATCH))
def test_everything_holds_in_histories_as_the_long_run_draws_them(first: int) -> None:
    count, found = run_batch(first, BATCH)
    assert [f"{command(one)}: {one.kind} {one.details}" for one in found] == []
    assert count["histories"] == BATCH


@pytest.mark.parametrize("seed", FOUND)
def test_faults_that_were_found_stay_away(seed: int) -> None:
    hush()
    live(draw_history(seed), seed, Counter(), depth_of(seed))
