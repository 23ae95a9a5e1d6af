"""When jobs that wait are expected to start, how many are ahead, what holds the place, and why there is no answer."""

import msgspec
import pytest

from berth.core.expected.expectation import BEHIND_MAX, ExpectedStart, as_of, sentences
from berth.core.expected.forecast import Forecast
from berth.core.state.cell import State
from berth.core.state.holdings.held_places import Held
from berth.schemas.queues.queue import Queue
from berth.schemas.recovery import Awaited
from berth.schemas.units import rfc3339
from tests.support.cells import a_job
from tests.support.queue_cells import Shared, limits

MINUTE_MS = 60_000


def expected(cell: Shared, at_ms: int = 1_000) -> dict[str, ExpectedStart]:
    return {one.name: one for one in Forecast(cell.seat.state, at_ms).all()}


def starts(cell: Shared, at_ms: int = 1_000) -> dict[str, tuple[int, int]]:
    return {name: (one.earliest_ms, one.latest_ms) for name, one in expected(cell, at_ms).items()}


def a_cell(*queues: Queue, nodes: int = 2, policy: str = "skip") -> Shared:
    return Shared(nodes, *queues, policy=policy)


def test_a_job_starts_when_the_jobs_end_whose_nodes_it_needs() -> None:
    cell = a_cell()
    cell.submitted("first", "default", run_ms=5 * MINUTE_MS)
    cell.submitted("second", "default", run_ms=9 * MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("wide", "default", replicas=2, run_ms=MINUTE_MS)
    cell.submitted("small", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=2_000)
    found = expected(cell, 2_000)
    assert starts(cell, 2_000) == {
        "wide": (1_000 + 9 * MINUTE_MS, 1_000 + 9 * MINUTE_MS),
        "small": (1_000 + 5 * MINUTE_MS, 1_000 + 5 * MINUTE_MS),
    }
    assert (found["wide"].held_by, found["small"].held_by) == (["team/second", "team/first"], ["team/first"])
    small = found["small"]
    assert (small.position, small.chips_ahead, small.queue_position, small.queue_chips_ahead) == (2, 16, 2, 16)
    assert sentences(small, rfc3339, at_ms=2_000) == [
        "Expected start: 1970-01-01T00:05:01Z.",
        "Position 2, behind 1 job that waits for 16 chips; position 2 in queue default.",
        "It gets its place when team/first has ended.",
    ]


def test_run_times_that_were_learned_give_a_range() -> None:
    cell = a_cell(nodes=1)
    for number, minutes in enumerate((2, 4, 6, 8, 10, 12)):
        cell.seat.state.fold.run_times.note("team", f"train-{number}", 8, minutes * MINUTE_MS)
    cell.submitted("train-7", "default")
    cell.round(at_ms=1_000)
    cell.submitted("next", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=2_000)
    assert starts(cell, 2_000)["next"] == (1_000 + 4 * MINUTE_MS, 1_000 + 10 * MINUTE_MS)
    later_ms = 1_000 + 9 * MINUTE_MS
    assert starts(cell, later_ms)["next"] == (1_000 + 10 * MINUTE_MS, 1_000 + 12 * MINUTE_MS), "two ran so long"


def test_a_job_that_is_late_may_end_at_any_moment_and_the_latest_start_is_unknown() -> None:
    cell = a_cell(nodes=1)
    cell.submitted("late", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("next", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=2_000)
    at_ms = 5 * MINUTE_MS
    found = expected(cell, at_ms)["next"]
    assert (found.earliest_ms, found.latest_ms, found.ahead) == (at_ms, 0, "team/late")
    assert sentences(found, rfc3339, at_ms=at_ms)[0] == (
        "Expected start: now at the earliest; the latest is unknown because of team/late, which declares no end, or has"
        " run longer than it or its like."
    )


def test_nothing_is_guessed_of_a_job_that_declares_no_end_and_has_no_like() -> None:
    cell = a_cell()
    cell.submitted("service", "default")
    cell.submitted("train", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("wide", "default", replicas=2)
    cell.submitted("small", "default")
    cell.submitted("last", "default")
    cell.round(at_ms=2_000)
    found = expected(cell, 2_000)
    assert (found["wide"].code, found["wide"].ahead) == ("no-end", "team/service")
    assert (found["small"].code, found["small"].earliest_ms) == ("", 1_000 + MINUTE_MS)
    assert (found["last"].code, found["last"].ahead) == ("no-end", "team/service")


def test_a_job_that_no_node_takes_has_no_start() -> None:
    cell = a_cell()
    cell.submitted("huge", "default", replicas=3, run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    assert expected(cell)["huge"].code == "no-room"


def test_under_fifo_nothing_starts_before_what_is_ahead() -> None:
    for policy, start_ms in (("fifo", 1_000 + 9 * MINUTE_MS), ("skip", 1_000 + MINUTE_MS)):
        cell = a_cell(nodes=3, policy=policy)
        cell.submitted("first", "default", replicas=2, run_ms=9 * MINUTE_MS)
        cell.submitted("second", "default", run_ms=MINUTE_MS)
        cell.round(at_ms=1_000)
        cell.submitted("wide", "default", replicas=2, run_ms=MINUTE_MS)
        cell.submitted("small", "default", run_ms=MINUTE_MS)
        cell.round(at_ms=2_000)
        assert expected(cell, 2_000)["small"].earliest_ms == start_ms, policy


def test_a_limit_that_binds_frees_what_its_own_jobs_give_back() -> None:
    cell = a_cell(Queue("a", capability=limits(8)), Queue("b"), nodes=4)
    cell.submitted("one", "a", run_ms=7 * MINUTE_MS)
    cell.submitted("other", "b", run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("two", "a", run_ms=2 * MINUTE_MS)
    cell.submitted("three", "a", run_ms=MINUTE_MS)
    cell.submitted("four", "a", chips=8, replicas=2, run_ms=MINUTE_MS)
    cell.round(at_ms=2_000)
    found = expected(cell, 2_000)
    assert {name: one.earliest_ms for name, one in found.items()} == {
        "two": 1_000 + 7 * MINUTE_MS,
        "three": 1_000 + 9 * MINUTE_MS,
        "four": 0,
    }
    assert found["two"].limit is not None
    assert sentences(found["two"], rfc3339, at_ms=2_000)[-1] == (
        "Until then its queue does not let it in: queue a holds 8 of 8 huawei.com/Ascend910; the job asks for 8."
    )
    assert found["four"].code == "queue"
    assert found["four"].limit is not None
    assert found["four"].limit.code == "larger-than-capability"


def test_a_queue_that_is_full_of_jobs_without_an_end_gives_no_start() -> None:
    cell = a_cell(Queue("a", capability=limits(8)), nodes=4)
    cell.submitted("service", "a")
    cell.round(at_ms=1_000)
    cell.submitted("two", "a", run_ms=MINUTE_MS)
    cell.round(at_ms=2_000)
    found = expected(cell, 2_000)["two"]
    assert (found.code, found.ahead) == ("no-end", "team/service")


def test_a_closed_queue_gives_no_start_and_says_so() -> None:
    cell = a_cell(Queue("a", capability=limits(8), state="Closed"), nodes=4)
    cell.submitted("one", "a", run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    found = expected(cell)["one"]
    assert sentences(found, rfc3339, at_ms=1_000)[0] == (
        "Expected start: none, as its queue does not let it in: queue a is Closed."
    )


def test_jobs_far_behind_start_not_before_the_last_one_that_was_looked_for() -> None:
    cell = a_cell(nodes=1)
    for number in range(BEHIND_MAX + 3):
        cell.submitted(f"j{number:02}", "default", run_ms=MINUTE_MS)
    cell.round(at_ms=1_000)
    found = expected(cell, 2_000)
    assert found[f"j{BEHIND_MAX}"].earliest_ms == 1_000 + BEHIND_MAX * MINUTE_MS
    last = found[f"j{BEHIND_MAX + 1}"]
    assert (last.code, last.not_before_ms) == ("not-before", 1_000 + BEHIND_MAX * MINUTE_MS)


@pytest.mark.parametrize("policy", ["skip", "fifo", "conservative"])
@pytest.mark.parametrize("queue", ["a", "b"])
def test_a_job_that_is_asked_for_is_answered_as_if_it_had_been_submitted(policy: str, queue: str) -> None:
    cell = a_cell(Queue("a", capability=limits(8)), Queue("b"), nodes=2, policy=policy)
    cell.submitted("one", "a", run_ms=7 * MINUTE_MS)
    cell.submitted("other", "b", run_ms=3 * MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("wide", "b", replicas=2, run_ms=2 * MINUTE_MS)
    cell.submitted("two", "a", run_ms=2 * MINUTE_MS)
    cell.round(at_ms=2_000)
    request = msgspec.structs.replace(a_job("new", chips=8, queue=queue, run_ms=MINUTE_MS), namespace="team")
    asked = Forecast(cell.seat.state, 3_000).ask(request)
    cell.submitted("new", queue, run_ms=MINUTE_MS)
    stored = Forecast(cell.seat.state, 3_000).of("uid-new")
    assert stored is not None
    assert asked.earliest_ms
    assert asked == msgspec.structs.replace(stored, uid="")


def test_no_start_is_in_the_past() -> None:
    one = ExpectedStart("team", "one", "u", "default", 1, earliest_ms=5_000, latest_ms=9_000)
    later = as_of(one, 7_000)
    assert (later.earliest_ms, later.latest_ms) == (7_000, 9_000)


def test_a_forecast_changes_nothing_of_the_state() -> None:
    cell = a_cell(Queue("a", capability=limits(8)), nodes=2)
    cell.submitted("one", "a", run_ms=7 * MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("two", "a", run_ms=2 * MINUTE_MS)
    before = cell.seat.state.dump()
    Forecast(cell.seat.state, 3_000).all()
    assert cell.seat.state.dump() == before


def test_a_job_for_which_others_leave_starts_by_the_deadline_of_its_place() -> None:
    cell = a_cell(nodes=1)
    cell.submitted("victim", "default", run_ms=9 * MINUTE_MS)
    cell.round(at_ms=1_000)
    cell.submitted("high", "default", run_ms=MINUTE_MS, priority=9)
    cell.round(at_ms=2_000)
    state = cell.seat.state
    victim = cell.holding("victim")
    state.fold.held["uid-high"] = Held(
        "team", "high", "uid-high", 1, victim.placement, [0], 40_000, awaits=[Awaited(*victim.key)], lacks={0: 0xFF},
        is_reserved=True,
    )  # fmt: skip
    found = expected(cell, 3_000)["high"]
    assert (found.earliest_ms, found.latest_ms, found.held_by) == (3_000, 40_000, ["team/victim"])


def test_a_cell_without_nodes_answers_that_there_is_no_room() -> None:
    forecast = Forecast(State(), 1)
    assert forecast.all() == []
    assert forecast.ask(a_job("new", chips=8)).code == "no-room"
