"""The life of gangs: pods are replaced, requests end, and processes start anew."""

from typing import Any

import msgspec
import pytest

from berth.formats.kube_owners import OwnerKey
from schemas.facts import JobSeen, Rejection
from schemas.refusal import Refusal
from services.inventory.gang_settings import GangSettings
from services.inventory.gangs import Gangs
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, facts_of, members, requested, running

RS = ("apps/v1", "ReplicaSet", "web", "rs-1")


# Pods that are replaced


@pytest.mark.parametrize("phase", ["waiting", "placed"])
def test_a_pod_that_is_replaced_before_it_was_bound_gives_its_rank_to_the_new_one(phase: Any) -> None:  # noqa: ANN401
    world = requested()
    uid = world.requests[BASE].uid
    world.status(BASE, phase)
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 3: "p-3"}
    world.pods(a_pod("p-9", group="pg"))
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-9", 3: "p-3"}
    assert world.ranks(BASE)["p-9"] == "2"
    assert world.members[BASE].uid == uid
    assert len(world.published) == 1


def test_only_a_pod_that_asks_for_the_same_takes_over() -> None:
    world = requested()
    world.gangs.drop_pod("uid-p-2")
    world.pods(a_pod("p-9", group="pg", chips=4))
    world.settle()
    assert 2 not in world.standing(BASE)
    uid = world.requests[BASE].uid
    world.settle(after_s=30)
    assert world.withdrawn == [(BASE, uid, "1 of its 4 pods are gone")]
    assert [task.chips for task in world.requests[BASE].tasks] == [8, 4]


def test_a_pod_that_was_bound_and_comes_again_is_a_request_of_its_own() -> None:
    world = running()
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    assert world.standing(BASE)[2] == "p-2"  # it stays until the request is over
    world.pods(a_pod("p-9", group="pg"))
    world.settle()
    (name,) = [name for name in world.requests if name != BASE]
    assert world.standing(name) == {0: "p-9"}
    assert world.ranks(name) == {"p-9": "4"} or world.ranks(name) == {"p-9": "2"}


def test_pods_of_an_attempt_that_is_undone_wait_for_the_next_attempt() -> None:
    world = requested()
    world.status(BASE, "placed")
    world.pods(*members(2, node="n1"))
    world.outcome(BASE, "failed")
    world.settle()
    for index in range(2):  # the binder removes what it had bound, the controller makes new ones
        world.gangs.drop_pod(f"uid-p-{index}")
    world.pods(a_pod("p-8", group="pg"), a_pod("p-9", group="pg"))
    world.settle()
    world.status(BASE, "ending")
    world.settle()
    assert len(world.published) == 1
    world.status(BASE, "waiting", attempt=2)
    world.settle()
    assert world.standing(BASE) == {0: "p-8", 1: "p-9", 2: "p-2", 3: "p-3"}
    assert len(world.published) == 1


def test_pods_that_could_not_be_bound_while_the_others_run_are_requested_again() -> None:
    world = requested()
    world.status(BASE, "placed")
    world.pods(*members(3, node="n1", phase="Running"))
    world.outcome(BASE, failed=[3])
    world.status(BASE, "running")
    world.settle()
    (name,) = [name for name in world.requests if name != BASE]
    assert world.standing(name) == {0: "p-3"}


# Requests that end


def test_a_request_whose_pods_are_gone_is_taken_back_after_a_while() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle()
    assert world.standing(BASE) == {}
    assert world.gangs.next_due_ms() == world.now_ms + 30_000
    world.settle(after_s=29)
    assert world.withdrawn == []
    world.settle(after_s=1)
    assert world.withdrawn == [(BASE, uid, "its pods are gone")]
    assert world.members[BASE].pods == []
    assert world.gangs.next_due_ms() is None


def test_pods_of_a_job_that_starts_anew_are_a_whole_gang_again() -> None:
    world = running()
    uid = world.requests[BASE].uid
    for index in range(4):
        world.pods(a_pod(f"p-{index}", group="pg", node="n1", deleting=True))
    world.settle()
    world.pods(*(a_pod(f"p-{index}", uid=f"new-{index}", group="pg") for index in range(2)))
    world.settle()
    assert len(world.published) == 1  # the old ones are not over
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.status(BASE, "failed")
    world.settle()
    assert world.hold(BASE) == "2 of at least 4 pods are there"
    world.pods(*(a_pod(f"p-{index}", uid=f"new-{index}", group="pg") for index in range(2, 4)))
    world.settle()
    assert world.requests[BASE].uid != uid
    assert world.standing(BASE) == {index: f"p-{index}" for index in range(4)}


def test_pods_whose_request_failed_are_tried_again_later_and_ever_later() -> None:
    world = requested()
    for pause_s in (30, 60, 120):
        uid = world.requests[BASE].uid
        world.verdict(BASE)
        world.status(BASE, "failed", sentence="its pods could not be bound", code="bind-failed")
        world.settle()
        assert world.hold(BASE) == "its request failed: its pods could not be bound; it is tried again later"
        world.settle(after_s=pause_s - 1)
        assert world.requests[BASE].uid == uid
        world.settle(after_s=1)
        assert world.requests[BASE].uid != uid
    assert len({request.uid for request in world.published}) == 4


def test_a_request_that_was_cancelled_is_not_made_again_for_the_same_pods() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    world.status(BASE, "cancelled", sentence="by hand")
    world.settle()
    assert world.hold(BASE) == "its request was cancelled: by hand; delete the pods to have new ones tried"
    assert world.members[BASE].uid == uid
    world.verdict(BASE, "tombstone")
    world.settle(after_s=3_600)
    assert len(world.published) == 1
    world.gangs.drop_pod("uid-p-0")
    world.pods(a_pod("p-0", uid="new", group="pg"))
    world.settle()
    assert world.requests[BASE].uid != uid


def test_a_request_that_was_rejected_comes_again_when_its_group_says_something_else() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    world.verdict(BASE, "rejected", code="unsupported-policy")
    world.settle(after_s=100)
    assert len(world.published) == 1
    world.gangs.set_group(a_group("pg", annotations={"huawei.com/schedule_policy": "chip8-node8"}, version="2"))
    world.settle()
    assert world.requests[BASE].uid != uid
    assert world.requests[BASE].annotations["huawei.com/schedule_policy"] == "chip8-node8"


def test_a_name_that_somebody_else_has_is_not_insisted_on() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg"))
    world.pods(*members(4))
    world.settle()
    mine = world.requests[BASE]
    theirs = msgspec.structs.replace(mine, uid="theirs", origin="berth")
    turned_away = Rejection(mine.uid, 2, Refusal(code="name-in-use"), world.now_ms)
    world.gangs.note_job(
        JobSeen("ns", BASE, "theirs", "accepted", 2, at_ms=world.now_ms, request=theirs, rejection=turned_away)
    )
    world.settle()
    (name,) = [name for name in world.requests if name != BASE]
    assert name.startswith(f"{BASE}-")
    assert world.standing(name) == {index: f"p-{index}" for index in range(4)}
    assert world.members[BASE].pods == []


def test_a_uid_that_another_job_has_is_not_insisted_on() -> None:
    world = GangWorld()
    world.pods(a_pod("one"))
    world.settle()
    mine = world.requests["pod.one"]
    verdict = JobSeen("ns", "pod.one", "intake-7", "rejected", 7, at_ms=world.now_ms, request=mine)
    world.gangs.note_job(verdict)
    world.settle()
    world.settle(after_s=30)
    assert [request.name for request in world.published] == ["pod.one", "pod.one"]
    assert world.published[1].uid != mine.uid


def test_a_deployment_that_was_scaled_while_it_had_no_pods_is_read_again() -> None:
    world = GangWorld()
    key = OwnerKey("ReplicaSet", "ns", "web")
    world.pods(a_pod("w-1", owner=RS))
    world.settle()
    world.gangs.set_owner(key, facts_of(key, {"replicas": 2}))
    world.settle()
    assert world.hold("replicaset.web") == "1 of at least 2 pods are there"
    world.pods(a_pod("w-2", owner=RS))
    world.settle(after_s=60)
    assert world.looks == [key, key]
    assert not world.requests  # what was read is a minute old
    world.gangs.set_owner(key, facts_of(key, {"replicas": 3}))
    world.settle()
    assert world.hold("replicaset.web") == "2 of at least 3 pods are there"


# Restarts


def restarted(world: GangWorld) -> GangWorld:
    """The same cluster, seen by a process that starts anew."""
    after = GangWorld(world.settings)
    after.now_ms, after.requests, after.members = world.now_ms, dict(world.requests), dict(world.members)
    for name, seen in sorted(world.members.items()):
        after.gangs.restore(seen, world.job(name) if name in world.requests and seen.uid else None)
    return after


@pytest.mark.parametrize("pods_first", [True, False])
def test_after_a_restart_nothing_is_asked_for_again(pods_first: Any) -> None:  # noqa: ANN401
    world = running()
    world.pods(a_pod("p-9", group="pg"))
    world.settle()
    after = GangWorld()
    pods = [*members(4, node="n1", phase="Running"), a_pod("p-9", group="pg")]
    if pods_first:
        after.pods(*pods)
    after.gangs.set_group(a_group("pg"))
    for name, seen in world.members.items():
        after.gangs.restore(seen, world.job(name))
    after.pods(*pods)
    after.requests = dict(world.requests)
    after.status(BASE, "running")
    assert [effect for effect in after.settle() if type(effect).__name__ != "SetGroup"] == []


def test_after_a_restart_a_new_pod_takes_the_rank_of_one_that_went_meanwhile() -> None:
    world = requested()
    after = restarted(world)
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(2), a_pod("p-9", group="pg"), *members(1, 3))
    after.status(BASE, "waiting")
    after.settle()
    assert after.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-9", 3: "p-3"}
    assert after.ranks(BASE)["p-9"] == "2"
    assert after.published == []


def test_what_was_told_but_not_published_is_published_after_a_restart() -> None:
    world = requested()
    after = GangWorld()
    after.members = dict(world.members)
    after.gangs.restore(world.members[BASE], None)
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    assert after.published == [world.requests[BASE]]
    again = GangWorld()
    again.members = dict(world.members)
    again.gangs.restore(world.members[BASE], None)
    again.gangs.set_group(a_group("pg"))
    again.pods(*members(3))
    again.settle()
    assert again.withdrawn == [(BASE, world.requests[BASE].uid, "its pods are gone")]
    assert again.hold(BASE) == "3 of at least 4 pods are there"


def test_a_request_whose_pods_went_while_nobody_looked_is_taken_back() -> None:
    after = restarted(requested())
    after.settle()
    after.settle(after_s=30)
    assert [name for name, _, _ in after.withdrawn] == [BASE]
    assert after.members[BASE].pods == []


@pytest.mark.parametrize("chips_first", [True, False])
def test_a_request_whose_pods_are_known_to_be_gone_is_taken_back_after_a_restart(*, chips_first: bool) -> None:
    world = requested()
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle(after_s=10)
    assert world.members[BASE].pods == []
    after = restarted(world)
    if chips_first:
        after.status(BASE, "placed")
    after.settle()
    if not chips_first:
        after.status(BASE, "placed")
        after.settle()
    assert after.withdrawn == []
    after.settle(after_s=30)
    assert after.withdrawn == [(BASE, world.requests[BASE].uid, "its pods are gone")]
    after.status(BASE, "cancelled")
    assert after.settle(after_s=60) == []


def test_a_request_that_is_accepted_when_nobody_remembers_it_is_taken_back() -> None:
    world = requested()
    after = GangWorld()
    after.requests = dict(world.requests)
    after.settle()
    after.verdict(BASE)
    after.settle()
    after.settle(after_s=30)
    assert [name for name, _, _ in after.withdrawn] == [BASE]


@pytest.mark.parametrize("phase", ["succeeded", "cancelled", "failed"])
def test_a_request_that_is_over_and_has_no_pods_is_not_taken_up(phase: Any) -> None:  # noqa: ANN401
    world = requested()
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle()
    after = restarted(world)
    after.status(BASE, phase)
    assert after.settle() == []
    assert after.settle(after_s=60) == []


def test_a_cancelled_request_stays_cancelled_after_a_restart() -> None:
    world = requested()
    world.status(BASE, "cancelled")
    world.settle()
    after = GangWorld()
    after.gangs.restore(world.members[BASE], None)  # its name is forgotten already
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    assert [effect for effect in after.settle(after_s=60) if type(effect).__name__ != "SetGroup"] == []


def test_a_request_that_was_taken_back_just_before_a_restart_comes_again_when_its_group_is_let_in() -> None:
    world = requested()
    world.verdict(BASE)
    after = restarted(world)  # it died between taking the request back and telling of its pods
    after.gangs.set_group(a_group("pg", phase="Pending", version="2"))
    after.pods(*members(4))
    after.status(BASE, "cancelled", sentence="its PodGroup is Pending again")
    after.settle()
    assert "cancelled" not in after.hold(BASE)
    after.gangs.set_group(a_group("pg", phase="Inqueue", version="3"))
    after.settle()
    assert len(after.published) == 1
    assert after.published[0].uid != world.requests[BASE].uid
    assert len(after.published[0].tasks) == len(world.requests[BASE].tasks)


def test_a_request_that_failed_before_a_restart_comes_again_with_another_uid() -> None:
    world = requested()
    failed = world.job(BASE)
    after = GangWorld()
    after.requests = dict(world.requests)
    after.gangs.note_job(failed)
    after.status(BASE, "failed")
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    assert after.requests[BASE].uid != failed.uid


def test_a_request_whose_telling_was_lost_is_known_again_by_its_uid() -> None:
    world = requested()
    after = GangWorld()
    after.gangs.note_job(world.job(BASE))
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    after.settle()
    assert after.published == world.published


def test_a_hold_of_before_the_restart_goes_when_nothing_holds_any_more() -> None:
    world = GangWorld()
    world.pods(*members(4))
    world.settle()
    after = GangWorld()
    after.members = dict(world.members)
    after.gangs.restore(world.members[BASE], None)
    after.settle()
    assert after.members[BASE].pods == []


def test_equal_requests_of_two_runs_are_equal() -> None:
    first, second = requested(), requested()
    assert first.requests == second.requests
    assert msgspec.structs.replace(first.members[BASE], at_ms=0) == msgspec.structs.replace(
        second.members[BASE], at_ms=0
    )


def test_many_gangs_are_settled_in_time_proportional_to_what_was_touched() -> None:
    gangs = Gangs(GangSettings())
    for number in range(500):
        gangs.set_group(a_group(f"g{number}", least=2))
        for index in range(2):
            gangs.set_pod(a_pod(f"g{number}-{index}", group=f"g{number}"))
    assert sum(1 for effect in gangs.settle(1) if type(effect).__name__ == "Publish") == 500
    gangs.set_pod(a_pod("g7-0", group="g7", annotations={"predicate-time": "1"}))
    assert [type(effect).__name__ for effect in gangs.settle(2)] == ["Tell"]
    assert (gangs.parts, gangs.held) == (500, 0)
