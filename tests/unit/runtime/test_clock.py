"""A clock that follows the host's without its jumps."""

from hypothesis import given
from hypothesis import strategies as st

from berth.runtime.clock import SlewedClock
from tests.support.clock import ManualClock


def test_without_a_step_it_is_the_same() -> None:
    host = ManualClock()
    clock = SlewedClock(host)
    for seconds in (0, 0.001, 0.0005, 5, 86_400):
        host.advance(seconds)
        assert (clock.now_ms(), clock.monotonic_s()) == (host.now_ms(), host.monotonic_s())


def test_a_step_of_an_hour_takes_two_hours_forwards_and_backwards() -> None:
    for hours in (1, -1):
        host = ManualClock()
        clock = SlewedClock(host)
        host.set(3_600 * hours)
        for minute in range(1, 120):
            host.advance(60)
            assert clock.now_ms() - host.now_ms() == -hours * (3_600 - 30 * minute) * 1000
        for _ in range(2):
            host.advance(60)
            assert clock.now_ms() == host.now_ms()


def test_a_step_that_is_taken_back_is_hardly_seen() -> None:
    host = ManualClock()
    clock = SlewedClock(host)
    host.set(3_600)
    host.advance(4)
    assert clock.now_ms() - host.now_ms() == 2_000 - 3_600_000
    host.set(0)
    host.advance(4)
    assert clock.now_ms() == host.now_ms()


@given(
    st.lists(
        st.tuples(st.floats(0, 1e5), st.none() | st.floats(-1e6, 1e6)),
        min_size=1,
        max_size=50,
    )
)
def test_it_never_goes_back_and_never_faster_or_slower_than_half_again(steps: list[tuple[float, float | None]]) -> None:
    host = ManualClock()
    clock = SlewedClock(host)
    for elapsed_s, ahead_s in steps:
        if ahead_s is not None:
            host.set(ahead_s)
        before_ms, before_s = clock.now_ms(), host.monotonic_s()
        host.advance(elapsed_s)
        passed_ms = (host.monotonic_s() - before_s) * 1000
        assert passed_ms / 2 - 1 <= clock.now_ms() - before_ms <= passed_ms * 3 / 2 + 1
        assert clock.now_ms() >= before_ms
