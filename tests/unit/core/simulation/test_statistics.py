"""Figures of small courses, computed by hand."""

import pytest

from berth.core.simulation.comparison import ComparisonRow, compared, markdown_of, rows_of
from berth.core.simulation.durations import percentile
from berth.core.simulation.statistics import SIZE_CLASSES, Blocked, Statistics, size_class, statistics_of
from berth.core.simulation.timeline import Frame, Timeline
from tests.support.timelines import ODD, a_job, a_moment, a_timeline, made_up


def row(rows: list[ComparisonRow], section: str, metric: str) -> ComparisonRow:
    return next(known for known in rows if (known.section, known.metric) == (section, metric))


def test_a_percentile_is_the_value_at_nearest_rank() -> None:
    assert [percentile([15, 20, 35, 40, 50], percent) for percent in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]
    assert percentile([7], 50) == 7
    assert percentile(list(range(1, 201)), 99) == 198


@pytest.mark.parametrize(
    ("chips", "name"),
    [(0, "1"), (1, "1"), (2, "2-7"), (7, "2-7"), (8, "8-15"), (15, "8-15"), (16, "16-63"), (63, "16-63"), (64, "64-255"),
     (255, "64-255"), (256, "256 and more"), (9999, "256 and more")],
)  # fmt: skip
def test_every_number_of_chips_has_its_size_class(chips: int, name: str) -> None:
    assert SIZE_CLASSES[size_class(chips)].name == name


def test_jobs_are_counted_by_what_became_of_them() -> None:
    figures = statistics_of(
        a_timeline(
            a_job("over", placed=1, ended=2),
            a_job("runs", placed=1),
            a_job("waits"),
            a_job("gone", left_ms=3),
            a_job("back", left_ms=9, refused=""),
        )
    )
    assert (figures.jobs, figures.placed, figures.running) == (5, 2, 1)
    assert (figures.turned_away, figures.taken_back, figures.waiting) == (1, 1, 1)


def test_waiting_time_counts_jobs_that_still_wait_as_at_least() -> None:
    wait = statistics_of(
        a_timeline(
            a_job("a", asked=0, placed=10, ended=20), a_job("b", asked=10, placed=40), a_job("c", asked=50), end=70
        )
    ).wait
    assert (wait.jobs, wait.unfinished, wait.known_below_ms) == (3, 1, 20)
    assert wait.mean_ms == 20.0
    assert (wait.p50_ms, wait.p95_ms, wait.p99_ms, wait.max_ms) == (20, 30, 30, 30)


def test_jobs_that_left_are_in_no_waiting_time() -> None:
    figures = statistics_of(a_timeline(a_job("a", placed=10, ended=20), a_job("b", left_ms=90)))
    assert (figures.wait.jobs, figures.wait.max_ms, figures.wait.unfinished) == (1, 10, 0)
    assert figures.completion.jobs == 1


def test_waits_are_told_by_size_and_for_large_jobs() -> None:
    jobs = [a_job(str(chips), placed=chips, ended=999, chips=chips) for chips in (1, 7, 64, 100, 300)]
    figures = statistics_of(a_timeline(*jobs))
    assert [(group.name, group.wait.jobs, group.wait.max_ms) for group in figures.wait_by_size] == [
        ("1", 1, 1), ("2-7", 1, 7), ("8-15", 0, 0), ("16-63", 0, 0), ("64-255", 2, 100), ("256 and more", 1, 300)
    ]  # fmt: skip
    assert (figures.wait_large.jobs, figures.wait_large.p50_ms) == (3, 100)


def test_waits_are_told_by_priority_only_if_there_are_several() -> None:
    jobs = [a_job("a", placed=5, priority=1), a_job("b", placed=7, priority=10), a_job("c", placed=9, priority=-2)]
    assert [(group.name, group.wait.p50_ms) for group in statistics_of(a_timeline(*jobs)).wait_by_priority] == [
        ("10", 7), ("1", 5), ("-2", 9)
    ]  # fmt: skip
    assert statistics_of(a_timeline(jobs[0], jobs[0])).wait_by_priority == []


def test_makespan_reaches_to_the_last_end_or_to_the_end_of_the_course() -> None:
    over = statistics_of(a_timeline(a_job("a", asked=5, placed=6, ended=50), a_job("b", asked=9, placed=9, ended=40)))
    assert (over.makespan_ms, over.is_over) == (45, True)
    running = statistics_of(a_timeline(a_job("a", asked=5, placed=6)))
    assert (running.makespan_ms, running.is_over) == (95, False)


def test_use_is_weighted_by_time_within_the_course() -> None:
    moments = (a_moment(0, 16), a_moment(10, 0, waiting=4), a_moment(10, 4, waiting=2), a_moment(60, 8))
    figures = statistics_of(a_timeline(a_job("a", asked=0, placed=0), a_job("b", asked=60, placed=60), moments=moments))
    assert figures.allocation_share == (16 * 10 + 4 * 50 + 8 * 40) / (16 * 100)
    assert figures.arrival_allocation_share == (16 * 10 + 4 * 50) / (16 * 60)
    assert figures.chips_mean == 16
    assert figures.idle_chips_mean == 16 - 680 / 100
    assert (figures.queue_mean, figures.queue_max) == (1.0, 4)


def test_spans_are_of_placed_jobs_of_several_nodes_whose_leaves_are_known() -> None:
    jobs = [
        a_job("tight", placed=1, chips=32, leaves=1, leaves_least=1),
        a_job("split", placed=1, chips=32, leaves=3, leaves_least=1),
        a_job("wide", placed=1, chips=320, leaves=3, leaves_least=3),
        a_job("one-node", placed=1, chips=8, leaves=1, leaves_least=1),
        a_job("unknown", placed=1, chips=64),
        a_job("waits", chips=64, leaves=9, leaves_least=1),
    ]
    figures = statistics_of(a_timeline(*jobs))
    span = figures.leaf_span
    assert (span.jobs, span.wider, span.several, span.could_fit, span.split) == (3, 1, 2, 2, 1)
    assert span.ratio_mean == pytest.approx(5 / 3)
    assert span.ratio_p95 == 3.0
    assert figures.superpod_span.jobs == 0


def test_fragmentation_counts_idle_chips_of_partly_used_nodes_alone() -> None:
    frames = [Frame(0, bytes([0, 8, 3, 255])), Frame(50, bytes([1, 8, 8, 7]))]
    timeline = Timeline("c", {}, 0, 100, [], [], ["a", "b", "c", "d"], [8, 8, 8, 8], [], frames)
    assert statistics_of(timeline).fragmented_chips_mean == (5 + (7 + 1)) / 2


def test_blocked_chips_are_weighted_by_time_and_stand_in_order() -> None:
    moments = (
        a_moment(0, 0, other=1, topology=8, partial=0),
        a_moment(25, 0, partial=4),
        a_moment(75, 0),
    )
    assert statistics_of(a_timeline(moments=moments)).blocked == [
        Blocked("partial", 2.0, 0.5),
        Blocked("topology", 2.0, 0.25),
        Blocked("other", 0.25, 0.25),
    ]


@pytest.mark.parametrize("odd", ODD)
def test_odd_courses_have_figures_and_rows(odd: str) -> None:
    figures = statistics_of(ODD[odd])
    rows = rows_of([figures, figures])
    assert row(rows, "jobs", "in all").values == [len(ODD[odd].jobs)] * 2
    assert all(len(known.cells()) == 2 for known in rows)
    if odd in {"nothing", "no time"}:
        assert figures.allocation_share is None


def test_rows_hold_the_difference_to_the_first_course() -> None:
    moments = (a_moment(0, 8),)
    first = statistics_of(
        a_timeline(a_job("a", placed=20_000, ended=50_000), moments=moments, end=50_000, title="first")
    )
    second = statistics_of(
        a_timeline(a_job("a", placed=25_000, ended=50_000), moments=(a_moment(0, 12),), end=50_000, title="second")
    )
    comparison = compared(first, second)
    assert comparison.titles == ["first", "second"]
    mean = row(comparison.rows, "waiting time", "mean")
    assert (mean.unit, mean.values, mean.cells()) == ("s", [20.0, 25.0], ["20.0", "25.0 (+25.0 %)"])
    assert row(comparison.rows, "use of the chips", "allocation ratio").cells() == ["50.0", "75.0 (+25.0 points)"]
    assert row(comparison.rows, "jobs", "in all").changes == ["", ""]


def test_a_much_larger_number_is_so_many_times_the_first() -> None:
    waits = [
        statistics_of(a_timeline(a_job("a", placed=placed, ended=900_000))) for placed in (1000, 9900, 10_000, 500_000)
    ]
    mean = row(rows_of(waits), "waiting time", "mean")
    assert mean.changes == ["", "+890.0 %", "10 times", "500 times"]


def test_lower_bounds_say_so_and_are_not_compared() -> None:
    waits = statistics_of(a_timeline(a_job("a", placed=1000), a_job("b", asked=0), end=500_000))
    over = statistics_of(a_timeline(a_job("a", placed=1000, ended=3000), end=500_000))
    rows = rows_of([over, waits])
    assert row(rows, "waiting time", "p50").cells() == ["1.0", "1.0"]
    assert row(rows, "waiting time", "max").cells() == ["1.0", ">= 500"]
    assert row(rows, "use of the chips", "makespan").cells() == ["3.0", ">= 500"]


def test_rows_without_any_value_are_left_out_and_all_courses_share_those_that_stay() -> None:
    few, many = statistics_of(a_timeline(a_job("a", placed=1, chips=1))), statistics_of(made_up())
    rows = rows_of([few, many])
    assert row(rows, "leaf switches", "jobs of several nodes").texts[0] == "-"
    assert row(rows, "waiting time of jobs of priority 10", "jobs").texts[0] == "-"
    assert not [known for known in rows_of([few]) if known.section in {"leaf switches", "SuperPoDs"}]
    assert rows_of([]) == []


def test_markdown_has_a_table_a_section_and_escapes_names() -> None:
    figures: Statistics = statistics_of(ODD["names to escape"])
    text = markdown_of(compared(figures))
    assert text.startswith('| jobs | unit | _&lt;b>$a$ & "b"&lt;/b> \\| c\' |\n|---|---|---:|\n| in all |  | 2 |\n')
    assert text.endswith(" |\n")
    assert text.count("|---|---|---:|") == text.count("\n\n") + 1
