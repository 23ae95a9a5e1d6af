"""Events of one job: what each fact and record means for a program."""

import msgspec

from berth.core.events.change import Change
from berth.schemas.facts import JobSeen, OutcomeSeen, Rejection
from berth.schemas.ledger import Eviction, Release, Round, Verdict
from berth.schemas.placement import Run, placement_of
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.replies import Rank
from berth.schemas.programs.trace_ids import trace_id
from berth.schemas.recovery import Recovery
from berth.schemas.refusal import Refusal
from tests.support.one_job import NO_ROOM, PLACEMENT, OneJob, P


def ids(events: list[JobEvent]) -> list[str]:
    return [event.id for event in events]


def test_an_accepted_request() -> None:
    (event,) = OneJob().job()
    assert event == JobEvent(
        id="u/0/0/accepted", namespace="team", name="j", uid="u", attempt=0, step=0, phase="accepted", at_ms=70,
        request_seq=1, source="facts", sequence=1, trace_id=trace_id("u"),
    )  # fmt: skip


def test_a_repeated_or_changed_request_of_the_same_uid_is_no_event() -> None:
    told = OneJob()
    told.job()
    assert told.job() == []


def test_a_rejected_request_says_why_and_is_final() -> None:
    (event,) = OneJob().job("rejected", refusal=Refusal(code="job-shape", field="chips", value="3", expected="1 or 2"))
    assert (event.id, event.code, event.final) == ("u/0/0/rejected", "job-shape", True)
    assert "chips" in event.sentence


def test_a_request_that_is_refused_because_another_job_has_the_name_is_an_event_of_its_own_uid() -> None:
    told = OneJob()
    told.job()
    refused = Rejection("other", 2, Refusal(code="name-in-use", field="name", value="team/j", expected="another"), 71)
    (event,) = told.job(rejection=refused)
    assert (event.id, event.uid, event.request_seq, event.at_ms) == ("other/0/0/rejected", "other", 2, 71)
    assert told.job(rejection=refused) == []
    own = msgspec.structs.replace(refused, uid="u", intake_seq=4)
    assert told.job(rejection=own) == [], "a changed request of the job itself is in its status"


def test_a_verdict_that_is_void_is_no_event() -> None:
    told = OneJob()
    told.job()
    assert told.job("cancelled", after_seq=9, intake_seq=10) == []


def test_a_job_waits_once_an_attempt() -> None:
    told = OneJob()
    told.job()
    refused = [Verdict("team", "j", "u", 1, refusal=NO_ROOM)]
    (event,) = told.round(verdicts=refused)
    assert (event.id, event.code, event.source, event.sequence) == ("u/1/0/waiting", "no-room", "ledger", 2)
    assert told.round(verdicts=refused) == []


def test_another_reason_is_an_event_whose_id_has_the_record() -> None:
    told = OneJob()
    told.job()
    told.round(verdicts=[Verdict("team", "j", "u", 1, refusal=NO_ROOM)])
    behind = Refusal(code="behind", ahead="team/other")
    (event,) = told.round(verdicts=[Verdict("team", "j", "u", 1, refusal=behind)])
    assert (event.id, event.phase, event.code, event.sequence) == ("u/1/0/waiting.3", "waiting", "behind", 3)
    assert (
        told.round(verdicts=[Verdict("team", "j", "u", 1, refusal=msgspec.structs.replace(behind, ahead="x/y"))]) == []
    )
    assert ids(told.round(verdicts=[Verdict("team", "j", "u", 1, refusal=NO_ROOM)])) == ["u/1/0/waiting.5"]
    assert ids(told.round(verdicts=[Verdict("team", "j", "u", 1, PLACEMENT)])) == ["u/1/0/placed"]


def test_the_reason_for_which_an_attempt_waits_follows_the_end_of_the_one_before() -> None:
    told = OneJob()
    told.placed()
    assert ids(told.round(releases=[Release("u", 1, "bind-failed", again=True)])) == ["u/2/0/waiting"]
    (event,) = told.round(verdicts=[Verdict("team", "j", "u", 2, refusal=NO_ROOM)])
    assert (event.id, event.code) == ("u/2/0/waiting.4", "no-room")


def test_a_job_that_is_refused_for_good_fails() -> None:
    told = OneJob()
    told.job()
    (event,) = told.round(verdicts=[Verdict("team", "j", "u", 1, refusal=NO_ROOM, final=True)])
    assert (event.id, event.final) == ("u/1/0/failed", True)


def test_a_placement_has_node_and_chips_of_every_rank() -> None:
    (event,) = OneJob().placed()
    assert event.id == "u/1/0/placed"
    assert event.ranks == [Rank(rank=0, node="a", chips=[0, 2]), Rank(rank=1, node="b", chips=[1, 3])]
    assert event.request_seq == 1


def test_a_job_that_is_cancelled_while_it_waits_is_over() -> None:
    told = OneJob()
    told.job()
    (event,) = told.job("cancelled", reason="no longer needed")
    assert (event.id, event.final, event.sentence) == ("u/1/0/cancelled", True, "no longer needed")


def test_a_job_that_is_cancelled_while_it_runs_ends_in_the_ledger() -> None:
    told = OneJob()
    told.placed()
    assert told.job("cancelled") == []
    assert ids(told.round(evictions=[Eviction("u", 1, "cancelled")])) == ["u/1/0/ending"]
    (event,) = told.round(releases=[Release("u", 1, "cancelled")])
    assert (event.id, event.final) == ("u/1/0/cancelled", True)


def test_pods_that_are_bound_and_run() -> None:
    told = OneJob()
    told.placed()
    assert ids(told.bound()) == ["u/1/0/bound"]
    assert told.bound() == []
    assert told.pods(P.PENDING, P.PENDING) == []
    assert ids(told.pods(P.RUNNING, P.PENDING)) == ["u/1/0/running"]
    assert told.pods(P.RUNNING, P.RUNNING) == []


def test_an_outcome_that_failed_is_no_event() -> None:
    told = OneJob()
    told.placed()
    assert told.fact("outcome", OutcomeSeen("team", "j", "u", 1, "failed")) == []


def test_pods_of_another_scheduler_have_no_events() -> None:
    assert OneJob().pods(P.RUNNING, foreign=True) == []


def test_an_attempt_that_failed_and_is_tried_again() -> None:
    told = OneJob()
    told.placed()
    assert ids(told.round(releases=[Release("u", 1, "bind-failed", again=True)])) == ["u/2/0/waiting"]


def test_ends() -> None:
    for reason, wanted in (("succeeded", "succeeded"), ("failed", "failed"), ("vanished", "failed")):
        told = OneJob()
        told.placed()
        (event,) = told.round(releases=[Release("u", 1, reason)])  # type: ignore[arg-type]  # a literal
        assert (event.id, event.code, event.final) == (f"u/1/0/{wanted}", reason, True)


def test_ranks_that_end_before_the_others_are_no_event() -> None:
    told = OneJob()
    told.placed()
    assert told.round(releases=[Release("u", 1, "succeeded", ranks=[1])]) == []


def test_a_rank_that_recovers_leaves_and_gets_a_place() -> None:
    told = OneJob()
    told.placed()
    leaves = Recovery("team", "j", "u", 1, 1, "CardUnhealthy", "chip 1 of b is broken", "pod", "force", [1], [1], 50)
    (event,) = told.round(recoveries=[leaves])
    assert (event.id, event.code, event.sentence) == ("u/1/1/recovering", "CardUnhealthy", "chip 1 of b is broken")
    assert told.round(releases=[Release("u", 1, "fault", ranks=[1])]) == []
    places = msgspec.structs.replace(
        leaves, step=2, how="place", placement=placement_of(["c"], [(4, 5)], [Run(1, 2)], resource="r")
    )
    (event,) = told.round(recoveries=[places])
    assert event.id == "u/1/2/placed"
    assert event.ranks == [Rank(rank=0, node="a", chips=[0, 2]), Rank(rank=1, node="c", chips=[4, 5])]
    assert ids(told.bound(done=2)) == ["u/1/2/bound"]
    assert told.pods(P.RUNNING, P.PENDING, steps=(0, 2)) == []
    assert ids(told.pods(P.RUNNING, P.RUNNING, steps=(0, 2))) == ["u/1/2/running"]
    assert ids(told.round(releases=[Release("u", 1, "succeeded")])) == ["u/1/2/succeeded"]


def test_a_rank_that_leaves_for_a_reserved_place_is_shown_there() -> None:
    told = OneJob()
    told.placed()
    placement = placement_of(["c"], [(4, 5)], [Run(1, 2)], resource="r")
    moved = Recovery("team", "j", "u", 1, 1, "CardUnhealthy", "broken", "pod", "grace", [1], [1], 50, 99, placement)
    recovering, placed = told.round(recoveries=[moved])
    assert ids([recovering, placed]) == ["u/1/1/recovering", "u/1/1/placed"]
    assert recovering.ranks == []
    assert [rank.node for rank in placed.ranks] == ["a", "c"]


def test_the_places_of_backup_pods_are_an_event() -> None:
    told = OneJob()
    told.placed()
    backup = Recovery(
        "team", "j", "u", 1, 1, "CardUnhealthy", "chip 1 of b fails", "pod", "backup", [1], [1], 50,
        placement=placement_of(["c"], [(4, 5)], [Run(1, 2)], resource="r"), backups=["pod-u"],
    )  # fmt: skip
    (event,) = told.round(recoveries=[backup])
    assert (event.id, event.phase, event.code, event.final) == ("u/1/1/backup", "backup", "CardUnhealthy", False)
    assert event.ranks == [Rank(rank=1, node="c", chips=[4, 5])]


def test_a_record_that_is_void_is_no_event() -> None:
    told = OneJob()
    told.job()
    verdict = Verdict("team", "j", "u", 1, PLACEMENT)
    assert told.record(Round(1, 99, told.state.facts_seq, 50, 1, verdicts=[verdict])) == []


def test_a_fact_that_does_not_decode_is_no_event() -> None:
    told = OneJob()
    applied, found = told.source.apply_fact("berth.c.fact.job.team.j", 1, b"\x93\xa8fact.job\x01\xc0")
    assert applied.error
    assert found == []


def test_an_event_of_a_job_whose_request_nobody_knows_any_more_names_none() -> None:
    change = Change("team", "j", "gone", attempt=1)
    job = JobSeen("team", "j", "u", "accepted", 4)
    refused = Rejection("other", 5, Refusal(code="name-in-use", field="name", value="team/j", expected="another"), 71)
    for known in (None, job, msgspec.structs.replace(job, rejection=refused)):
        assert change.event("placed", job=known, at_ms=9, source=("ledger", 3)).request_seq == 0
