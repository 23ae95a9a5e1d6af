"""Holds, releases and priorities: what counts for whom."""

import msgspec
import pytest

from berth.core.requests.gangs import queue_order
from berth.core.requests.steering import steered, steering_error
from berth.schemas.facts import JobSeen
from berth.schemas.intake import Hold, JobSteer
from tests.support.cells import a_job

REQUEST = a_job("j", priority=5)
JOB = JobSeen("default", "j", "uid-j", "accepted", 7, 7, request=REQUEST)


def a_wish(**fields: object) -> JobSteer:
    return JobSteer(**{"namespace": "default", "name": "j", "uid": "uid-j", "by": "ops@host", **fields})  # type: ignore[arg-type]  # its fields


def after(wish: JobSteer, job: JobSeen = JOB) -> JobSeen:
    return steered(wish, job, intake_seq=9, after_seq=8, at_ms=90)


def test_a_hold_says_who_and_why_and_a_release_ends_it() -> None:
    held = after(a_wish(held=True, reason="no data yet"))
    assert held.hold == Hold("ops@host", "no data yet", 90)
    assert held.hold.words == "held by ops@host: no data yet"
    assert (held.intake_seq, held.after_seq, held.priority) == (9, 8, None)
    assert after(a_wish(held=False), held).hold is None
    assert after(a_wish(priority=1), held).hold == held.hold, "another wish leaves the hold as it is"


def test_a_priority_moves_the_job_in_the_queue_and_leaves_its_request() -> None:
    first = after(a_wish(priority=9))
    assert first.request == REQUEST
    assert queue_order(first, REQUEST) < queue_order(JOB, REQUEST)
    assert after(a_wish(held=True), first).priority == 9


def test_a_text_without_end_is_kept_in_part() -> None:
    held = after(a_wish(held=True, reason="r" * 5_000, by="b" * 5_000))
    assert held.hold is not None
    assert (len(held.hold.reason), len(held.hold.by)) == (1_000, 1_000)


@pytest.mark.parametrize("fields", [{"held": True}, {"priority": 1}, {"held": False, "priority": 1}])
def test_what_has_its_place_is_not_held_and_gets_no_priority(fields: dict[str, object]) -> None:
    assert "has its place already" in steering_error(a_wish(**fields), JOB, waits=False)
    assert steering_error(a_wish(**fields), JOB, waits=True) == ""


def test_a_job_with_a_place_may_be_released() -> None:
    assert steering_error(a_wish(held=False), JOB, waits=False) == ""


def test_a_program_may_only_lower_a_priority() -> None:
    low, high = a_wish(priority=4, program="portal"), a_wish(priority=5, program="portal")
    assert steering_error(low, JOB, waits=True) == ""
    assert steering_error(high, JOB, waits=True) == ""
    lowered = after(low)
    assert steering_error(high, lowered, waits=True) == (
        "has priority 4: a program may only lower it, an operator may set 5"
    )
    assert steering_error(a_wish(priority=99), lowered, waits=True) == ""


def test_what_an_operator_holds_a_program_does_not_release() -> None:
    release = a_wish(held=False, program="portal")
    held = after(a_wish(held=True))
    assert steering_error(release, held, waits=True) == "is held by ops@host: only an operator may release it"
    of_program = after(a_wish(held=True, program="other"))
    assert steering_error(release, of_program, waits=True) == ""
    assert steering_error(msgspec.structs.replace(release, program=""), held, waits=True) == ""
