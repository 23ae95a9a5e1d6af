"""What a person is told of a job."""

import msgspec
import pytest

from berth.core.explain.job_status import digest, status_of
from berth.core.state.cell import State
from berth.core.topologies.switches.placed import SwitchPlacement
from berth.schemas.columns import pack, pack_names
from berth.schemas.envelope import encode
from berth.schemas.facts import JobSeen, OutcomeSeen, PodPhase, PodsSeen, Rejection
from berth.schemas.ledger import Epoch, Eviction, Release, ReleaseReason, Round, Settings, Verdict
from berth.schemas.message import Message
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.refusal import Refusal
from berth.schemas.status import JobStatus
from tests.support.cells import a_job

KEY = ("default", "j")
NO = Refusal("no-room", pods_need=2, nodes_total=3)
PLACEMENT = placement_of(["a", "b"], [(0,), (1,)], [Run(2, 1)], resource="r")


class ExplainResult:
    """A job of two pods, and what is told of it."""

    def __init__(self, **changes: object) -> None:
        self.state = State()
        self.state.apply_record(1, self.state.fold.encoded(Epoch(1, 0, 0, 0, "h", Settings())))
        fields: dict[str, object] = {"state": "accepted", "intake_seq": 1, "accepted_seq": 1, "at_ms": 5}
        request = a_job("j", replicas=2, priority=4, queue="q")
        self.fact(JobSeen("default", "j", "uid-j", **(fields | {"request": request} | changes)))  # type: ignore[arg-type]

    def fact(self, message: Message) -> None:
        subject = f"berth.c.{message.KIND}.default.j"
        assert self.state.apply_fact(subject, self.state.facts_seq + 1, encode(message)).error == ""

    def round(self, **parts: object) -> None:
        head = self.state.fold.head
        record = Round(1, head, self.state.facts_seq, 10 * head, head, **parts)  # type: ignore[arg-type]
        self.state.apply_record(head + 1, self.state.fold.encoded(record))

    def place(self, *, attempt: int = 1, placement: Placement = PLACEMENT) -> None:
        self.round(verdicts=[Verdict("default", "j", "uid-j", attempt, placement)])

    def refuse(self, *, final: bool = False) -> None:
        self.round(verdicts=[Verdict("default", "j", "uid-j", 1, None, NO, final)])

    def release(self, reason: ReleaseReason, *, again: bool = False) -> None:
        self.round(releases=[Release("uid-j", 1, reason, again)])

    def pods(self, phase: PodPhase, *, attempt: int = 1) -> None:
        two = pack([0, 1], 4)
        fact = PodsSeen(
            "default", "j", "uid-j", attempt, two, pack_names(["a", "b"]), two, pack([phase] * 2, 1), bytes(16)
        )
        self.fact(fact)

    @property
    def status(self) -> JobStatus:
        status = status_of(self.state, KEY, at_ms=99)
        assert status is not None
        return status

    @property
    def brief(self) -> tuple[str, str]:
        return self.status.phase, self.status.sentence


def test_nobody_has_no_status() -> None:
    assert status_of(State(), KEY, at_ms=0) is None


def test_a_job_that_was_just_accepted_waits() -> None:
    status = ExplainResult().status
    assert (status.phase, status.sentence, status.attempt, status.ledger_seq) == ("waiting", "", 0, 0)
    assert (status.pods, status.chips, status.queue, status.priority) == (2, 2, "q", 4)
    assert (status.since_ms, status.at_ms, status.intake_seq) == (5, 99, 1)


def test_a_refused_job_is_told_why() -> None:
    told = ExplainResult()
    told.refuse()
    assert told.brief == ("waiting", "0 of 3 nodes fit")
    assert told.status.refusal == NO
    assert (told.status.ledger_seq, told.status.facts_seq, told.status.since_ms) == (2, 1, 5)
    told.refuse(final=True)
    assert told.brief == ("failed", "0 of 3 nodes fit")


def test_a_placed_job_is_placed_then_bound_then_running() -> None:
    told = ExplainResult()
    told.refuse()
    told.place()
    assert told.brief == ("placed", "")
    assert told.status.placement == PLACEMENT
    told.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 2))
    assert told.brief == ("bound", "")
    told.pods(PodPhase.PENDING)
    assert told.brief == ("bound", "")
    told.pods(PodPhase.RUNNING)
    assert told.brief == ("running", "")


def test_a_warning_of_the_verdict_is_in_the_status_in_every_phase() -> None:
    words = "label 'tor-afinity' is not known, and is close to 'tor-affinity'"
    told = ExplainResult(warnings=[words])
    assert told.status.warning == words
    part = SwitchPlacement("normal-schema", 2, policy="2.0", rule="best-fit", warning="it is so")
    told.place(placement=msgspec.structs.replace(PLACEMENT, groups=[part.groups]))
    assert told.status.warning == f"it is so; {words}"
    told.release("succeeded")
    assert told.status.warning == words


def test_the_keys_of_a_request_are_not_compared_again_for_a_status() -> None:
    request = msgspec.structs.replace(a_job("j"), labels={"tor-afinity": "normal-schema"})
    assert ExplainResult(request=request).status.warning == ""


def test_a_placed_job_outside_what_switch_affinity_supports_is_warned_of_while_it_holds_its_place() -> None:
    told = ExplainResult()
    words = "switch affinity 2.0 is meant for PyTorch, not for MindSpore"
    part = SwitchPlacement("normal-schema", 2, policy="2.0", rule="best-fit", warning=words)
    told.place(placement=msgspec.structs.replace(PLACEMENT, groups=[part.groups]))
    assert told.brief == ("placed", "")
    assert told.status.warning == words
    told.pods(PodPhase.RUNNING)
    assert told.status.warning == words
    told.release("succeeded")
    assert told.status.warning == ""


def test_pods_and_outcomes_of_another_attempt_do_not_count() -> None:
    told = ExplainResult()
    told.place(attempt=2)
    told.fact(OutcomeSeen("default", "j", "uid-j", 1, "bound", 2))
    told.pods(PodPhase.RUNNING, attempt=1)
    assert told.brief == ("placed", "")


@pytest.mark.parametrize(
    ("reason", "brief"),
    [
        ("succeeded", ("succeeded", "")),
        ("failed", ("failed", "a pod failed")),
        ("cancelled", ("cancelled", "")),
        ("vanished", ("failed", "its pods are gone")),
    ],
)
def test_a_job_that_is_over_says_how_it_ended(reason: ReleaseReason, brief: tuple[str, str]) -> None:
    told = ExplainResult()
    told.place()
    told.release(reason)
    assert told.brief == brief
    assert told.status.placement is None


def test_a_job_whose_pods_could_not_be_bound_waits_anew_and_says_so() -> None:
    told = ExplainResult()
    told.place()
    told.release("bind-failed", again=True)
    assert told.brief == ("waiting", "its pods could not be bound; it is placed again")
    told.refuse()
    assert told.brief == ("waiting", "0 of 3 nodes fit")


def test_a_job_waits_since_it_entered_the_queue_whatever_it_is_refused() -> None:
    told = ExplainResult()
    first = told.status.since_ms
    told.refuse()
    told.refuse()
    assert told.status.since_ms == first


def test_a_job_whose_attempts_are_used_up_says_so() -> None:
    told = ExplainResult()
    told.place()
    told.release("bind-failed")
    assert told.brief == ("failed", "its pods could not be bound in 1 attempt")


def test_an_evicted_job_ends() -> None:
    told = ExplainResult()
    told.place()
    told.round(evictions=[Eviction("uid-j", 1, "cancelled")])
    assert told.brief == ("ending", "its pods are being deleted")


def test_a_cancelled_job_that_waited_gives_the_reason() -> None:
    told = ExplainResult(state="cancelled", reason="not needed")
    assert told.brief == ("cancelled", "not needed")
    told.refuse()
    assert told.brief == ("cancelled", "not needed")


def test_a_cancelled_job_that_had_a_place_gives_the_reason() -> None:
    told = ExplainResult(state="cancelled", reason="wrong data")
    told.place()
    told.round(evictions=[Eviction("uid-j", 1, "cancelled")])
    told.release("cancelled")
    assert told.brief == ("cancelled", "wrong data")


def test_a_rejected_job_is_told_what_was_wrong_and_shows_nothing_of_others() -> None:
    wrong = Refusal("invalid-request", field="tasks", value="[]", expected="at least one task")
    told = ExplainResult(state="rejected", refusal=wrong)
    told.place()  # another job may have the uid
    assert told.brief == ("rejected", "tasks is '[]', expected at least one task")
    assert told.status.placement is None


def test_a_status_is_written_again_when_its_phase_its_record_or_a_rejection_changed() -> None:
    told = ExplainResult()
    seen = {digest(told.status)}
    told.refuse()
    seen.add(digest(told.status))
    told.place()
    seen.add(digest(told.status))
    told.pods(PodPhase.RUNNING)
    seen.add(digest(told.status))
    told.pods(PodPhase.RUNNING)
    seen.add(digest(told.status))
    assert len(seen) == 4
    beside = Rejection("other", 9, NO, 0)
    assert digest(ExplainResult(rejection=beside).status) != digest(ExplainResult().status)


def test_a_status_keeps_the_time_of_the_request_and_its_place_in_the_queue_through_retries() -> None:
    told = ExplainResult(request=a_job("j", replicas=2, created_at_ms=3))
    first = told.status
    assert (first.submitted_ms, first.accepted_seq, first.is_plain) == (3, 1, False)
    told.place()
    told.release("failed", again=True)
    again = told.status
    assert again.phase == "waiting"
    assert again.since_ms > first.since_ms
    assert (again.submitted_ms, again.accepted_seq) == (3, 1)
    assert ExplainResult(request=a_job("j")).status.submitted_ms == 5, "without a time in the request, its acceptance"


def test_a_job_without_chips_has_a_queue_of_its_own() -> None:
    assert ExplainResult(request=a_job("j", chips=0)).status.is_plain
    assert not ExplainResult(request=a_job("j", chips=1)).status.is_plain


def test_a_status_is_written_again_when_its_job_changes_the_queue() -> None:
    status = ExplainResult(request=a_job("j", chips=0)).status
    assert digest(status) != digest(msgspec.structs.replace(status, is_plain=False))
    assert digest(status) != digest(msgspec.structs.replace(status, queue="other"))


def test_a_job_that_runs_and_names_another_queue_says_to_which_it_is_charged() -> None:
    told = ExplainResult()
    told.round(verdicts=[Verdict("default", "j", "uid-j", 1, PLACEMENT, queue="before")])
    assert told.status.warning == "it is charged to queue before; queue q counts from its next attempt on"
    same = ExplainResult()
    same.round(verdicts=[Verdict("default", "j", "uid-j", 1, PLACEMENT, queue="q")])
    assert same.status.warning == ""


def test_a_status_is_written_again_when_a_waiting_job_has_another_priority() -> None:
    told, later = ExplainResult(request=a_job("j", priority=4)), ExplainResult(request=a_job("j", priority=5))
    assert digest(told.status) != digest(later.status)
