"""Order of waiting gangs, and who sleeps."""

import msgspec

from berth.core.gangs import Gang
from berth.core.requests.gangs import gang_of
from berth.core.scheduling.gang_class import Sleep
from berth.core.scheduling.queue import Queue
from berth.core.state.waiting_dump import SleeperDump
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from tests.support.cells import a_job


def a_gang(name: str, seq: int = 1, *, chips: int = 1, priority: int = 0, replicas: int = 1, uid: str = "") -> Gang:
    request = a_job(name, chips=chips, replicas=replicas, priority=priority)
    job = JobSeen("default", name, uid or name, "accepted", seq, seq, request=request)
    return gang_of(job, request, attempt=1, settings=Settings())


def a_queue(*gangs: Gang) -> Queue:
    queue = Queue()
    for gang in gangs:
        queue.put(gang)
    return queue


def taken(queue: Queue, *, gangs_max: int = 100, bytes_max: int = 10**6) -> list[str]:
    return [gang.uid for gang in queue.take(gangs_max=gangs_max, bytes_max=bytes_max)]


def test_priority_comes_first_and_then_age_across_classes() -> None:
    queue = a_queue(
        a_gang("late", 9), a_gang("large", 5, chips=8), a_gang("first", 1), a_gang("vip", 8, chips=4, priority=3)
    )
    assert taken(queue) == ["vip", "first", "large", "late"]
    assert taken(queue) == ["vip", "first", "large", "late"], "taking takes nothing out"


def test_a_round_is_bounded_by_gangs_and_by_bytes_and_holds_one_gang_at_least() -> None:
    gangs = [a_gang(f"g{number}", number, replicas=10) for number in range(5)]
    queue = a_queue(*gangs)
    assert taken(queue, gangs_max=2) == ["g0", "g1"]
    assert taken(queue, bytes_max=3 * gangs[0].bytes_in_record) == ["g0", "g1", "g2"]
    assert taken(queue, bytes_max=1) == ["g0"]
    assert taken(Queue()) == []


def test_an_update_takes_the_place_that_its_order_says_and_leaves_no_double() -> None:
    queue = a_queue(*(a_gang(f"g{number}", number) for number in range(4)))
    queue.put(a_gang("g3", 3, priority=5))
    assert taken(queue) == ["g3", "g0", "g1", "g2"]
    queue.put(a_gang("g3", 3))
    queue.put(a_gang("g3", 3))
    assert taken(queue) == ["g0", "g1", "g2", "g3"]
    queue.put(a_gang("g1", 1, chips=8))
    assert taken(queue) == ["g0", "g1", "g2", "g3"]
    assert len(queue) == 4
    assert [gang.runs[0].chips for gang in queue.take(gangs_max=4, bytes_max=10**6)] == [1, 8, 1, 1]


def test_a_gang_that_left_is_not_taken_and_its_class_goes_with_the_last_one() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2), a_gang("c", 3, chips=8))
    for uid in ("a", "c", "unknown"):
        queue.remove(uid)
    assert taken(queue) == ["b"]
    assert "a" not in queue
    queue.remove("b")
    assert (len(queue), queue.has_work, taken(queue)) == (0, False, [])
    queue.put(a_gang("a", 1))
    assert taken(queue) == ["a"]


def test_many_updates_and_removals_keep_the_order() -> None:
    queue = Queue()
    for turn in range(5):
        for number in range(50):
            queue.put(a_gang(f"g{number}", number, priority=(number * 7 + turn) % 4))
        for number in range(turn, 50, 9):
            queue.remove(f"g{number}")
    waiting = [uid for uid in (f"g{number}" for number in range(50)) if uid in queue]
    expected = sorted(waiting, key=lambda uid: (-((int(uid[1:]) * 7 + 4) % 4), int(uid[1:])))
    assert taken(queue) == expected
    assert taken(queue, gangs_max=7) == expected[:7]


def test_a_refused_class_sleeps_until_something_helps_it() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2), a_gang("other", 3, chips=8))
    queue.refused("a", retry_at_ms=0)
    queue.refused("b", retry_at_ms=0)
    assert taken(queue) == ["other"]
    (small,) = queue.sleeping()
    assert queue.wake(lambda key: key != small, time_ms=10**12) == []
    assert queue.wake(lambda key: key == small, time_ms=0) == [(small, Sleep(0))]
    assert taken(queue) == ["a", "b", "other"]
    assert queue.woken == 1


def test_of_a_sleeping_class_only_those_without_a_verdict_are_taken() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.refused("a", retry_at_ms=0)
    assert taken(queue) == ["b"], "it was not in the round that refused its class"
    queue.refused("b", retry_at_ms=0)
    assert not queue.has_work
    queue.put(a_gang("new", 3))
    assert taken(queue) == ["new"]
    queue.put(a_gang("a", 1))
    assert taken(queue) == ["a", "new"], "an update has had no verdict"
    queue.remove("new")
    queue.remove("a")
    assert not queue.has_work


def test_a_class_that_waits_for_time_wakes_when_it_has_come() -> None:
    queue = a_queue(a_gang("a", 1))
    queue.refused("a", retry_at_ms=500)
    assert queue.waits_for_time
    assert queue.wake(lambda _: False, time_ms=499) == []
    assert [sleep for _, sleep in queue.wake(lambda _: False, time_ms=500)] == [Sleep(500)]
    assert not queue.waits_for_time


def test_a_class_that_was_woken_for_nothing_sleeps_as_before() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.refused("a", retry_at_ms=700)
    queue.put(a_gang("b", 2))
    before = queue.dump()
    ((key, sleep),) = queue.wake(lambda _: True, time_ms=0)
    assert taken(queue) == ["a", "b"]
    queue.restore_sleep(key, sleep)
    assert (queue.dump(), taken(queue), queue.waits_for_time) == (before, ["b"], True)
    queue.remove("a")
    queue.remove("b")
    queue.restore_sleep(key, sleep)
    assert not queue.has_work, "a class that is gone stays gone"


def test_who_sleeps_is_told_and_read() -> None:
    gangs = [a_gang("a", 1), a_gang("b", 2), a_gang("c", 3, chips=8), a_gang("d", 4, chips=4)]
    queue = a_queue(*gangs)
    for uid, retry_at_ms in (("a", 0), ("c", 900)):
        queue.refused(uid, retry_at_ms=retry_at_ms)
    known, sleeping = queue.dump()
    assert (known, sleeping) == (["a", "c"], [SleeperDump("a"), SleeperDump("c", 900)])
    again = a_queue(*(msgspec.structs.replace(gang, fresh=True) for gang in gangs))
    again.load([*known, "gone"], [*sleeping, SleeperDump("gone")])
    assert (again.dump(), taken(again), again.waits_for_time) == (queue.dump(), ["b", "d"], True)


def test_a_verdict_on_a_gang_that_left_puts_nobody_to_sleep() -> None:
    queue = a_queue(a_gang("a", 1))
    queue.refused("gone", retry_at_ms=0)
    assert taken(queue) == ["a"]


def test_one_gang_waits_under_a_name() -> None:
    queue = a_queue(a_gang("a", 1, uid="old"), a_gang("b", 2))
    queue.keep_only(("default", "a"), "old")
    assert taken(queue) == ["old", "b"]
    queue.keep_only(("default", "a"), "new")
    queue.keep_only(("default", "unknown"), "new")
    assert taken(queue) == ["b"]
