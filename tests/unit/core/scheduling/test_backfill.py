"""Queue policies on a few nodes, with times worked out by hand. Nodes have 8 chips; all jobs fill whole nodes."""

from collections.abc import Sequence

import pytest

from berth.core.changes import Changes
from berth.core.explain.refusal_text import sentence
from berth.core.scheduling.queue import Queue
from berth.schemas.envelope import body_of, open_envelope
from berth.schemas.ledger import Round, Settings
from berth.schemas.recording import Entry
from berth.schemas.refusal import Refusal
from berth.schemas.workload import PlannedJob
from tests.support.simulations import a_plan, planned, run_of, times_s
from tests.unit.core.scheduling.test_queue import a_gang, a_queue, taken

FIFO = Settings(queue_policy="fifo")
EASY = Settings(queue_policy="easy", reserve_chips=16)
CONSERVATIVE = Settings(queue_policy="conservative", reserve_chips=16)


def job(
    name: str, at_s: int, run_s: int, nodes: int, *, declared_s: int | None = None, priority: int = 0
) -> PlannedJob:
    """A job that says how long it runs, unless told otherwise."""
    told_s = run_s if declared_s is None else declared_s
    return planned(name, at_s, run_s, 8, pods=nodes, declared_s=told_s, priority=priority)


def starts(settings: Settings, nodes: int, *jobs: PlannedJob) -> dict[str, float]:
    """When each job starts, in seconds."""
    _, timeline, _ = run_of(a_plan(*jobs, cluster=f"nodes={nodes}", settings=settings))
    return {name: start for name, (start, _) in times_s(timeline).items()}


def refusals(entries: Sequence[Entry], name: str) -> list[Refusal]:
    """What a job was told, one after another."""
    told: list[Refusal] = []
    for entry in entries:
        envelope = open_envelope(entry.data)
        if envelope.kind == Round.KIND:
            verdicts = body_of(envelope, Round).verdicts
            told += [one.refusal for one in verdicts if one.name == name and one.refusal is not None]
    return told


def codes(entries: Sequence[Entry], name: str) -> list[tuple[str, str, float]]:
    """Code, job ahead, and moment in seconds of what a job was told."""
    return [(one.code, one.ahead, one.start_ms / 1000) for one in refusals(entries, name)]


SMALL_BEHIND_LARGE = (job("a", 0, 100, 1), job("large", 10, 50, 2), job("short", 20, 30, 1), job("long", 21, 200, 1))


def test_fifo_starts_nobody_before_one_who_waits_ahead() -> None:
    plan = a_plan(*SMALL_BEHIND_LARGE, cluster="nodes=2", settings=FIFO)
    _, timeline, entries = run_of(plan)
    assert {name: start for name, (start, _) in times_s(timeline).items()} == {
        "a": 0, "large": 100, "short": 150, "long": 150,
    }  # fmt: skip
    assert codes(entries, "large") == [("no-room", "", 0)]
    assert codes(entries, "short") == [("behind", "team/large", 0), ("no-room", "", 0)], "then it is the first itself"
    assert codes(entries, "long") == [("behind", "team/large", 0)], "once, not at each turn"


def test_fifo_lets_the_next_go_when_the_head_leaves_or_another_becomes_head() -> None:
    gone = planned("large", 10, 50, 8, pods=2, cancel_s=30)
    assert starts(FIFO, 2, job("a", 0, 100, 1), gone, job("next", 20, 30, 1)) == {"a": 0, "large": -1, "next": 30}
    urgent = job("urgent", 15, 10, 2, priority=1)
    assert starts(FIFO, 2, job("a", 0, 100, 1), job("large", 10, 50, 2), job("next", 20, 30, 1), urgent) == {
        "a": 0, "urgent": 100, "large": 110, "next": 160,
    }  # fmt: skip


def test_skip_starts_whoever_fits() -> None:
    assert starts(Settings(), 2, *SMALL_BEHIND_LARGE) == {"a": 0, "large": 221, "short": 20, "long": 50} | {
        "large": 250
    }


def test_easy_starts_only_who_ends_before_the_large_one_begins() -> None:
    more = job("fits-again", 55, 45, 1)
    _, timeline, entries = run_of(a_plan(*SMALL_BEHIND_LARGE, more, cluster="nodes=2", settings=EASY))
    assert {name: start for name, (start, _) in times_s(timeline).items()} == {
        "a": 0, "large": 100, "short": 20, "long": 150, "fits-again": 55,
    }  # fmt: skip
    assert set(codes(entries, "large")) == {("no-room", "", 100)}, "who has the reservation is told its moment"
    assert ("reserved", "team/large", 100) in codes(entries, "long")
    told = [one for one in refusals(entries, "long") if one.code == "reserved"]
    assert [(one.nodes_fit, one.nodes_total, one.pods_need) for one in told] == [(1, 2, 1)]


def test_easy_starts_a_long_one_beside_the_reserved_room() -> None:
    jobs = (job("a", 0, 100, 2), job("large", 10, 50, 2), job("long", 20, 1000, 1))
    assert starts(EASY, 3, *jobs) == {"a": 0, "large": 100, "long": 20}


def test_easy_keeps_room_for_the_first_large_one_alone() -> None:
    jobs = (
        job("a", 0, 100, 2), job("first", 1, 50, 2), job("second", 2, 10, 3), job("long", 3, 1000, 1),
        job("short", 4, 140, 1),
    )  # fmt: skip
    found = starts(EASY, 3, *jobs)
    assert (found["first"], found["long"], found["second"]) == (100, 3, 1003)


def test_conservative_keeps_room_for_each_of_the_large_ones() -> None:
    jobs = (
        job("a", 0, 100, 2), job("first", 1, 50, 2), job("second", 2, 10, 3), job("long", 3, 1000, 1),
        job("short", 4, 140, 1),
    )  # fmt: skip
    _, timeline, entries = run_of(a_plan(*jobs, cluster="nodes=3", settings=CONSERVATIVE))
    assert {name: start for name, (start, _) in times_s(timeline).items()} == {
        "a": 0, "first": 100, "second": 150, "long": 160, "short": 4,
    }  # fmt: skip
    assert codes(entries, "first") == [("no-room", "", 100)]
    assert codes(entries, "second")[0] == ("no-room", "", 150)
    assert codes(entries, "long")[0] == ("reserved", "team/second", 150)


def test_conservative_keeps_no_more_reservations_than_it_may() -> None:
    jobs = (job("a", 0, 100, 2), job("first", 1, 50, 2), job("second", 2, 10, 3), job("long", 3, 1000, 1))
    one = Settings(queue_policy="conservative", reserve_chips=16, reserve_depth=1)
    assert starts(one, 3, *jobs) == starts(EASY, 3, *jobs)


def test_small_jobs_have_no_reservation() -> None:
    small = Settings(queue_policy="easy", reserve_chips=17)
    assert starts(small, 2, *SMALL_BEHIND_LARGE) == starts(Settings(), 2, *SMALL_BEHIND_LARGE)


def test_a_higher_priority_goes_before_a_reservation() -> None:
    urgent = job("urgent", 20, 1000, 1, priority=1)
    assert starts(EASY, 2, job("a", 0, 100, 1), job("large", 10, 50, 2), urgent)["urgent"] == 20


def test_who_is_late_is_expected_to_end_at_once_and_time_alone_wakes() -> None:
    # At 50 one node of those who run was to be free, at 60 two: then the large job needs the third no more.
    jobs = (
        job("a", 0, 200, 1, declared_s=50), job("b", 0, 200, 1, declared_s=60), job("large", 1, 10, 2),
        job("long", 2, 500, 1),
    )  # fmt: skip
    _, timeline, entries = run_of(a_plan(*jobs, cluster="nodes=3", settings=EASY))
    assert {name: start for name, (start, _) in times_s(timeline).items()} == {"a": 0, "b": 0, "long": 60, "large": 200}
    assert codes(entries, "long") == [("reserved", "team/large", 50)], "a moment that is now is no news"


def test_run_times_are_learned_from_the_like() -> None:
    # Nothing is declared. Two of one chip number have run 10 s, so a third is taken to run 10 s; the fourth kind is
    # unknown.
    learned = Settings(queue_policy="easy", reserve_chips=16, unknown_run_ms=100_000)
    jobs = (
        job("l1", 0, 10, 1, declared_s=0), job("l2", 10, 10, 1, declared_s=0), planned("hold", 20, 90, 2, pods=3),
        job("large", 30, 50, 2, declared_s=0), job("like", 40, 10, 1, declared_s=0), planned("unlike", 60, 10, 2, pods=3),
    )  # fmt: skip
    _, timeline, entries = run_of(a_plan(*jobs, cluster="nodes=2", settings=learned))
    found = {name: start for name, (start, _) in times_s(timeline).items()}
    assert codes(entries, "large")[0] == ("no-room", "", 120)
    assert (found["large"], found["like"]) == (110, 40)
    assert codes(entries, "unlike")[0] == ("reserved", "team/large", 120)


def test_a_reservation_below_leaf_switches_is_planned_with_their_policy() -> None:
    # The large job needs two nodes below one leaf. The free node below its leaf is not given away for longer than that
    # takes.
    large = planned("large", 1, 10, 8, pods=2, switch=True, declared_s=10)
    jobs = (job("a", 0, 100, 1), job("b", 0, 300, 1), job("c", 0, 300, 1), large, job("long", 2, 500, 1))
    _, timeline, _ = run_of(a_plan(*jobs, cluster="nodes=4,leaf=2", settings=EASY))
    found = {name: start for name, (start, _) in times_s(timeline).items()}
    assert (found["large"], found["long"]) == (100, 110)


def test_sentences_say_for_whom_room_is_kept_and_from_when_on() -> None:
    kept = Refusal("reserved", ahead="ml/llm", start_ms=1_700_003_600_000, nodes_fit=16, nodes_total=40)
    assert sentence(kept) == (
        "16 of 40 nodes fit, but room is reserved for ml/llm from 2023-11-14T23:13:20Z on, and this job would delay it"
    )
    own = Refusal("no-room", nodes_total=2, start_ms=1_700_003_600_000)
    assert sentence(own) == "0 of 2 nodes fit; room is reserved for it from 2023-11-14T23:13:20Z on"


def test_who_is_held_is_taken_again_only_when_all_are_let_go_and_a_dump_keeps_that() -> None:
    queue = a_queue(a_gang("one", 1), a_gang("two", 2), a_gang("big", 3, chips=8))
    queue.hold("one", retry_at_ms=700)
    queue.refused("big", retry_at_ms=0)
    assert (taken(queue), queue.has_work, queue.retry_at_ms) == (["two"], True, 700)
    queue.hold("two", retry_at_ms=0)
    assert (taken(queue), queue.has_work, queue.waits_for_time) == ([], False, True)
    again = a_queue(a_gang("one", 1), a_gang("two", 2), a_gang("big", 3, chips=8))
    again.load(*queue.dump(), queue.held)
    for one in (queue, again):
        assert (taken(one), one.has_work, one.release({}, is_news=False, time_ms=699)) == ([], False, [])
        assert [gang.uid for gang in one.waiting_for_room(held=False)] == ["big"]
        assert [gang.uid for gang in one.waiting_for_room(held=True)] == ["one", "two", "big"]
        assert one.remove("big"), "it may have blocked them"
        held = one.release({}, is_news=False, time_ms=700)
        assert taken(one) == ["one", "two"], "the wait of one is over"
        one.put(a_gang("two", 2, priority=1))
        for sleeper in held:
            one.hold_again(sleeper)
        assert taken(one) == ["two"], "who changed since then is new"


def test_who_is_held_under_a_key_is_taken_again_only_when_it_wakes_or_is_due() -> None:
    queue = a_queue(a_gang("any", 1), a_gang("key", 2), a_gang("due", 3), a_gang("sleeps", 4, chips=8))
    queue.hold("any", retry_at_ms=0)
    queue.hold("key", retry_at_ms=0, keys=("team", "other"))
    queue.hold("due", retry_at_ms=700, keys=("other",))
    queue.refused("sleeps", retry_at_ms=0)
    assert [gang.uid for gang in queue.waiting_for_room(held=True)] == ["any", "sleeps"], "no room is reserved for them"
    again = a_queue(a_gang("any", 1), a_gang("key", 2), a_gang("due", 3), a_gang("sleeps", 4, chips=8))
    again.load(*queue.dump(), queue.held)
    for one in (queue, again):
        woken = Changes(woken={"team": None})
        assert (one.may_release(Changes(queue_unblocked=True)), one.may_release(woken)) == (True, True)
        assert not one.may_release(Changes(woken={"nobody": None}))
        for _ in range(2):
            released = one.release(woken.woken, is_news=False, time_ms=699)
            assert taken(one) == ["key"]
            one.hold_again(*released)
            assert taken(one) == []
        one.release({}, is_news=True, time_ms=699)
        assert taken(one) == ["any"]
        one.release({}, is_news=False, time_ms=700)
        assert taken(one) == ["any", "due"]
        assert not one.may_release(Changes(queue_unblocked=True))


@pytest.mark.parametrize("chips", [0, 1])
def test_a_gang_that_is_held_is_no_work_in_strict_order(chips: int) -> None:
    queue = Queue(strict=True)
    queue.put(a_gang("held", 1, chips=chips))
    assert queue.has_work
    queue.hold("held", retry_at_ms=0, keys=("team",))
    assert (queue.has_work, taken(queue)) == (False, [])


def test_in_strict_order_nobody_behind_the_first_sleeper_is_taken_but_for_a_first_verdict() -> None:
    queue = Queue(strict=True)
    for gang in (a_gang("low", 1), a_gang("big", 2, chips=8), a_gang("late", 3), a_gang("huge", 0, chips=4)):
        queue.put(gang)
    queue.refused("huge", retry_at_ms=0, never=True)
    queue.refused("big", retry_at_ms=0)
    assert (taken(queue), queue.has_work) == (["low", "late"], True)
    head = queue.head()
    assert head is not None
    assert head.uid == "big"
    queue.seen("late")
    assert taken(queue) == ["low"]
    queue.remove("low")
    assert (taken(queue), queue.has_work) == ([], False)
    queue.remove("big")
    assert (taken(queue), queue.has_work, queue.head()) == (["late"], True, None)
