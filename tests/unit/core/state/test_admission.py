"""Verdicts on requests: who gets a name, who keeps it, and what is rejected."""

import msgspec
import pytest

from berth.core.state.admission import RECORD_BYTES_MAX, Holder, Receipt, admit, cancel, steer
from berth.schemas.facts import JobSeen
from berth.schemas.intake import JobCancel, JobRequest, JobSteer, Preemption, Task
from berth.schemas.ledger import Settings
from berth.schemas.refusal import Refusal
from tests.support.cells import a_job

SETTINGS = Settings()
RECEIPT = Receipt(intake_seq=7, after_seq=5, at_ms=70)
LATER = Receipt(intake_seq=9, after_seq=7, at_ms=90)


def accepted(request: JobRequest | None = None) -> JobSeen:
    return admit(request or a_job("j"), RECEIPT, Holder(), SETTINGS)


def test_a_sound_request_is_accepted_with_its_place_in_the_queue() -> None:
    job = accepted()
    assert (job.state, job.uid, job.intake_seq, job.accepted_seq, job.after_seq) == ("accepted", "uid-j", 7, 7, 5)
    assert job.request == a_job("j")
    assert job.at_ms == 70


def test_a_request_without_a_uid_gets_one_from_its_sequence() -> None:
    assert accepted(a_job("j", uid="")).uid == "intake-7"


def test_an_unsound_request_is_rejected_with_the_reason() -> None:
    job = accepted(a_job("j", chips=9))
    assert (job.state, job.accepted_seq) == ("rejected", 0)
    assert job.refusal is not None
    assert job.refusal.field == "tasks[0].chips"


def test_a_rejected_request_may_be_repaired_under_the_same_uid() -> None:
    wrong = accepted(a_job("j", chips=9))
    job = admit(a_job("j"), LATER, Holder(wrong, is_over=True), SETTINGS)
    assert (job.state, job.accepted_seq, job.refusal) == ("accepted", 9, None)


def test_a_name_in_use_stays_with_its_job_and_the_newcomer_is_noted_beside_it() -> None:
    known = accepted()
    job = admit(a_job("j", uid="other"), LATER, Holder(known, is_over=False), SETTINGS)
    assert (job.uid, job.state, job.request, job.accepted_seq) == ("uid-j", "accepted", known.request, 7)
    assert (job.intake_seq, job.after_seq) == (9, 7)
    assert job.rejection is not None
    assert (job.rejection.uid, job.rejection.intake_seq, job.rejection.at_ms) == ("other", 9, 90)
    assert (job.rejection.refusal.code, job.rejection.refusal.value) == ("name-in-use", "default/j")
    assert "uid uid-j" in job.rejection.refusal.expected


def test_a_name_is_free_when_its_job_is_over() -> None:
    job = admit(a_job("j", uid="other"), LATER, Holder(accepted(), is_over=True), SETTINGS)
    assert (job.uid, job.state, job.accepted_seq, job.rejection) == ("other", "accepted", 9, None)


def test_an_update_of_a_waiting_job_keeps_its_place_and_clears_an_old_rejection() -> None:
    beside = admit(a_job("j", uid="other"), LATER, Holder(accepted(), is_over=False), SETTINGS)
    job = admit(a_job("j", chips=4), Receipt(11, 9, 110), Holder(beside, is_over=False), SETTINGS)
    assert (job.accepted_seq, job.intake_seq, job.at_ms, job.rejection) == (7, 11, 70, None)
    assert job.request is not None
    assert job.request.tasks[0].chips == 4


def test_the_same_request_again_changes_nothing_but_the_sequence() -> None:
    known = accepted()
    for holder in (Holder(known, is_over=False), Holder(known, is_over=False, is_placed=True), Holder(known)):
        job = admit(a_job("j"), LATER, holder, SETTINGS)
        assert job == msgspec.structs.replace(known, intake_seq=9, after_seq=7)


def test_another_request_under_the_uid_of_a_job_that_is_over_changes_nothing() -> None:
    known = accepted()
    job = admit(a_job("j", chips=4), LATER, Holder(known, is_over=True), SETTINGS)
    assert job.request == known.request


def test_a_cancelled_job_is_not_revived_by_its_own_uid() -> None:
    gone = cancel(JobCancel("default", "j"), LATER, Holder(accepted(), is_over=False))
    assert gone is not None
    job = admit(a_job("j", chips=4), Receipt(11, 9, 110), Holder(gone, is_over=True), SETTINGS)
    assert (job.state, job.intake_seq) == ("cancelled", 11)


def test_a_placed_job_cannot_be_changed() -> None:
    job = admit(a_job("j", chips=4), LATER, Holder(accepted(), is_over=False, is_placed=True), SETTINGS)
    assert job.request == a_job("j")
    assert job.rejection is not None
    assert (job.rejection.refusal.field, job.rejection.refusal.value) == ("uid", "uid-j")


def test_queue_and_priority_of_a_placed_job_may_change_for_its_next_attempt() -> None:
    moved = msgspec.structs.replace(a_job("j"), queue="other", priority=9)
    job = admit(moved, LATER, Holder(accepted(), is_over=False, is_placed=True), SETTINGS)
    assert job == msgspec.structs.replace(accepted(), intake_seq=9, after_seq=7, request=moved)


def test_what_a_placed_job_says_of_preemption_may_change() -> None:
    known = msgspec.structs.replace(
        accepted(), request=msgspec.structs.replace(a_job("j"), annotations={"sp-fit": "x"})
    )
    said = {"volcano.sh/preemptable": "false", "berth/preempt-notice-s": "30"}
    preemption = Preemption(preemptable=False, notice_s=30, ignored=["this has no effect"])
    changed = msgspec.structs.replace(
        a_job("j"), annotations={"sp-fit": "x"} | said, labels={"volcano.sh/cooldown-time": "5m"}, preemption=preemption
    )
    job = admit(changed, LATER, Holder(known, is_over=False, is_placed=True), SETTINGS)
    assert (job.request, job.rejection, job.warnings) == (changed, None, ["this has no effect"])
    other = msgspec.structs.replace(changed, annotations={"sp-fit": "y"} | said)
    job = admit(other, LATER, Holder(known, is_over=False, is_placed=True), SETTINGS)
    assert job.request == known.request
    assert job.rejection is not None
    assert "but for queue, priority and preemption" in job.rejection.refusal.expected


def test_an_unsound_update_leaves_the_waiting_job_as_it_is() -> None:
    job = admit(a_job("j", chips=9), LATER, Holder(accepted(), is_over=False), SETTINGS)
    assert (job.state, job.request) == ("accepted", a_job("j"))
    assert job.rejection is not None
    assert job.rejection.refusal.field == "tasks[0].chips"


def test_a_uid_that_another_job_has_is_turned_away_and_not_taken_over() -> None:
    job = admit(a_job("k", uid="uid-j"), LATER, Holder(namesake=("default", "j")), SETTINGS)
    assert (job.state, job.uid, job.name) == ("rejected", "intake-9", "k")
    assert job.refusal is not None
    assert (job.refusal.field, job.refusal.value) == ("uid", "uid-j")
    assert "default/j" in job.refusal.expected


def test_a_uid_of_a_job_in_another_namespace_is_turned_away_without_the_name_of_that_job() -> None:
    job = admit(a_job("k", uid="uid-j"), LATER, Holder(namesake=("other", "secret")), SETTINGS)
    assert job.refusal is not None
    assert job.refusal.expected == "another uid: a job of another namespace has this one"


def test_a_gang_larger_than_any_record_is_turned_away() -> None:
    job = accepted(a_job("j", tasks=[Task("worker", 100_000, 8)]))
    assert job.state == "rejected"
    assert job.refusal is not None
    assert (job.refusal.code, job.refusal.value) == ("larger-than-round", "100000 pods")
    assert "7200000" in job.refusal.expected


def test_a_waiting_or_placed_job_is_cancelled_with_the_reason() -> None:
    for holder in (Holder(accepted(), is_over=False), Holder(accepted(), is_over=False, is_placed=True)):
        job = cancel(JobCancel("default", "j", reason="not needed"), LATER, holder)
        assert job is not None
        assert (job.state, job.uid, job.reason, job.accepted_seq) == ("cancelled", "uid-j", "not needed", 7)
        assert (job.intake_seq, job.after_seq, job.at_ms) == (9, 7, 90)


def test_only_the_job_that_is_meant_is_cancelled() -> None:
    holder = Holder(accepted(), is_over=False)
    assert cancel(JobCancel("default", "j", uid="uid-j"), LATER, holder) is not None
    assert cancel(JobCancel("default", "j", uid="other"), LATER, holder) is None


def test_there_is_nothing_to_cancel_where_nobody_waits_or_runs() -> None:
    rejected = accepted(a_job("j", chips=9))
    gone = cancel(JobCancel("default", "j"), LATER, Holder(accepted(), is_over=False))
    for holder in (Holder(), Holder(rejected), Holder(gone), Holder(accepted(), is_over=True)):
        assert cancel(JobCancel("default", "j"), LATER, holder) is None


@pytest.mark.parametrize(("more", "code"), [(0, None), (1, "larger-than-round")])
def test_a_gang_is_as_large_as_a_record_holds_and_no_larger(more: int, code: str | None) -> None:
    """A pod with 16 chips takes 80 bytes."""
    pods = RECORD_BYTES_MAX // 80
    assert pods * 80 == RECORD_BYTES_MAX
    job = accepted(a_job("j", product="module910bx16", chips=16, replicas=pods + more))
    assert (job.refusal.code if job.refusal is not None else None) == code, job.refusal


def test_a_request_above_a_bound_is_rejected_and_is_not_kept() -> None:
    job = accepted(a_job("j", annotations={f"key-{number}": "" for number in range(16_000)}))
    assert (job.state, job.request, job.warnings) == ("rejected", None, [])
    assert job.refusal is not None
    assert (job.refusal.code, job.refusal.field, job.refusal.value) == ("too-large", "annotations", "16000 annotations")


def test_a_request_for_which_too_many_wait_is_rejected_unless_it_is_wrong_anyway() -> None:
    crowd = Refusal("too-many", field="namespace", value="full", expected="fewer")
    job = admit(a_job("j"), RECEIPT, Holder(), SETTINGS, crowd)
    assert (job.state, job.refusal) == ("rejected", crowd)
    wrong = admit(a_job("j", chips=9), RECEIPT, Holder(), SETTINGS, crowd)
    assert wrong.refusal is not None
    assert wrong.refusal.field == "tasks[0].chips"


def test_a_larger_request_of_a_job_that_waits_is_refused_beside_it_where_too_many_wait() -> None:
    crowd = Refusal("too-many", field="namespace", value="full", expected="fewer")
    job = admit(a_job("j", replicas=9), LATER, Holder(accepted(), is_over=False), SETTINGS, crowd)
    assert (job.state, job.request) == ("accepted", a_job("j"))
    assert job.rejection is not None
    assert job.rejection.refusal == crowd


def test_keys_that_are_probably_misspelled_are_in_the_verdict_as_they_are_now() -> None:
    first = accepted(a_job("j", labels={"tor-afinity": "normal-schema"}))
    assert first.warnings == ["label 'tor-afinity' is not known, and is close to 'tor-affinity'"]
    second = admit(a_job("j", chips=2), LATER, Holder(first, is_over=False), SETTINGS)
    assert (second.request, second.warnings) == (a_job("j", chips=2), [])


def test_of_a_long_reason_of_a_cancellation_the_beginning_is_kept() -> None:
    job = cancel(JobCancel("default", "j", reason="x" * 50_000), LATER, Holder(accepted(), is_over=False))
    assert job is not None
    assert job.reason == "x" * 1_000


def test_a_request_that_is_refused_is_not_kept_where_there_is_no_room_for_it() -> None:
    wrong, full = a_job("j", chips=9), Refusal(code="too-many")
    kept, dropped = (admit(wrong, LATER, Holder(), SETTINGS, other) for other in (None, full))
    assert kept.refusal == dropped.refusal
    assert kept.refusal is not None
    assert (kept.request, dropped.request) == (wrong, None)


def test_a_job_that_waits_is_held_and_keeps_its_place_in_the_queue() -> None:
    job = steer(JobSteer("default", "j", "uid-j", held=True, by="ops"), LATER, Holder(accepted(), is_over=False))
    assert job is not None
    assert job.hold is not None
    assert (job.accepted_seq, job.intake_seq, job.after_seq, job.hold.at_ms) == (7, 9, 7, 90)
    again = admit(a_job("j", replicas=2), LATER, Holder(job, is_over=False), SETTINGS)
    assert again.hold == job.hold, "another request of the same job is held as well"


@pytest.mark.parametrize(
    "holder",
    [
        Holder(),
        Holder(accepted(), is_over=True),
        Holder(accepted(), is_over=False, is_placed=True),
        Holder(accepted(a_job("j", uid="other")), is_over=False),
        Holder(msgspec.structs.replace(accepted(), state="cancelled"), is_over=False),
    ],
    ids=["none", "over", "placed", "another", "cancelled"],
)
def test_what_does_not_wait_is_not_held(holder: Holder) -> None:
    assert steer(JobSteer("default", "j", "uid-j", held=True), LATER, holder) is None
