"""Pauses between attempts: how they grow, where they end, and what jitter takes away."""

import itertools
from random import Random

import pytest

from berth.runtime.backoff import Backoff


def test_pauses_start_at_the_first_and_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=0.25, max_s=15.0)
    assert [backoff.pause_s(failures) for failures in range(1, 10)] == [0.25, 0.5, 1, 2, 4, 8, 15, 15, 15]


def test_another_factor_is_kept_to() -> None:
    backoff = Backoff(first_s=1.0, max_s=50.0, factor=3.0)
    assert [backoff.pause_s(failures) for failures in range(1, 6)] == [1, 3, 9, 27, 50]


def test_a_first_pause_beyond_the_longest_is_cut() -> None:
    assert Backoff(first_s=60.0, max_s=0.1).pause_s(1) == 0.1


def test_any_number_of_failures_has_a_pause() -> None:
    assert Backoff(first_s=0.001, max_s=600.0).pause_s(10**9) == 600.0


@pytest.mark.parametrize("first_s", [0.01, 0.1, 0.25, 30.0])
def test_counting_failures_and_making_the_last_pause_longer_give_the_same(first_s: float) -> None:
    backoff = Backoff(first_s=first_s, max_s=10.0 + first_s)
    longer = itertools.accumulate(range(12), lambda pause_s, _: backoff.longer_s(pause_s), initial=first_s)
    assert list(longer) == [backoff.pause_s(failures) for failures in range(1, 14)]


def test_jitter_takes_away_its_part_at_most_and_comes_from_the_source() -> None:
    backoff = Backoff(first_s=1.0, max_s=10.0, jitter=0.5)
    pauses = [backoff.jittered_s(4.0, rng) for rng in [Random(7)] for _ in range(1000)]  # noqa: S311  # spreads load
    assert 2.0 <= min(pauses) < 2.1
    assert 3.9 < max(pauses) <= 4.0
    assert backoff.jittered_s(4.0, Random(7)) == pauses[0]  # noqa: S311  # likewise


def test_without_jitter_a_pause_is_what_it_says() -> None:
    assert Backoff(first_s=1.0, max_s=10.0).jittered_s(4.0, Random(7)) == 4.0  # noqa: S311  # spreads load


def test_a_pause_that_covers_another_does_so_with_any_jitter() -> None:
    backoff = Backoff(first_s=1.0, max_s=10.0, jitter=0.5)
    assert backoff.covering_s(30.0) == 60.0
    assert min(backoff.jittered_s(60.0, Random(seed)) for seed in range(100)) >= 30.0  # noqa: S311  # likewise
