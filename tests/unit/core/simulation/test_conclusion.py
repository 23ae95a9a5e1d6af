"""The conclusion from columns: what it says, and that it holds whatever the order, and claims no more than is known."""

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.simulation.conclusion import conclusion_of
from berth.core.simulation.durations import Times
from berth.core.simulation.statistics import FaultFigures, Span, Statistics, statistics_of
from berth.core.simulation.timeline import JobTimeline
from tests.support.timelines import ODD, a_job, a_moment, a_timeline, made_up

HOUR_MS = 3_600_000


def column(*jobs: JobTimeline, title: str = "skip", end: int = 10 * HOUR_MS) -> Statistics:
    return statistics_of(a_timeline(*jobs, moments=(a_moment(0, 8),), end=end, title=title))


def waits(*waits_s: int, title: str = "skip", chips: int = 8) -> Statistics:
    """A column of jobs that waited so long, ran until the tenth hour and are over; -1 for one that waits at the end."""
    jobs = [
        a_job(f"j{number}", placed=wait_s * 1000 if wait_s >= 0 else -1, ended=10 * HOUR_MS if wait_s >= 0 else -1, chips=chips)
        for number, wait_s in enumerate(waits_s)
    ]  # fmt: skip
    return column(*jobs, title=title)


def text(*columns: Statistics, resolution_ms: int = 0) -> str:
    return " ".join(conclusion_of(columns, resolution_ms=resolution_ms))


def test_one_column_is_summed_up_with_the_jobs_first() -> None:
    found = conclusion_of([waits(10, 30)])
    assert found[0] == "All 2 jobs were placed."
    assert found[1].startswith("Mean waiting time 20.0 s; p99 of the waiting time 30.0 s; makespan 10.0 h;")


def test_of_two_columns_the_better_one_is_named_with_both_numbers_and_its_cost() -> None:
    fast = waits(10, 30, title="easy")
    slow = waits(10, 70, title="fifo")
    slow = msgspec.structs.replace(slow, leaf_span=Span(jobs=2, ratio_mean=1.25))
    fast = msgspec.structs.replace(fast, leaf_span=Span(jobs=2, ratio_mean=2.5))
    assert conclusion_of([slow, fast]) == [
        "The mean waiting time is shorter with easy: 20.0 s against 40.0 s with fifo, -50.0 %; also better: p99 of the"
        " waiting time (30.0 s against 70.0 s, -57.1 %).",
        "In return these are worse with easy: mean leaf span over the smallest possible (2.50 against 1.25, +100.0 %).",
    ]


def test_of_several_columns_the_best_is_named_and_the_range_of_the_others() -> None:
    columns = [waits(10, title="a"), waits(30, title="b"), waits(20, title="c"), waits(20, title="d")]
    assert text(*columns).startswith(
        "The mean waiting time is shortest with a: 10.0 s against 20.0 s to 30.0 s with b, c and d"
    )


def test_equal_columns_are_said_to_be_equal() -> None:
    found = conclusion_of([waits(10, title="b, c"), waits(10, title="a")])
    assert found[0] == "There is no difference: all figures of a and 'b, c' are equal."
    assert len(found) == 3


def test_rejected_and_waiting_jobs_come_first_for_each_column_if_they_differ() -> None:
    away = a_job("away", left_ms=1)
    first = conclusion_of(
        [column(a_job(placed=0, ended=5), away), column(a_job(placed=0, ended=5), a_job("away"), title="x")]
    )
    assert first[0] == (
        "With skip, 1 of 2 jobs was placed, 1 rejected; with x, 1 of 2 jobs was placed, 1 still waiting at the end."
    )
    same = conclusion_of([column(a_job(placed=0, ended=5), away), column(a_job(placed=9, ended=15), away, title="x")])
    assert same[0] == "1 of 2 jobs was placed, 1 rejected."


@pytest.mark.parametrize("count", [1, 2])
def test_it_says_that_no_job_was_placed(count: int) -> None:
    columns = [column(a_job(left_ms=1), title=str(number)) for number in range(count)]
    where = " in any column" if count > 1 else ""
    assert conclusion_of(columns) == [f"No job was placed{where}. 0 of 1 job was placed, 1 rejected."]


def test_without_jobs_it_says_so() -> None:
    assert conclusion_of([column()]) == ["There are no jobs."]


def test_waiting_times_of_different_jobs_are_not_compared() -> None:
    found = text(
        column(a_job(placed=HOUR_MS, ended=2 * HOUR_MS)),
        column(a_job(left_ms=1), a_job("b", placed=0, ended=1), title="x"),
    )
    assert "The number of placed jobs" not in found
    assert "waiting time is" not in found
    assert "different jobs" in found


def test_a_lower_bound_is_not_called_the_shortest() -> None:
    """The job that waits at the end has waited ten hours, which is less than the other column's time, so far."""
    bound = waits(-1, 0, title="bound")
    exact = msgspec.structs.replace(waits(60_000, 0, title="exact"), waiting=1, placed=1)
    found = text(bound, exact)
    assert "The mean waiting time" not in found
    assert "Not compared, because of different jobs or a lower bound: mean waiting time" in found
    short = msgspec.structs.replace(waits(60, 0, title="exact"), waiting=1, placed=1)
    assert "The mean waiting time is shorter with exact: 30.0 s against at least 5.0 h with bound" in text(bound, short)


def test_differences_below_the_resolution_or_the_printed_digits_are_none() -> None:
    assert "The mean waiting time is shorter with a" in text(
        waits(100, title="a"), waits(110, title="b"), resolution_ms=9_999
    )
    found = text(waits(100, title="a"), waits(110, title="b"), resolution_ms=10_000)
    assert found.startswith(
        "No difference (in waiting times, of more than 10.0 s) in: number of placed jobs (1), mean waiting"
    )
    near = msgspec.structs.replace(waits(100, title="b"), wait=Times(jobs=1, mean_ms=100_010.0, p99_ms=100_000))
    assert text(waits(100, title="a"), near).startswith(
        "No difference in: number of placed jobs (1), mean waiting time (100 s)"
    )


def faults(title: str, ettr: float, pods: int) -> Statistics:
    figures = FaultFigures({"chip": 3}, 3, {"pod": 3}, pods, ettr, 100.0, 20.0, 5.0, Times())
    return msgspec.structs.replace(waits(10, title=title), faults=figures)


def test_failures_are_judged_by_the_effective_training_time_ratio_and_chance_is_said() -> None:
    found = conclusion_of([faults("pods", 0.9, 3), faults("job", 0.95, 30)])
    assert found[0] == "The effective training time ratio is higher with job: 95.0 % against 90.0 % with pods."
    assert found[1] == (
        "In return these are worse with job: number of pods deleted after failures (30 against 3, 10 times as much)."
        " The failures are those of one seed: small differences can be chance, so compare several seeds."
    )
    assert "Effective training time ratio 90.0 %" in text(faults("pods", 0.9, 3))
    assert "number of lost chip hours 25.0" in text(faults("pods", 0.9, 3))


JOBS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([1, 8, 64]), st.integers(0, 200_000), st.integers(1, 400_000)),
    max_size=6,
)


def drawn_column(title: str, jobs: Sequence[tuple[int, int, int, int]]) -> Statistics:
    made = []
    for number, (fate, chips, wait_ms, run_ms) in enumerate(jobs):
        if fate == 0:
            made.append(a_job(f"j{number}", chips=chips, left_ms=1))
        elif fate == 1:
            made.append(a_job(f"j{number}", chips=chips))
        else:
            made.append(
                a_job(f"j{number}", chips=chips, placed=wait_ms, ended=wait_ms + run_ms, leaves=fate, leaves_least=1)
            )
    return column(*made, title=title)


COLUMNS = st.lists(JOBS, min_size=1, max_size=4).map(
    lambda found: [drawn_column(f"c{number}", jobs) for number, jobs in enumerate(found)]
)


@given(COLUMNS, st.randoms(use_true_random=False), st.sampled_from([0, 5_000]))
def test_the_order_of_the_columns_changes_nothing(
    columns: list[Statistics], random: Random, resolution_ms: int
) -> None:
    mixed = list(columns)
    random.shuffle(mixed)
    assert conclusion_of(mixed, resolution_ms=resolution_ms) == conclusion_of(columns, resolution_ms=resolution_ms)
    assert 1 <= len(conclusion_of(columns, resolution_ms=resolution_ms)) <= 3


@given(JOBS)
def test_equal_columns_never_differ(jobs: list[tuple[int, int, int, int]]) -> None:
    found = text(drawn_column("a", jobs), drawn_column("b", jobs))
    assert "shorter" not in found
    assert "worse" not in found
    if any(fate > 1 for fate, *_ in jobs):
        assert found.startswith("There is no difference: all figures of a and b are equal.")
    elif jobs:
        assert found.startswith("No job was placed in any column.")


@given(COLUMNS)
def test_the_column_with_the_shortest_wait_has_it(columns: list[Statistics]) -> None:
    """What is claimed of the mean waiting time is true of the statistics."""
    lead = next((line for line in conclusion_of(columns) if line.startswith("The mean waiting time is short")), "")
    if not lead:
        return
    names = lead.split(" with ")[1].split(":")[0].replace(" and ", ", ").split(", ")
    best = [known for known in columns if known.title in names]
    others = [known for known in columns if known.title not in names]
    assert best
    assert others
    assert not any(known.wait.unfinished for known in best)
    assert max(known.wait.mean_ms for known in best) < min(known.wait.mean_ms for known in others)
    assert len({known.wait.jobs for known in columns}) == 1


@pytest.mark.parametrize("odd", ODD)
def test_odd_timelines_have_a_conclusion(odd: str) -> None:
    known = statistics_of(ODD[odd])
    other = statistics_of(made_up("other", jobs=10))
    assert all(conclusion_of([known]))
    assert conclusion_of([known, other]) == conclusion_of([other, known])
