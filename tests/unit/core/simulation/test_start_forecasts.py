"""How near expected starts are in a simulation."""

from msgspec.structs import replace

from berth.core.simulation.comparison import compared
from berth.core.simulation.statistics import statistics_of
from berth.core.simulation.timeline import StartFigures
from berth.schemas.ledger import Settings
from berth.schemas.workload import PlannedJob
from tests.support.simulations import a_plan, planned, run_of

MINUTE = 60


def figures(*jobs: PlannedJob, every: int = 1, settings: Settings | None = None) -> StartFigures:
    """Of jobs on one node of 8 chips."""
    _, timeline, _ = run_of(replace(a_plan(*jobs, settings=settings), expect_every=every))
    assert timeline.starts is not None
    return timeline.starts


def test_a_start_that_follows_from_declared_run_times_is_in_its_range() -> None:
    jobs = [planned(name, 0, 10 * MINUTE, 8, declared_s=10 * MINUTE) for name in "abc"]
    found = figures(*jobs)
    assert found == StartFigures(
        asked=2, ranges=2, in_range=2, near=2, last_wait=2, last_wait_near=0, reserved=2, reserved_near=2
    )


def test_without_run_times_there_is_no_range_and_a_reservation_assumes_one() -> None:
    jobs = [planned(name, 0, 10 * MINUTE, 8) for name in "ab"]
    found = figures(*jobs, settings=Settings(unknown_run_ms=19 * MINUTE * 1000))
    assert (found.asked, found.ranges, found.reserved, found.reserved_near) == (1, 0, 1, 1)
    found = figures(*jobs, settings=Settings(unknown_run_ms=21 * MINUTE * 1000))
    assert (found.reserved, found.reserved_near) == (1, 0)


def test_the_last_wait_is_that_of_the_job_of_as_many_chips_that_was_placed_last() -> None:
    first, second = planned("a", 0, 10 * MINUTE, 8), planned("b", 0, 10 * MINUTE, 8)
    small, third = planned("small", 15 * MINUTE, MINUTE, 1), planned("c", 16 * MINUTE, MINUTE, 8)
    found = figures(first, second, small, third)
    assert (found.asked, found.last_wait, found.last_wait_near) == (3, 2, 1), "b waited 10 minutes, and c waits 5"


def test_one_of_so_many_is_asked_about_and_one_that_leaves_is_not_judged() -> None:
    waiting = [planned(name, 1, MINUTE, 8) for name in "bcde"]
    assert figures(planned("a", 0, MINUTE, 8), *waiting, every=2).asked == 2
    assert figures(planned("a", 0, MINUTE, 8), planned("b", 1, MINUTE, 8, cancel_s=30)).asked == 0


def test_the_table_has_shares_of_the_answers_and_nothing_where_nobody_was_asked_about() -> None:
    jobs = [planned(name, 0, 10 * MINUTE, 8, declared_s=10 * MINUTE) for name in "abc"]
    plan = a_plan(*jobs)
    tables = [compared(statistics_of(run_of(replace(plan, expect_every=every))[1])).rows for every in (0, 1)]
    none, some = [[row for row in rows if row.section == "expected starts"] for rows in tables]
    assert none == []
    assert [(row.metric, row.texts) for row in some] == [
        ("jobs asked about", ["2"]),
        ("with a range", ["100"]),
        ("with a range: started within it", ["100"]),
        ("with a range: wait within a factor of 2 of its mean", ["100"]),
        ("last wait of as many chips: within a factor of 2", ["0.0"]),
        ("reservation of easy: within a factor of 2", ["100"]),
    ]
