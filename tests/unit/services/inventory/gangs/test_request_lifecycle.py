"""The life of gangs: pods are replaced, and requests end."""

from typing import Any

import msgspec
import pytest

from berth.core.explain.refusal_text import sentence
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.facts import JobSeen, Rejection
from berth.schemas.refusal import Refusal
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
    uid = world.requests[BASE].uid
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    world.pods(a_pod("p-9", group="pg", chips=4))
    world.settle()
    why = "pod p-9 requests other resources than the pod that it replaces"
    assert world.withdrawn == [(BASE, uid, why)]
    assert world.requests[BASE].uid != uid
    assert [task.chips for task in world.requests[BASE].tasks] == [8, 4]


@pytest.mark.parametrize(
    ("annotations", "by"),
    [
        ({}, "another scheduler"),
        ({"berth/uid": "former", "berth/job": "podgroup.pg"}, "an earlier request (podgroup.pg)"),
    ],
)
def test_a_pod_that_is_bound_elsewhere_runs_on_and_the_others_are_requested_beside_it(
    annotations: dict[str, str], by: str
) -> None:
    """Each attempt of the request would fail because of it."""
    world = requested()
    uid = world.requests[BASE].uid
    world.status(BASE, "placed")
    world.pods(a_pod("p-1", group="pg", node="n9", phase="Running", annotations=annotations))
    world.settle()
    assert world.withdrawn == []  # the binder says what becomes of the attempt
    world.status(BASE, "waiting", attempt=2)
    world.settle()
    assert world.withdrawn == [(BASE, uid, f"pod p-1 is on node n9 already, bound by {by}")]
    again = [request.name for request in world.published[1:]]
    assert {pod for name in again for pod in world.standing(name).values()} == {"p-0", "p-2", "p-3"}
    assert {rank for name in again for rank in world.ranks(name).values()} == {"0", "1", "2"}


def test_pods_that_the_former_attempt_bound_withdraw_nothing() -> None:
    world = requested()
    marks = {"berth/uid": world.requests[BASE].uid, "berth/job": BASE, "berth/attempt": "1"}
    world.status(BASE, "placed")
    world.pods(a_pod("p-1", group="pg", node="n9", annotations=marks))
    world.status(BASE, "waiting", attempt=2)
    world.settle()
    assert world.withdrawn == []


def test_a_request_that_lost_a_pod_for_good_is_taken_back_after_a_while() -> None:
    world = requested()
    uid = world.requests[BASE].uid
    world.gangs.drop_pod("uid-p-2")
    world.settle()
    world.settle(after_s=29)
    assert world.withdrawn == []
    world.settle(after_s=1)
    assert world.withdrawn == [(BASE, uid, "1 of its 4 pods is gone")]
    assert world.hold(BASE) == "3 of at least 4 pods exist"


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
    assert world.hold(BASE) == "2 of at least 4 pods exist"
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
        assert world.hold(BASE) == "its request failed: its pods could not be bound; it is retried later"
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
    assert world.hold(BASE) == "its request was cancelled: by hand; delete the pods so that new ones are requested"
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


def test_pods_beyond_the_minimum_of_a_rejected_job_have_its_reason() -> None:
    world = requested(2)
    world.pods(*members(2, 2))
    world.settle()
    assert set(world.members) == {BASE}, "they wait for the first request"
    world.verdict(BASE, "rejected", code="unsupported-policy")
    world.settle()
    (name,) = set(world.members) - {BASE}
    surplus = world.members[name]
    assert (surplus.uid, surplus.pods) == ("", ["p-2", "p-3"])
    assert surplus.hold == f"its job was rejected: {sentence(Refusal(code='unsupported-policy'))}"
    world.verdict(BASE, "tombstone")
    world.settle(after_s=3_600)
    assert (world.members[name], list(world.requests)) == (surplus, [BASE])
    world.gangs.set_group(
        a_group("pg", least=4, annotations={"huawei.com/schedule_policy": "chip8-node8"}, version="2")
    )
    world.gangs.drop_pod("uid-p-0")
    world.settle()
    world.pods(*members(1))
    world.settle()
    assert world.members[name].pods == []
    assert sorted(world.standing(BASE).values()) == ["p-0", "p-1", "p-2", "p-3"]


def test_pods_beyond_the_minimum_of_a_cancelled_job_have_its_reason() -> None:
    world = requested(2)
    world.pods(*members(1, 2))
    world.status(BASE, "cancelled", sentence="by hand")
    world.settle()
    (name,) = set(world.members) - {BASE}
    assert world.members[name].pods == ["p-2"]
    assert world.hold(name) == world.hold(BASE) != ""


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
    assert world.hold("replicaset.web") == "1 of at least 2 pods exists"
    world.pods(a_pod("w-2", owner=RS))
    world.settle(after_s=60)
    assert world.looks == [key, key]
    assert not world.requests  # what was read is a minute old
    world.gangs.set_owner(key, facts_of(key, {"replicas": 3}))
    world.settle()
    assert world.hold("replicaset.web") == "2 of at least 3 pods exist"


def test_a_late_pod_is_requested_anew_when_its_gang_has_shrunk() -> None:
    """Some gangs wait for their size alone, such as those with more pods than a leaf has nodes."""
    world = GangWorld()
    key = OwnerKey("ReplicaSet", "ns", "web")

    def settle(replicas: int) -> list[str]:
        world.gangs.set_owner(key, facts_of(key, {"replicas": replicas}, uid="rs-1"))
        world.settle()
        return [request.annotations["berth/gang-pods"] for request in world.published[1:]]

    world.pods(*(a_pod(f"w-{index}", owner=RS) for index in range(3)))
    world.settle()
    settle(3)
    world.verdict("replicaset.web")
    world.status("replicaset.web", "placed")
    world.pods(*(a_pod(f"w-{index}", owner=RS) for index in (3, 4)))
    world.settle()
    assert settle(5) == ["5", "5"]
    for request in world.published[1:]:
        world.verdict(request.name)
        world.status(request.name, "waiting")
    assert settle(6) == ["5", "5"], "one that grows keeps its place in the queue"
    assert settle(5) == ["5", "5"]
    world.gangs.drop_pod("uid-w-4")
    settle(4)
    assert settle(4) == ["5", "5", "4"]
    gone = "its pod is gone, and no other one will be made"
    assert {why for _, _, why in world.withdrawn} == {"its size is now 4, not 5", gone}
    assert world.standing(world.published[-1].name) == {0: "w-3"}
