"""Owners of gangs: a PodGroup of the same name and another uid is another owner."""

from collections.abc import Callable

import pytest

from berth.formats.kubernetes.objects import Pod
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, members, requested, running

FIRST = ("example.com/v1", "Thing", "train", "thing-1")
SECOND = ("example.com/v1", "Thing", "train", "thing-2")
FIRST_BASE = "thing.train"


def again(count: int, start: int = 0) -> list[Pod]:
    """Pods of the same names with other uids, as a user makes them who applies a manifest again."""
    return [a_pod(f"p-{index}", uid=f"again-{index}", group="pg") for index in range(start, start + count)]


def drop_all(world: GangWorld, count: int = 4) -> None:
    for index in range(count):
        world.gangs.drop_pod(f"uid-p-{index}")


def nothing_remains(world: GangWorld, pods: str, count: int) -> None:
    """When the PodGroup and its pods are deleted too, no request, fact or timer is left."""
    deleted(world)
    for index in range(count):
        world.gangs.drop_pod(f"{pods}-{index}")
    world.settle()
    assert (world.gangs.parts, world.gangs.held, world.gangs.next_due_ms()) == (0, 0, None)
    assert [seen.pods for seen in world.members.values() if seen.pods] == []


def deleted(world: GangWorld) -> None:
    world.gangs.drop_group("ns", "pg")


def deleting(world: GangWorld) -> None:
    world.gangs.set_group(a_group("pg", deleting=True, version="2"))


@pytest.mark.parametrize("end", [deleted, deleting])
@pytest.mark.parametrize("pods_first", [True, False])
def test_a_waiting_request_ends_at_once_with_its_podgroup(
    end: Callable[[GangWorld], None], *, pods_first: bool
) -> None:
    world = requested()
    uid = world.requests[BASE].uid
    if pods_first:
        drop_all(world)
        world.settle()
        end(world)
    else:
        end(world)
        drop_all(world)
    world.settle()
    assert world.withdrawn == [(BASE, uid, "PodGroup pg was deleted")]
    assert world.members[BASE].pods == []
    assert world.gangs.next_due_ms() is None
    assert world.gangs.parts == 0


def test_pods_that_outlive_their_podgroup_are_held_until_there_is_another() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    deleted(world)
    world.settle()
    assert world.withdrawn == [(BASE, uid, "PodGroup pg was deleted")]
    assert world.hold(BASE) == "PodGroup pg does not exist"
    assert world.members[BASE].uid == ""
    world.gangs.set_group(a_group("pg", uid="later", least=4))
    world.settle()
    assert world.requests[BASE].uid != uid
    assert world.members[BASE].podgroup_uid == "later"


@pytest.mark.parametrize("sight", ["one modification", "deleted and added", "with new pods", "before new pods"])
def test_a_podgroup_that_is_made_again_begins_with_its_own_minimum(sight: str) -> None:
    world = requested(4)
    uid = world.requests[BASE].uid
    assert world.members[BASE].podgroup_uid == "uid-pg"
    new = a_group("pg", uid="later", least=3, version="9")
    if sight == "deleted and added":
        deleted(world)
        world.settle()
    drop_all(world)
    if sight == "before new pods":
        world.gangs.set_group(new)
        world.settle()
    world.pods(*again(2))
    world.gangs.set_group(new)
    world.settle()
    assert [(name, by) for name, by, _ in world.withdrawn] == [(BASE, uid)]
    assert world.hold(BASE) == "2 of at least 3 pods exist"
    assert len(world.published) == 1
    world.pods(*again(1, 2))
    world.settle()
    assert world.requests[BASE].min_available == 3
    assert world.ranks(BASE) == {"p-0": "0", "p-1": "1", "p-2": "2"}
    assert world.members[BASE].podgroup_uid == "later"
    nothing_remains(world, "again", 3)


def test_new_pods_that_come_before_the_new_podgroup_take_no_place_of_the_old_request() -> None:
    world = requested(4)
    uid = world.requests[BASE].uid
    drop_all(world)
    world.pods(*again(2))
    world.settle()
    assert world.withdrawn == [(BASE, uid, "its pods were replaced")]
    assert world.hold(BASE) == "2 of at least 4 pods exist"
    world.gangs.set_group(a_group("pg", uid="later", least=2, version="9"))
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1"}


def test_pods_that_run_for_a_deleted_podgroup_keep_their_request_and_count_for_none_of_another_controller() -> None:
    world = running(4, owner=FIRST)
    uid = world.requests[FIRST_BASE].uid
    deleted(world)
    world.settle()
    world.gangs.set_group(a_group("pg", uid="later", least=3, owner=SECOND))
    world.pods(*again(2))
    world.settle(after_s=60)
    assert world.withdrawn == []
    assert world.members[FIRST_BASE].uid == uid
    assert world.standing(FIRST_BASE) == {index: f"p-{index}" for index in range(4)}
    (held,) = [name for name, seen in world.members.items() if seen.hold]
    assert world.hold(held) == "2 of at least 3 pods exist"
    world.pods(*again(1, 2))
    world.settle()
    (name,) = [name for name in world.requests if name != FIRST_BASE]
    assert world.requests[name].min_available == 3
    assert world.ranks(name) == {"p-0": "0", "p-1": "1", "p-2": "2"}
    drop_all(world)
    world.status(FIRST_BASE, "failed")
    world.settle()
    assert world.members[FIRST_BASE].pods == []
    assert world.gangs.parts == 1
    nothing_remains(world, "again", 3)


def test_a_placement_whose_pods_are_all_there_outlives_its_podgroup_and_one_that_lacks_pods_does_not() -> None:
    world = requested()
    world.status(BASE, "placed")
    deleted(world)
    world.settle()
    assert world.withdrawn == []
    assert len(world.standing(BASE)) == 4
    world.gangs.drop_pod("uid-p-1")
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["PodGroup pg was deleted"]
    (held,) = [seen for seen in world.members.values() if seen.hold]
    assert (held.hold, held.pods) == ("PodGroup pg does not exist", ["p-0", "p-2", "p-3"])


def test_pods_of_a_placement_that_have_a_node_outlive_their_podgroup() -> None:
    """A bound pod keeps its chips until it is gone, also while the binder has not reported the placement."""
    world = requested()
    world.status(BASE, "placed")
    world.pods(*members(2, node="n1"))
    deleted(world)
    world.gangs.drop_pod("uid-p-3")
    world.settle(after_s=60)
    assert world.withdrawn == []
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-2"}


def test_an_attempt_that_is_undone_after_the_podgroup_was_deleted_is_not_tried_again() -> None:
    world = requested()
    world.status(BASE, "placed")
    world.pods(*members(2, node="n1"))
    world.settle()
    deleted(world)
    world.settle()
    world.outcome(BASE, "failed")
    world.status(BASE, "ending")
    world.settle()
    assert world.withdrawn == []
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.status(BASE, "waiting", attempt=2)
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["PodGroup pg was deleted"]


def test_a_failure_of_the_old_request_does_not_delay_the_new_one() -> None:
    world = requested()
    world.status(BASE, "failed", sentence="its pods could not be bound", code="bind-failed")
    world.settle()
    assert world.hold(BASE).startswith("its request failed")
    drop_all(world)
    world.gangs.set_group(a_group("pg", uid="later", version="7"))
    world.pods(*again(4))
    world.settle()
    assert world.standing(BASE) == {index: f"p-{index}" for index in range(4)}
    assert len(world.published) == 2


def test_after_a_restart_a_podgroup_of_another_uid_takes_nothing_over() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members[BASE], world.job(BASE))
    after.gangs.set_group(a_group("pg", uid="later", least=3))
    after.pods(*again(2))
    after.status(BASE, "waiting")
    after.settle()
    assert after.withdrawn == [(BASE, uid, "PodGroup pg was deleted and created again")]
    assert after.hold(BASE) == "2 of at least 3 pods exist"
    assert after.published == []


def test_after_a_restart_pods_that_run_for_the_podgroup_of_another_controller_stay_its_own() -> None:
    world = running(owner=FIRST)
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members[FIRST_BASE], world.job(FIRST_BASE))
    after.gangs.set_group(a_group("pg", uid="later", least=3, owner=SECOND))
    after.pods(*members(4, node="n1", phase="Running"), *again(2))
    after.status(FIRST_BASE, "running")
    after.outcome(FIRST_BASE)
    after.settle(after_s=60)
    assert after.withdrawn == []
    assert after.members[FIRST_BASE] == world.members[FIRST_BASE]
    (held,) = [name for name, seen in after.members.items() if seen.hold]
    assert after.hold(held) == "2 of at least 3 pods exist"


def test_a_pod_alone_is_its_own_owner() -> None:
    world = GangWorld()
    world.pods(a_pod("one"))
    world.settle()
    uid = world.requests["pod.one"].uid
    world.verdict("pod.one")
    world.status("pod.one", "waiting")
    world.gangs.drop_pod("uid-one")
    world.settle()
    assert world.withdrawn == [("pod.one", uid, "pod one was deleted")]
    world.pods(a_pod("one", uid="again", chips=4))
    world.settle()
    assert [task.chips for task in world.requests["pod.one"].tasks] == [4]
    assert world.gangs.next_due_ms() is None


THING = ("example.com/v1", "Thing", "train", "thing-1")


def test_running_pods_whose_controller_is_taken_from_them_keep_their_request() -> None:
    """A controller deleted with ``--cascade=orphan``: the API server takes the owner reference from the pods."""
    world = GangWorld()
    world.pods(a_pod("t-0", owner=THING))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "placed")
    world.pods(a_pod("t-0", owner=THING, node="n1", phase="Running"))
    world.outcome(name)
    world.status(name, "running")
    world.settle()
    world.pods(a_pod("t-0", node="n1", phase="Running"))
    world.settle(after_s=60)
    assert world.withdrawn == []
    assert world.standing(name) == {0: "t-0"}


# What the owner says now


@pytest.mark.parametrize(("least", "pods"), [(4, 0), (2, 2)])
def test_a_minimum_that_changes_while_the_request_waits_counts(least: int, pods: int) -> None:
    world = requested(3)
    uid = world.requests[BASE].uid
    world.gangs.set_group(a_group("pg", least=least, version="2"))
    world.settle()
    assert world.withdrawn == [(BASE, uid, f"its minimum is now {least}, not 3")]
    if pods:
        assert world.requests[BASE].min_available == pods
    else:
        assert world.hold(BASE) == "3 of at least 4 pods exist"


def test_a_minimum_that_changes_when_the_gang_is_placed_changes_nothing() -> None:
    world = requested(3)
    world.status(BASE, "placed")
    world.gangs.set_group(a_group("pg", least=4, version="2"))
    world.settle()
    assert world.withdrawn == []
    assert len(world.standing(BASE)) == 3
