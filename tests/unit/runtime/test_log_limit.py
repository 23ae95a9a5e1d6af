"""How many lines somebody else may cause."""

from berth.runtime.logs import LIMIT_PERIOD_S, LogLimit
from tests.support.clock import ManualClock


def test_some_lines_are_written_in_a_period_and_the_next_one_counts_what_was_left_out() -> None:
    clock = ManualClock()
    limit = LogLimit(clock, lines_max=2)
    assert [limit.take() for _ in range(5)] == [1, 1, 0, 0, 0]
    clock.advance(LIMIT_PERIOD_S - 1)
    assert limit.take() == 0
    clock.advance(1)
    assert [limit.take() for _ in range(3)] == [5, 1, 0]
