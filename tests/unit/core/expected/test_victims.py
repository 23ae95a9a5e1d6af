"""Which jobs would end for one that is not submitted, or that waits."""

from collections.abc import Iterable

import pytest

from berth.core.expected.expectation import ExpectedStart, sentences
from berth.core.expected.forecast import Forecast
from berth.schemas.intake import JobRequest, Preemption
from berth.schemas.units import rfc3339
from tests.support.cells import a_job
from tests.unit.core.scheduling.test_preemption import gone, placed
from tests.unit.core.scheduling.test_scheduler import Seat

KEEPS = Preemption(preemptable=False)
HIGH = a_job("high", chips=8, priority=1)


def seat_of(*jobs: JobRequest, nodes: Iterable[str] = ("a",), preempt: int = 2, **settings: int) -> Seat:
    """Nodes with jobs that run, as many as there is room for; the others wait."""
    seat = Seat(*nodes, preempt=preempt, **settings)
    for job in jobs:
        seat.job(job)
        seat.round(at_ms=1)
    return seat


def asked(seat: Seat, job: JobRequest = HIGH, at_ms: int = 100) -> ExpectedStart:
    return Forecast(seat.state, at_ms).ask(job, with_victims=True)


def last_words(found: ExpectedStart) -> str:
    return sentences(found, rfc3339, at_ms=100)[-1]


def test_the_jobs_that_would_end_are_named_with_the_place() -> None:
    seat = seat_of(a_job("low", chips=8), a_job("keeps", chips=8, preemption=KEEPS), nodes=("a", "b"))
    found = asked(seat)
    assert found.victims is not None
    (job,) = found.victims.jobs
    assert (job.job, job.queue, job.priority, job.chips, job.is_reclaimed) == ("default/low", "default", 0, 8, False)
    assert (found.victims.code, found.victims.place, found.victims.where) == ("", "node", "a")
    assert last_words(found) == (
        "By preemption default/low (8 chips, priority 0) would end for it, and it would start on node a."
    )
    assert seat.round(at_ms=101) is None, "nothing was decided"


def test_pods_beyond_the_minimum_of_a_job_are_told_as_such() -> None:
    seat = seat_of(a_job("low", chips=4, replicas=4, min_available=2), nodes=("a", "b"))
    found = asked(seat)
    assert found.victims is not None
    (job,) = found.victims.jobs
    assert (job.job, job.pods, job.chips) == ("default/low", 2, 8)
    assert last_words(found) == (
        "By preemption 2 pods of default/low (8 chips, priority 0) would end for it, and it would start on node b."
    )


def test_what_would_end_is_what_ends() -> None:
    seat = seat_of(*(a_job(f"low-{number}", chips=4, priority=number) for number in range(4)), nodes=("a", "b"))
    job = a_job("high", chips=8, priority=9)
    found = asked(seat, job).victims
    assert found is not None
    seat.job(job)
    record = seat.round(at_ms=100)
    assert record is not None
    assert [f"{one.namespace}/{one.name}" for one in record.recoveries] == [one.job for one in found.jobs]


def test_where_there_is_room_nobody_has_to_end() -> None:
    found = asked(seat_of(a_job("low", chips=8), nodes=("a", "b")))
    assert last_words(found) == "No job has to end for it."


@pytest.mark.parametrize(
    ("jobs", "asked_for", "words"),
    [
        ([a_job("same", chips=8, priority=1)], HIGH, "No job may end for it."),
        (
            [a_job("low", chips=4), a_job("keeps", chips=4, preemption=KEEPS)],
            HIGH,
            "1 job may end for it and holds 4 chips, but no set of them makes room in one node.",
        ),
        (
            [a_job("low", chips=8)],
            a_job("high", chips=8, priority=1, preemption=Preemption(never=True)),
            "No job ends for it: its PriorityClass has preemptionPolicy Never, or its queue lets nobody in.",
        ),
    ],
)
def test_why_nobody_would_end_is_said_in_numbers(jobs: list[JobRequest], asked_for: JobRequest, words: str) -> None:
    assert last_words(asked(seat_of(*jobs), asked_for)) == words


def test_jobs_that_ended_for_others_too_often_are_the_reason() -> None:
    seat = seat_of(a_job("low", chips=8), evictions_per_hour=1)
    seat.job(HIGH)
    seat.round(at_ms=100)
    gone(seat, "low")
    seat.round(at_ms=200)
    record = seat.round(at_ms=201)
    assert record is not None
    assert placed(record) == {"high": ["a"]}
    seat.ended("high")
    seat.round(at_ms=300)
    seat.round(at_ms=301)
    found = asked(seat, a_job("other", chips=8, priority=2), at_ms=400)
    assert last_words(found) == "The jobs that may end for it have ended for others 1 time in the last hour."


def test_of_a_job_that_waits_the_reason_is_said_too() -> None:
    seat = seat_of(a_job("same", chips=8, priority=1), HIGH)
    found = Forecast(seat.state, 100).of("uid-high")
    assert found is not None
    assert last_words(found) == "No job may end for it."


def test_a_job_with_a_reserved_place_has_no_further_answer() -> None:
    seat = seat_of(a_job("low", chips=8))
    seat.job(HIGH)
    seat.round(at_ms=100)
    found = Forecast(seat.state, 101).of("uid-high")
    assert found is not None
    assert (found.victims, found.held_by) == (None, ["default/low"])


def test_without_preemption_there_is_no_answer() -> None:
    assert asked(seat_of(a_job("low", chips=8), preempt=0)).victims is None
