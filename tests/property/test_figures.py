"""Laws of figures: bounds, parts that make up the whole, and no dependence on the order of jobs."""

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from berth.core.simulation.comparison import rows_of
from berth.core.simulation.durations import Times, percentile
from berth.core.simulation.statistics import statistics_of
from berth.core.simulation.timeline import JobTimeline, Moment, Timeline
from tests.support.timelines import a_job, a_moment, a_timeline

END_MS = 1000


@st.composite
def a_fate(draw: st.DrawFn) -> JobTimeline:
    """A job that left, waits, runs or is over."""
    asked = draw(st.integers(0, END_MS))
    chips = draw(st.sampled_from([1, 4, 8, 24, 64, 300]))
    fate = draw(st.sampled_from(["left", "waits", "runs", "over"]))
    if fate == "left":
        return a_job(
            asked=asked, chips=chips, left_ms=draw(st.integers(asked, END_MS)), priority=draw(st.integers(0, 2))
        )
    placed = draw(st.integers(asked, END_MS)) if fate != "waits" else -1
    leaves = draw(st.integers(0, 5))
    return a_job(
        asked=asked,
        placed=placed,
        ended=draw(st.integers(placed, END_MS)) if fate == "over" else -1,
        chips=chips,
        priority=draw(st.integers(0, 2)),
        leaves=leaves,
        leaves_least=draw(st.integers(0, leaves)),
    )


@st.composite
def moments(draw: st.DrawFn) -> tuple[Moment, ...]:
    """Moments in order, some at the same time."""
    times = sorted(draw(st.lists(st.integers(0, END_MS), max_size=10)))
    return tuple(
        a_moment(at, draw(st.integers(0, 16)), waiting=draw(st.integers(0, 3)), partial=draw(st.integers(0, 16)))
        for at in times
    )


@st.composite
def courses(draw: st.DrawFn) -> Timeline:
    """A course of any jobs and moments."""
    return a_timeline(*draw(st.lists(a_fate(), max_size=30)), moments=draw(moments()), end=END_MS)


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_covers_its_share(values: list[int], percent: int) -> None:
    found = percentile(sorted(values), percent)
    assert found in values
    assert 100 * sum(value <= found for value in values) >= percent * len(values)
    assert 100 * sum(value < found for value in values) < percent * len(values)


@given(courses())
def test_times_lie_in_order_within_the_course(timeline: Timeline) -> None:
    figures = statistics_of(timeline)
    for times in (
        figures.wait,
        figures.wait_large,
        figures.completion,
        *(group.wait for group in figures.wait_by_size),
    ):
        assert 0 <= times.p50_ms <= times.p95_ms <= times.p99_ms <= times.max_ms <= END_MS
        assert 0 <= times.mean_ms <= times.max_ms
        assert (times == Times()) == (times.jobs == 0)
    assert figures.makespan_ms <= END_MS


@given(courses())
def test_classes_make_up_the_whole(timeline: Timeline) -> None:
    figures = statistics_of(timeline)
    assert figures.jobs == figures.placed + figures.turned_away + figures.taken_back + figures.waiting
    assert figures.wait.jobs == figures.placed + figures.waiting
    assert figures.completion.unfinished == figures.running + figures.waiting
    for groups in (figures.wait_by_size, figures.wait_by_priority):
        if groups:
            assert sum(group.wait.jobs for group in groups) == figures.wait.jobs
            total = sum(group.wait.mean_ms * group.wait.jobs for group in groups)
            assert abs(total - figures.wait.mean_ms * figures.wait.jobs) < 1e-6 * END_MS
            assert max(group.wait.max_ms for group in groups) == figures.wait.max_ms


@given(courses(), st.integers(0, 2**32))
def test_the_order_of_jobs_makes_no_difference(timeline: Timeline, seed: int) -> None:
    jobs = list(timeline.jobs)
    Random(seed).shuffle(jobs)  # noqa: S311  # no secret
    assert statistics_of(msgspec.structs.replace(timeline, jobs=jobs)) == statistics_of(timeline)


@given(courses())
def test_shares_are_shares_and_a_moment_split_in_two_changes_nothing(timeline: Timeline) -> None:
    figures = statistics_of(timeline)
    for share in (figures.allocation_share, figures.arrival_allocation_share):
        assert share is None or 0 <= share <= 1
    twice = [half for moment in timeline.moments for half in (moment, moment)]
    assert statistics_of(msgspec.structs.replace(timeline, moments=twice)) == figures


@given(courses(), courses())
def test_rows_are_as_wide_as_there_are_courses(first: Timeline, second: Timeline) -> None:
    one, other = statistics_of(first), statistics_of(second)
    for row in rows_of([one, other]):
        assert len(row.values) == len(row.texts) == len(row.changes) == 2
        assert row.changes[0] == ""
        assert row.values != [None, None]
    assert all(not row.changes[1] for row in rows_of([one, one]))
