"""Spans of a job: which part of its life ends with an event, and when that began."""

from berth.core.events.job_spans import JobSpan, JobSpans
from berth.schemas.facts import PodPhase
from berth.schemas.ledger import Release, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from tests.support.one_job import NO_ROOM, PLACEMENT, OneJob

P = PodPhase
SUBMITTED_MS, ACCEPTED_MS, ROUND_MS, BOUND_MS, RUNS_MS = 20, 70, 50, 80, 90
"""Times that :class:`OneJob` gives; clocks of processes differ, so a round may be before the request it answers."""


class Traced(OneJob):
    """A job whose spans are derived."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = JobSpans(self.state)

    def ended(self, events: list[JobEvent]) -> list[JobSpan]:
        return [span for event in events for span in self.spans.ended_by(event)]


def parts(spans: list[JobSpan]) -> list[tuple[str, int, int]]:
    return [(span.name, span.start_ms, span.end_ms) for span in spans]


def test_from_the_submission_to_pods_that_run() -> None:
    job = Traced()
    accepted = job.ended(job.job())
    placed = job.ended(job.round(verdicts=[Verdict("team", "j", "u", 1, PLACEMENT)]))
    bound = job.ended(job.bound())
    running = job.ended(job.pods(P.RUNNING, P.RUNNING))
    assert parts(accepted) == [("accept", SUBMITTED_MS, ACCEPTED_MS)]
    assert parts(placed) == [("wait", ROUND_MS, ROUND_MS)]
    assert parts(bound) == [("bind", ROUND_MS, BOUND_MS), ("schedule", SUBMITTED_MS, BOUND_MS)]
    assert parts(running) == [("start", BOUND_MS, RUNS_MS)]
    spans = [*accepted, *placed, *bound, *running]
    root = bound[-1]
    assert {span.trace_id.hex() for span in spans} == {trace_id("u")}
    assert root.parent_id == b""
    assert {span.parent_id for span in spans if span is not root} == {root.span_id}
    assert len({span.span_id for span in spans}) == len(spans)
    assert {len(span.span_id) for span in spans} == {8}
    assert dict(placed[0].attributes) == {
        "berth.attempt": 1, "berth.job": "j", "berth.namespace": "team", "berth.nodes": 2, "berth.pods": 2,
        "berth.sequence": 2, "berth.uid": "u",
    }  # fmt: skip
    assert {span.error for span in spans} == {""}


def test_the_same_messages_give_the_same_spans() -> None:
    def lived() -> list[JobSpan]:
        job = Traced()
        return [*job.ended(job.placed()), *job.ended(job.bound())]

    assert lived() == lived() != []


def test_a_rejected_job_has_a_root_that_failed() -> None:
    job = Traced()
    refusal = Refusal(code="job-shape", field="chips", value="3", expected="1 or 2")
    (span,) = job.ended(job.job("rejected", refusal=refusal))
    assert (span.name, span.start_ms, span.end_ms, span.parent_id) == ("schedule", SUBMITTED_MS, ACCEPTED_MS, b"")
    assert "chips" in span.error


def test_a_job_that_ends_before_it_is_bound_has_a_root_that_failed() -> None:
    job = Traced()
    job.ended(job.job())
    job.ended(job.round(verdicts=[Verdict("team", "j", "u", 1, refusal=NO_ROOM)]))
    (span,) = job.ended(job.job("cancelled", reason="no longer wanted"))
    assert (span.name, span.error) == ("schedule", "no longer wanted")


def test_the_end_of_a_job_that_was_bound_ends_no_span() -> None:
    job = Traced()
    job.ended(job.placed())
    job.ended(job.bound())
    job.pods(P.FAILED, P.FAILED)
    assert job.ended(job.round(releases=[Release("u", 1, "failed")])) == []


def test_a_later_attempt_waits_and_is_bound_below_the_root() -> None:
    job = Traced()
    job.ended(job.placed())
    (*_, root) = job.ended(job.bound())
    job.ended(job.round(releases=[Release("u", 1, "bind-failed", again=True)]))
    (wait,) = job.ended(job.round(verdicts=[Verdict("team", "j", "u", 2, PLACEMENT)]))
    (bind,) = job.ended(job.bound(attempt=2))
    assert [span.name for span in (wait, bind)] == ["wait", "bind"]
    assert (wait.parent_id, bind.parent_id) == (root.span_id, root.span_id)
    assert dict(bind.attributes)["berth.attempt"] == 2


def test_a_root_lasts_until_the_first_attempt_that_is_bound() -> None:
    job = Traced()
    job.ended(job.job())
    (wait,) = job.ended(job.round(verdicts=[Verdict("team", "j", "u", 1, PLACEMENT)]))
    assert job.ended(job.round(releases=[Release("u", 1, "bind-failed", again=True)])) == []
    job.ended(job.round(verdicts=[Verdict("team", "j", "u", 2, PLACEMENT)]))
    *_, root = job.ended(job.bound(attempt=2))
    assert parts([root]) == [("schedule", SUBMITTED_MS, BOUND_MS)]
    assert (root.parent_id, root.span_id) == (b"", wait.parent_id)
    job.ended(job.round(releases=[Release("u", 2, "failed")]))
    assert not any(span.name == "schedule" for span in job.ended(job.job(state="cancelled")))


def test_a_root_ends_with_a_job_whose_attempts_were_never_bound() -> None:
    job = Traced()
    job.ended(job.job())
    job.ended(job.round(verdicts=[Verdict("team", "j", "u", 1, PLACEMENT)]))
    job.ended(job.round(releases=[Release("u", 1, "bind-failed", again=True)]))
    (root,) = job.ended(job.job(state="cancelled", reason="not needed"))
    assert (root.name, root.start_ms, root.error) == ("schedule", SUBMITTED_MS, "not needed")


def test_a_recovery_lasts_from_the_fault_to_the_pods_at_their_new_places() -> None:
    job = Traced()
    job.ended(job.placed())
    job.ended(job.bound())
    place = placement_of(["c"], [(0, 1)], [Run(1, 2)], resource="r")
    step = Recovery("team", "j", "u", 1, 1, "CardUnhealthy", "x", "pod", "grace", [1], [1], 30, 99, place)
    assert job.ended(job.round(recoveries=[step])) == []
    assert job.ended(job.round(releases=[Release("u", 1, "fault", ranks=[1])])) == []
    (span,) = job.ended(job.bound(done=1))
    assert (span.name, span.start_ms, span.end_ms) == ("recover", 30, BOUND_MS)
    assert dict(span.attributes)["berth.step"] == 1


def test_a_part_whose_beginning_nobody_knows_is_left_out() -> None:
    """Events may be derived from a snapshot on, which has no time of the return to the queue."""
    job = Traced()
    job.placed()
    job.bound()
    job.round(releases=[Release("u", 1, "bind-failed", again=True)])
    assert job.ended(job.round(verdicts=[Verdict("team", "j", "u", 2, PLACEMENT)])) == []
