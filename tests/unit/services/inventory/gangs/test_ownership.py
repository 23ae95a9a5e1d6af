"""Owners of gangs: a PodGroup of the same name and another uid is another owner."""

from collections.abc import Callable

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.owners import OwnerKey
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of, members, requested, running


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


def test_pods_that_run_for_a_deleted_podgroup_keep_their_request_and_count_for_no_other() -> None:
    world = running(4)
    uid = world.requests[BASE].uid
    deleted(world)
    world.settle()
    world.gangs.set_group(a_group("pg", uid="later", least=3))
    world.pods(*again(2))
    world.settle(after_s=60)
    assert world.withdrawn == []
    assert world.members[BASE].uid == uid
    assert world.standing(BASE) == {index: f"p-{index}" for index in range(4)}
    (held,) = [name for name, seen in world.members.items() if seen.hold]
    assert world.hold(held) == "2 of at least 3 pods exist"
    world.pods(*again(1, 2))
    world.settle()
    (name,) = [name for name in world.requests if name != BASE]
    assert world.requests[name].min_available == 3
    assert world.ranks(name) == {"p-0": "0", "p-1": "1", "p-2": "2"}
    drop_all(world)
    world.status(BASE, "failed")
    world.settle()
    assert world.members[BASE].pods == []
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
    assert world.hold(BASE) == "" or world.hold(BASE) == "PodGroup pg does not exist"


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


def test_after_a_restart_pods_that_run_for_a_deleted_podgroup_stay_its_own() -> None:
    world = running()
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members[BASE], world.job(BASE))
    after.gangs.set_group(a_group("pg", uid="later", least=3))
    after.pods(*members(4, node="n1", phase="Running"), *again(2))
    after.status(BASE, "running")
    after.outcome(BASE)
    after.settle(after_s=60)
    assert after.withdrawn == []
    assert after.members[BASE] == world.members[BASE]
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


# Controllers, which are read on demand


JOB = ("batch/v1", "Job", "train", "job-1")
THING = ("example.com/v1", "Thing", "train", "thing-1")
TRAIN = OwnerKey("Job", "ns", "train")
INDEXED = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}


def a_job_that_waits() -> GangWorld:
    world = GangWorld()
    world.pods(*(a_pod(f"t-{index}", owner=JOB) for index in range(2)))
    world.settle()
    assert world.looks == [TRAIN]
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1"))
    world.settle()
    world.verdict("job.train")
    world.status("job.train", "waiting")
    world.looks.clear()
    return world


def test_the_controller_is_read_as_soon_as_a_pod_is_missing_and_ever_later_again() -> None:
    world = a_job_that_waits()
    world.gangs.drop_pod("uid-t-1")
    world.settle()
    for pause_s in (1, 1, 2, 4, 8):
        assert world.looks == [TRAIN]
        world.looks.clear()
        world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1"))
        world.settle(after_s=pause_s - 0.1)
        assert world.looks == []
        world.settle(after_s=0.1)
    assert world.withdrawn == []
    world.pods(a_pod("t-9", owner=JOB))
    world.settle()
    assert world.standing("job.train") == {0: "t-0", 1: "t-9"}
    world.settle(after_s=30)
    assert world.gangs.next_due_ms() is None


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (None, "Job train does not exist"),
        ({"uid": "job-2"}, "Job train was deleted and created again"),
        ({"uid": "job-1", "deletionTimestamp": "2026-11-20T10:00:00Z"}, "Job train is being deleted"),
    ],
)
def test_a_request_ends_with_its_controller(found: dict[str, str] | None, why: str) -> None:
    world = a_job_that_waits()
    uid = world.requests["job.train"].uid
    world.gangs.drop_pod("uid-t-1")
    world.settle()
    facts = facts_of(TRAIN, dict(INDEXED), **found) if found is not None else None
    world.gangs.set_owner(TRAIN, facts, is_gone=found is None)
    world.settle()
    assert world.withdrawn == [("job.train", uid, why)]
    assert world.hold("job.train") == why
    world.gangs.drop_pod("uid-t-0")
    world.settle()
    assert world.members["job.train"].pods == []
    assert (world.gangs.parts, world.gangs.held, world.gangs.next_due_ms()) == (0, 0, None)


def test_a_controller_that_may_not_be_read_leaves_its_pods_the_time_to_come_again() -> None:
    world = a_job_that_waits()
    world.gangs.drop_pod("uid-t-1")
    world.settle()
    world.gangs.set_owner(TRAIN, None)
    world.settle(after_s=29)
    assert world.withdrawn == []
    world.settle(after_s=1)
    assert [reason for _, _, reason in world.withdrawn] == ["1 of its 2 pods is gone"]


def test_a_controller_that_is_made_again_is_read_again_for_its_new_pods() -> None:
    """What was read of the one before does not count: it may have had another size."""
    world = a_job_that_waits()
    for index in range(2):
        world.gangs.drop_pod(f"uid-t-{index}")
    later = (*JOB[:3], "job-2")
    world.pods(*(a_pod(f"t-{index}", uid=f"again-{index}", owner=later) for index in range(2)))
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["job train was deleted and created again"]
    assert world.looks == [TRAIN]
    assert len(world.published) == 1
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, INDEXED | {"parallelism": 3, "completions": 3}, uid="job-2"))
    world.settle()
    assert world.hold("job.train") == "2 of at least 3 pods exist"
    world.pods(a_pod("t-2", uid="again-2", owner=later))
    world.settle()
    assert world.requests["job.train"].min_available == 3


def test_orphans_of_a_controller_that_was_replaced_are_held() -> None:
    world = GangWorld()
    world.pods(a_pod("t-0", owner=JOB), a_pod("t-1", owner=JOB))
    world.settle()
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-2"))
    world.settle()
    assert world.hold("job.train") == "Job train was deleted and created again"
    assert not world.requests


def test_a_controller_that_nobody_can_read_is_known_to_be_gone_by_its_successor() -> None:
    world = GangWorld()
    world.pods(a_pod("t-0", owner=THING))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "waiting")
    world.gangs.drop_pod("uid-t-0")
    world.settle()
    assert world.withdrawn == []
    world.pods(a_pod("t-0", uid="again", owner=(*THING[:3], "thing-2"), chips=4))
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["thing train was deleted and created again"]
    assert [task.chips for task in world.published[-1].tasks] == [4]
    world.gangs.drop_pod("again")
    world.settle()
    world.settle(after_s=30)
    assert world.gangs.parts == 0
    assert world.gangs.next_due_ms() is None


def test_after_a_restart_a_controller_that_went_meanwhile_is_looked_for() -> None:
    world = a_job_that_waits()
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members["job.train"], world.job("job.train"))
    after.status("job.train", "waiting")
    after.settle()
    assert after.looks == [TRAIN]
    after.gangs.set_owner(TRAIN, None, is_gone=True)
    after.settle()
    assert [reason for _, _, reason in after.withdrawn] == ["Job train does not exist"]
    assert (after.gangs.parts, after.gangs.next_due_ms()) == (0, None)


# Groups that are read on demand


def test_a_coscheduling_group_that_is_made_again_begins_with_its_own_minimum() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "co"}
    key = OwnerKey("CoPodGroup", "ns", "co")
    world = GangWorld()
    world.pods(*(a_pod(f"c-{index}", labels=labels) for index in range(2)))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"minMember": 2}, uid="co-1"))
    world.settle()
    uid = world.requests["cosched.co"].uid
    world.verdict("cosched.co")
    world.status("cosched.co", "waiting")
    for index in range(2):
        world.gangs.drop_pod(f"uid-c-{index}")
    world.pods(*(a_pod(f"c-{index}", uid=f"again-{index}", labels=labels) for index in range(2)))
    world.looks.clear()
    world.settle()
    assert world.withdrawn == [("cosched.co", uid, "its pods were replaced")]
    assert (len(world.published), world.looks) == (1, [key])
    world.gangs.set_owner(key, facts_of(key, {"minMember": 3}, uid="co-2"))
    world.settle()
    world.settle()
    assert world.hold("cosched.co") == "" or world.hold("cosched.co") == "2 of at least 3 pods exist"
    assert len(world.published) == 1


def test_pods_that_run_for_a_coscheduling_group_count_for_no_later_one() -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "co"}
    key = OwnerKey("CoPodGroup", "ns", "co")
    world = GangWorld()
    world.pods(a_pod("c-0", labels=labels))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"minMember": 1}, uid="co-1"))
    world.settle()
    world.verdict("cosched.co")
    world.status("cosched.co", "placed")
    world.pods(a_pod("c-0", labels=labels, node="n1", phase="Running"))
    world.outcome("cosched.co")
    world.settle()
    assert world.members["cosched.co"].podgroup_uid == ""  # it names the PodGroup of Volcano only
    world.settle(after_s=60)
    world.pods(a_pod("c-1", labels=labels))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"minMember": 3}, uid="co-2"))
    world.settle()
    assert world.standing("cosched.co") == {0: "c-0"}


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
