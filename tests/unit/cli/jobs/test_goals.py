"""How waiting for a job ends, by what is waited for and by the phase of the job."""

import pytest

from berth.cli.jobs.goals import Goal, interruption_lines, progress_lines, result_of
from berth.cli.jobs.rows import row_of
from berth.schemas.refusal import Code, Refusal
from berth.schemas.status import JobStatus, Phase


@pytest.mark.parametrize(
    ("phase", "placed", "finished"),
    [
        ("waiting", None, None),
        ("placed", "reached", None),
        ("bound", "reached", None),
        ("running", "reached", None),
        ("ending", "reached", None),
        ("succeeded", "reached", "reached"),
        ("failed", "ended", "ended"),
        ("cancelled", "ended", "ended"),
        ("rejected", "ended", "ended"),
    ],
)
def test_the_phase_of_a_job_ends_waiting_or_not(phase: Phase, placed: str | None, finished: str | None) -> None:
    job = row_of(JobStatus("ml", "job", "uid", phase, 1, 1))
    assert (result_of(job, "placed"), result_of(job, "finished")) == (placed, finished)


@pytest.mark.parametrize("goal", ["placed", "finished"])
@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("no-room", None),
        ("over-capability", None),
        ("queue-closed", None),
        ("larger-than-cluster", "never"),
        ("larger-than-capability", "never"),
        ("no-such-queue", "never"),
    ],
)
def test_a_job_never_gets_there_that_the_cluster_or_its_queue_cannot_take(
    goal: Goal, code: Code, result: str | None
) -> None:
    refusal = Refusal(code, "tasks[0].replicas", "8", "less")
    assert result_of(row_of(JobStatus("ml", "job", "uid", "waiting", 1, 1, refusal=refusal)), goal) == result


WAITS = JobStatus("ml", "waits", "uid", "waiting", 1, 1, sentence="0 of 2 nodes fit")


def test_a_job_that_is_waited_for_is_shown_with_its_phase_and_its_age() -> None:
    open_jobs = {("ml", "waits"): WAITS, ("ml", "sent"): None}
    assert progress_lines(open_jobs, 3, 90_001) == [
        "ml/waits is waiting: 0 of 2 nodes fit (90 s since it was submitted)",
        "ml/sent was sent; no verdict yet",
        "1 of 3 jobs are done",
    ]


def test_who_stops_waiting_is_told_what_becomes_of_the_jobs() -> None:
    runs = JobStatus("ml", "runs", "uid", "running", 1, 1)
    assert interruption_lines({("ml", "waits"): WAITS, ("ml", "runs"): runs, ("ml", "sent"): None}) == [
        "ml/waits stays queued; cancel it with: berth cancel ml/waits",
        "ml/runs goes on; cancel it with: berth cancel ml/runs",
        "ml/sent was sent and stays queued, without a verdict yet; see: berth jobs --all",
    ]
