"""What stored events say of the time before a picture."""

import pytest

from berth.core.overview.hour_past import past_hour
from berth.schemas.programs.events import JobEvent
from berth.schemas.programs.replies import Rank


def event(uid: str, phase: str, at_ms: int, *, attempt: int = 1, further: str = "", **values: object) -> JobEvent:
    usual: dict[str, object] = {"step": 0, "source": "ledger", "final": phase in {"succeeded", "failed", "cancelled"}}
    return JobEvent(
        id=f"{uid}/{attempt}/0/{phase}{further}",
        namespace="team",
        name=uid,
        uid=uid,
        attempt=attempt,
        phase=phase,
        at_ms=at_ms,
        **(usual | values),  # type: ignore[arg-type]  # fields of an event
    )


def ranks(*chips: int) -> list[Rank]:
    return [Rank(rank=rank, node="n", chips=list(range(count))) for rank, count in enumerate(chips)]


def test_a_job_from_its_request_to_its_end() -> None:
    events = [
        event("a", "accepted", 10, attempt=0),
        event("a", "waiting", 11),
        event("a", "placed", 20, ranks=ranks(8, 8)),
        event("a", "bound", 21),
        event("a", "running", 22),
        event("a", "ending", 29),
        event("a", "succeeded", 30),
    ]
    past = past_hour(events, {}, 5, 40)
    assert past.steps == [(10, 0, 1), (20, 16, -1), (30, -16, 0)]
    assert [(one.at_ms, one.what) for one in past.events] == [(10, "waiting"), (20, "placed"), (30, "succeeded")]
    assert past.begin_ms == 5


@pytest.mark.parametrize(
    ("first", "steps"),
    [
        (event("a", "running", 10), []),
        (event("a", "placed", 10, ranks=ranks(4)), [(10, 4, -1)]),
        (event("a", "placed", 10, step=1, ranks=ranks(4)), []),
        (event("a", "waiting", 10), []),
        (event("a", "waiting", 10, further=".77"), []),
        (event("a", "waiting", 10, attempt=2), [(10, -4, 1)]),
        (event("a", "rejected", 10), []),
        (event("a", "cancelled", 10, source="facts"), [(10, 0, -1)]),
        (event("a", "cancelled", 10), [(10, -4, 0)]),
        (event("a", "failed", 10, sentence="no node is large enough"), [(10, 0, -1)]),
        (event("a", "failed", 10), [(10, -4, 0)]),
    ],
)
def test_what_a_job_was_before_follows_from_its_first_event(first: JobEvent, steps: list[tuple[int, int, int]]) -> None:
    assert past_hour([first], {"a": 4}, 5, 40).steps == steps


def test_a_recovery_keeps_the_chips() -> None:
    events = [event("a", "placed", 10, ranks=ranks(4)), event("a", "recovering", 20), event("a", "placed", 25, step=1)]
    assert past_hour(events, {}, 5, 40).steps == [(10, 4, -1)]


def test_the_time_begins_after_an_end_of_unknown_size() -> None:
    events = [
        event("a", "accepted", 10, attempt=0),
        event("b", "succeeded", 20),
        event("a", "placed", 30, ranks=ranks(2)),
    ]
    past = past_hour(events, {}, 5, 40)
    assert (past.begin_ms, past.steps) == (20, [(30, 2, -1)])


def test_what_is_older_or_later_than_the_picture_is_left_out() -> None:
    events = [event("a", "accepted", 4), event("b", "accepted", 6), event("c", "accepted", 41)]
    assert past_hour(events, {}, 5, 40).steps == [(6, 0, 1)]
