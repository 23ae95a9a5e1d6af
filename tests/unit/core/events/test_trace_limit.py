"""How many jobs of a second have a trace."""

import pytest

from berth.core.events.trace_limit import TraceLimit
from berth.schemas.programs.events import JobEvent


def event(uid: str, phase: str, at_ms: int, *, final: bool = False) -> JobEvent:
    return JobEvent(
        id=f"{uid}/1/0/{phase}", namespace="team", name="j", uid=uid, attempt=1, step=0, phase=phase, at_ms=at_ms,
        final=final,
    )  # fmt: skip


@pytest.mark.parametrize("phase", ["accepted", "rejected"])
def test_the_first_jobs_of_each_second_have_a_trace(phase: str) -> None:
    limit = TraceLimit(2)
    times_ms = {"a": 1_000, "b": 1_500, "c": 1_600, "d": 1_999, "e": 2_000, "f": 2_001, "g": 2_002}
    left_out = [uid for uid, at_ms in times_ms.items() if limit.leaves_out(event(uid, phase, at_ms))]
    assert left_out == ["c", "d", "g"]


def test_a_clock_that_was_set_back_begins_a_second() -> None:
    limit = TraceLimit(1)
    times_ms = (9_000, 9_001, 2_000, 2_001)
    found = [limit.leaves_out(event(str(number), "accepted", at_ms)) for number, at_ms in enumerate(times_ms)]
    assert found == [False, True, False, True]


def test_a_job_is_left_out_whole_until_its_end() -> None:
    limit = TraceLimit(1)
    later = [("waiting", False), ("placed", False), ("bound", False), ("failed", True)]
    for uid, is_left_out in (("first", False), ("second", True)):
        assert limit.leaves_out(event(uid, "accepted", 1_000)) is is_left_out
    for phase, final in later:
        assert not limit.leaves_out(event("first", phase, 5_000, final=final))
        assert limit.leaves_out(event("second", phase, 5_000, final=final))
    assert not limit.leaves_out(event("second", "waiting", 6_000)), "what is over is forgotten"


def test_a_job_whose_first_event_was_not_seen_has_a_trace() -> None:
    limit = TraceLimit(1)
    limit.leaves_out(event("a", "accepted", 1_000))
    limit.leaves_out(event("b", "accepted", 1_000))
    assert not limit.leaves_out(event("c", "placed", 1_000))


def test_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth.core.events.trace_limit._LEFT_OUT_MAX", 2)
    limit = TraceLimit(1)
    for uid in "abcd":
        limit.leaves_out(event(uid, "accepted", 1_000))
    assert [uid for uid in "abcd" if limit.leaves_out(event(uid, "placed", 2_000))] == ["c", "d"]
