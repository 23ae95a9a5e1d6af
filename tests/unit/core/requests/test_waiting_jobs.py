"""How many jobs wait in a namespace, and which request is one too many."""

import msgspec
import pytest

from berth.core.requests.waiting_jobs import BYTES_A_JOB, WaitingJobs
from berth.schemas.facts import JobSeen, JobState
from berth.schemas.intake import BYTES, FROM_PODS, JobRequest
from berth.schemas.ledger import Settings
from tests.support.cells import a_job

TWO = Settings(waiting_jobs_max=2, waiting_pods_max=10)


def seen(request: JobRequest, state: JobState = "accepted") -> JobSeen:
    return JobSeen(request.namespace, request.name, request.uid, state, 1, request=request)


def waiting(*requests: JobRequest) -> WaitingJobs:
    found = WaitingJobs()
    found.replace(((one.namespace, one.name), seen(one), "") for one in requests)
    return found


def test_a_request_beyond_the_jobs_of_a_namespace_is_refused_and_others_are_not() -> None:
    jobs = waiting(a_job("a"), a_job("b"))
    refusal = jobs.refusal_of(a_job("c"), TWO)
    assert refusal is not None
    assert (refusal.code, refusal.field, refusal.value) == ("too-many", "namespace", "one with 2 waiting jobs")
    assert refusal.expected.startswith("at most 2 with this one (setting waiting_jobs_max)")
    assert jobs.refusal_of(a_job("c", namespace="other"), TWO) is None


def test_a_request_beyond_the_pods_of_a_namespace_is_refused() -> None:
    jobs = waiting(a_job("a", replicas=8))
    assert jobs.refusal_of(a_job("b", replicas=2), TWO) is None
    refusal = jobs.refusal_of(a_job("b", replicas=3), TWO)
    assert refusal is not None
    assert (refusal.code, refusal.value) == ("too-many", "one with 8 waiting pods")


def large(name: str, namespace: str = "default") -> JobRequest:
    return a_job(name, namespace=namespace, annotations={"a": "x" * (BYTES.most - 1000)})


def test_jobs_that_are_few_and_large_are_refused_by_their_bytes() -> None:
    most = Settings(waiting_jobs_max=2 * BYTES.most // BYTES_A_JOB)
    size = len(msgspec.msgpack.encode(large("a")))
    assert waiting(large("a")).refusal_of(large("b"), most) is None
    jobs = waiting(large("a"), large("b"))
    assert jobs.refusal_of(large("b"), most) is None, "in place of the one that waits"
    refusal = jobs.refusal_of(large("c"), most)
    assert refusal is not None
    assert (refusal.code, refusal.value) == ("too-many", f"one with {2 * size} bytes of jobs that wait or are kept")
    assert refusal.expected.startswith(f"at most {2 * BYTES.most} with this one")
    assert jobs.refusal_of(large("c", "other"), most) is None


def test_one_job_alone_may_be_as_large_as_any() -> None:
    assert waiting().refusal_of(large("a"), TWO) is None


def test_a_program_has_its_bound_over_all_namespaces() -> None:
    jobs = waiting(*(a_job("a", namespace=name, submitted_by="portal") for name in ("one", "two")))
    refusal = jobs.refusal_of(a_job("b", namespace="three", submitted_by="portal"), TWO)
    assert refusal is not None
    assert refusal.field == "identity"
    assert jobs.refusal_of(a_job("b", namespace="three", submitted_by="other"), TWO) is None


@pytest.mark.parametrize("state", ["cancelled", "rejected", "tombstone"])
def test_a_job_that_does_not_wait_any_more_has_no_place(state: JobState) -> None:
    jobs = waiting(a_job("a"), a_job("b"))
    jobs.note(("default", "a"), seen(a_job("a"), state), "")
    assert jobs.refusal_of(a_job("c"), TWO) is None


def test_a_job_that_is_placed_does_not_wait_and_waits_again_when_it_starts_anew() -> None:
    jobs, key = waiting(a_job("a"), a_job("b")), ("default", "a")
    jobs.note(key, seen(a_job("a")), "placed")
    assert jobs.refusal_of(a_job("c"), TWO) is None
    jobs.note(key, seen(a_job("a")), "waiting")
    assert jobs.refusal_of(a_job("c"), TWO) is not None


def test_another_request_of_a_job_that_waits_takes_its_place() -> None:
    jobs = waiting(a_job("a"), a_job("b", replicas=8))
    assert jobs.refusal_of(a_job("b", replicas=9), TWO) is None
    assert jobs.refusal_of(a_job("b", replicas=10), TWO) is not None


def test_ranks_that_a_running_gang_has_lost_have_room() -> None:
    jobs = waiting(a_job("a"), a_job("b"))
    assert jobs.refusal_of(a_job("c", origin=FROM_PODS, is_fragile=True), TWO) is None


def test_all_jobs_gone_leave_nothing() -> None:
    jobs = waiting(a_job("a", submitted_by="portal"))
    jobs.note(("default", "a"), None, "")
    assert (jobs._jobs, jobs._amounts) == ({}, {})


@pytest.mark.parametrize(("state", "phase"), [("rejected", ""), ("cancelled", ""), ("accepted", "succeeded")])
def test_large_jobs_that_are_over_count_until_their_names_are_free(state: JobState, phase: str) -> None:
    jobs, size = waiting(), len(msgspec.msgpack.encode(large("0")))
    most = Settings(waiting_jobs_max=2 * BYTES.most // BYTES_A_JOB)
    for number in range(5):
        assert jobs.refusal_of(large("c"), most) is None
        jobs.note(("default", str(number)), seen(large(str(number)), state), phase)
    assert jobs.refusal_of(a_job("small"), most) is None
    refusal = jobs.refusal_of(large("c"), most)
    assert refusal is not None
    counted = 5 * ((size - BYTES_A_JOB) // 4)
    assert (refusal.code, refusal.value) == ("too-many", f"one with {counted} bytes of jobs that wait or are kept")
    assert jobs.refusal_of(large("c", "other"), most) is None
    for number in range(5):
        jobs.note(("default", str(number)), None, "")
    assert jobs.refusal_of(large("c"), most) is None
    assert (jobs._jobs, jobs._amounts) == ({}, {})


def test_large_jobs_that_run_do_not_count() -> None:
    jobs = waiting(*(large(str(number)) for number in range(8)))
    for number in range(8):
        jobs.note(("default", str(number)), seen(large(str(number))), "placed")
    assert jobs.refusal_of(large("c"), TWO) is None
