"""Sleeping classes, held gangs and the head of the queue, where a class has fresh gangs and gangs with a verdict."""

from berth.core.scheduling.queue import Queue
from tests.unit.core.scheduling.test_queue import a_gang, a_queue, taken


def head_of(queue: Queue) -> str:
    head = queue.head()
    return head.uid if head is not None else ""


def test_a_class_of_which_only_fresh_gangs_are_left_wakes() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.refused("a", retry_at_ms=700)
    assert (len(queue.sleeping()), queue.waits_for_time) == (1, True)
    queue.remove("a")
    assert (queue.sleeping(), queue.waits_for_time, taken(queue)) == ([], False, ["b"])


def test_of_a_class_that_is_read_in_part_all_fresh_gangs_are_taken() -> None:
    queue = a_queue(*(a_gang(f"g{number}", number) for number in range(4)))
    queue.seen("g1")
    found = queue.take(gangs_max=9, bytes_max=10**6, most=lambda _: 1)
    assert [gang.uid for gang in found] == ["g0", "g2", "g3"]
    queue.seen("g0")
    queue.seen("g2")
    found = queue.take(gangs_max=9, bytes_max=10**6, most=lambda _: 2)
    assert [gang.uid for gang in found] == ["g0", "g1", "g3"]


def test_a_fresh_gang_of_a_sleeping_class_is_not_the_head() -> None:
    queue = a_queue(a_gang("fresh", 1), a_gang("refused", 2))
    queue.refused("refused", retry_at_ms=0)
    assert head_of(queue) == "refused"
    assert [gang.uid for gang in queue.waiting_for_room(held=True)] == ["refused"]


def test_a_gang_that_waits_for_another_cluster_is_not_the_head() -> None:
    queue = a_queue(a_gang("never", 1), a_gang("refused", 2, chips=8))
    queue.refused("never", retry_at_ms=0, never=True)
    assert head_of(queue) == ""
    queue.refused("refused", retry_at_ms=0)
    assert head_of(queue) == "refused"


def test_a_gang_of_a_class_that_sleeps_is_not_held_for_news() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.hold("a", retry_at_ms=700)
    assert (queue.is_holding, queue.retry_at_ms) == (True, 700)
    queue.refused("b", retry_at_ms=0)
    assert (queue.is_holding, queue.held, queue.retry_at_ms) == (False, [], 0)
    queue.hold("a", retry_at_ms=700)
    assert not queue.is_holding


def test_a_held_gang_that_leaves_unblocks_others_that_are_held() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.hold("a", retry_at_ms=0)
    queue.hold("b", retry_at_ms=0)
    assert queue.remove("a")


def test_the_last_held_gang_that_leaves_unblocks_none() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.hold("a", retry_at_ms=0)
    assert not queue.remove("a")


def test_in_strict_order_fresh_gangs_behind_the_first_that_waits_get_their_verdict() -> None:
    queue = Queue(strict=True)
    for gang in (a_gang("before", 1), a_gang("head", 2, chips=8), a_gang("known", 3), a_gang("fresh", 4)):
        queue.put(gang)
    queue.refused("head", retry_at_ms=0)
    queue.seen("known")
    assert taken(queue) == ["before", "fresh"]


def test_a_refused_gang_that_changes_to_a_class_of_its_own_sleeps_on() -> None:
    queue = a_queue(a_gang("a", 1))
    queue.refused("a", retry_at_ms=700)
    queue.move(a_gang("a", 1, chips=2))
    assert (taken(queue), len(queue.sleeping()), queue.waits_for_time) == ([], 1, True)
    queue.move(a_gang("a", 1, chips=4))
    assert (taken(queue), len(queue.sleeping())) == ([], 1)


def test_a_gang_under_keys_is_held_while_its_class_sleeps_and_wakes() -> None:
    queue = Queue(strict=True)
    for gang in (a_gang("a", 1), a_gang("b", 2)):
        queue.put(gang)
    queue.hold("a", retry_at_ms=0, keys=("/queue/a",))
    queue.refused("b", retry_at_ms=0)
    assert head_of(queue) == "b", "the gang that is held waits for no room"
    queue.wake(lambda _: True, time_ms=1)
    assert (taken(queue), [one.uid for one in queue.held]) == (["b"], ["a"])


def test_a_class_sleeps_for_none_of_the_gangs_that_are_held_under_keys() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.refused("b", retry_at_ms=0)
    queue.hold("a", retry_at_ms=0, keys=("/queue/a",))
    assert len(queue.sleeping()) == 1
    queue.remove("b")
    assert (queue.sleeping(), queue.has_work) == ([], False)


def test_a_gang_that_a_key_releases_gets_a_verdict_though_its_class_sleeps() -> None:
    queue = a_queue(a_gang("a", 1), a_gang("b", 2))
    queue.hold("a", retry_at_ms=0, keys=("/queue/a",))
    queue.refused("b", retry_at_ms=0)
    released = queue.release({"/queue/a": None}, is_news=False, time_ms=1)
    assert taken(queue) == ["a"]
    queue.hold_again(released[0])
    assert (taken(queue), [one.uid for one in queue.held]) == ([], ["a"])


def test_a_snapshot_names_a_sleeping_class_by_a_gang_that_is_not_held() -> None:
    gangs = [a_gang("a", 1), a_gang("b", 2)]
    queue = a_queue(*gangs)
    queue.refused("b", retry_at_ms=700)
    queue.hold("a", retry_at_ms=0, keys=("/queue/a",))
    known, sleeping = queue.dump()
    assert (known, [one.uid for one in sleeping]) == (["a", "b"], ["b"])
    other = a_queue(a_gang("a", 1), a_gang("b", 2))
    other.load(known, sleeping, queue.held)
    assert (other.dump(), other.held) == (queue.dump(), queue.held)
