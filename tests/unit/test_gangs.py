"""The life of gangs: pods come and go, requests are answered, and each pod is asked for once."""

from typing import Any

import msgspec
import pytest

from berth.formats.kube_objects import Pod
from berth.formats.kube_owners import OwnerKey
from schemas.facts import JobSeen, Rejection
from schemas.refusal import Refusal
from services.inventory.gang_settings import GangSettings
from services.inventory.gangs import Gangs
from tests.support.gang_world import CHIPS, GangWorld, a_group, a_pod, facts_of

VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "llm", "ac-1")
RS = ("apps/v1", "ReplicaSet", "web", "rs-1")
BASE = "podgroup.pg"


def members(count: int, start: int = 0, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    return [a_pod(f"p-{index}", group="pg", **more) for index in range(start, start + count)]


def requested(count: int = 4, **group: Any) -> GangWorld:  # noqa: ANN401 - whatever a group can have
    """A gang of ``count`` pods that was requested."""
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=count, **group))
    world.pods(*members(count))
    world.settle()
    assert list(world.requests) == [BASE]
    world.verdict(BASE)
    world.status(BASE, "waiting")
    return world


def running(count: int = 4) -> GangWorld:
    """A gang of ``count`` pods that runs."""
    world = requested(count)
    world.status(BASE, "placed")
    world.pods(*members(count, node="n1", phase="Running"))
    world.outcome(BASE)
    world.status(BASE, "running")
    world.settle()
    return world


# Volcano PodGroups


def test_a_gang_is_requested_when_its_minimum_is_there() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*members(2))
    world.settle()
    assert world.hold(BASE) == "2 of at least 4 pods are there"
    assert world.members[BASE].uid == ""
    assert world.standing(BASE) == {0: "p-0", 1: "p-1"}
    world.pods(*members(2, 2))
    world.settle()
    request = world.requests[BASE]
    assert (request.origin, request.min_available, request.resource, request.queue) == ("pods", 4, CHIPS, "default")
    assert [(task.name, task.replicas, task.chips) for task in request.tasks] == [("worker", 4, 8)]
    assert request.annotations == {"berth/gang-pods": "4"}
    assert world.hold(BASE) == ""
    assert world.members[BASE].distributed
    assert world.members[BASE].podgroup == "pg"
    assert world.ranks(BASE) == {f"p-{index}": str(index) for index in range(4)}


def test_what_a_group_says_outranks_its_pods() -> None:
    world = GangWorld()
    group = a_group(
        "pg", least=2, owner=ACJOB, queue="gold", labels={"ring-controller.atlas": "ascend-910b"},
        annotations={"sp-block": "16", "huawei.com/schedule_enqueue_time": "5", "huawei.com/schedule_policy": "chip8-node8"},
    )  # fmt: skip
    world.gangs.set_group(group)
    for name, task, index, priority in (("m", "master", 0, 7), ("w", "worker", 1, 9)):
        labels = {
            "ring-controller.atlas": "ascend-910", "tor-affinity": f"{task}-schema", "fault-scheduling": "grace",
            "training.kubeflow.org/replica-type": task, "training.kubeflow.org/operator-name": "ascendjob-controller",
        }  # fmt: skip
        annotations = {
            "hccl/rankIndex": str(index),
            "huawei.com/schedule_policy": "chip4-node4",
            "sp-fit": "x",
            "own": "y",
        }
        spec = {"nodeSelector": {"host-arch": "huawei-arm", "task": task}}
        world.pods(a_pod(name, group="pg", labels=labels, annotations=annotations, priority=priority, spec=spec))
    world.settle()
    assert world.looks == [OwnerKey("AscendJob", "ns", "llm")]
    world.gangs.set_owner(world.looks[0], None)
    world.settle()
    request = world.requests["acjob.llm"]
    assert request.queue == "gold"
    assert request.priority == 9
    assert request.labels["ring-controller.atlas"] == "ascend-910b"
    assert request.labels["tor-affinity"] == "master-schema|worker-schema"
    assert request.annotations == {
        "sp-block": "16", "huawei.com/schedule_policy": "chip8-node8", "sp-fit": "x", "berth/gang-pods": "2",
    }  # fmt: skip
    assert request.node_selector == {"host-arch": "huawei-arm"}
    assert [task.node_selector for task in request.tasks] == [{"task": "master"}, {"task": "worker"}]
    seen = world.members["acjob.llm"]
    assert seen.writes_real
    assert seen.rank_index == ["", ""]  # the operator wrote them
    assert (seen.owner.kind, seen.owner.name, seen.owner.uid) == ("AscendJob", "llm", "ac-1")


def test_tasks_of_a_volcano_job_follow_its_spec_and_indexes_become_ranks() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=VCJOB, by_task={"zeta": 1, "alpha": 2}))
    for task, index in (("alpha", 1), ("alpha", 0), ("zeta", 0)):
        annotations = {"volcano.sh/task-spec": task}
        world.pods(a_pod(f"llm-{task}-{index}", group="pg", annotations=annotations, env={"VC_TASK_INDEX": str(index)}))
    world.settle()
    tasks = {"tasks": [{"name": "zeta", "replicas": 1}, {"name": "alpha", "replicas": 2}]}
    world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], tasks))
    world.settle()
    assert world.ranks("vcjob.llm") == {"llm-zeta-0": "0", "llm-alpha-0": "1", "llm-alpha-1": "2"}
    assert [task.name for task in world.requests["vcjob.llm"].tasks] == ["zeta", "alpha"]


def test_every_task_has_its_minimum() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, by_task={"ps": 2, "worker": 1}))
    world.pods(*members(4), a_pod("ps-0", group="pg", annotations={"volcano.sh/task-spec": "ps"}))
    world.settle()
    assert world.hold(BASE) == "task ps has 1 of at least 2 pods"
    world.pods(a_pod("ps-1", group="pg", annotations={"volcano.sh/task-spec": "ps"}))
    world.settle()
    assert world.standing(BASE) == {0: "ps-0", 1: "ps-1", 2: "p-0"}


def test_a_minimum_larger_than_the_job_is_a_configuration_error() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=8, owner=VCJOB))
    world.pods(*members(4))
    world.settle()
    world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], {"tasks": [{"name": "a", "replicas": 4}]}))
    world.settle()
    assert world.hold("vcjob.llm") == "minMember 8 is more than the 4 pods of the job: a configuration error"
    assert not world.requests


def test_pods_beyond_the_minimum_wait_until_it_has_its_chips() -> None:
    world = requested(2)
    world.pods(*members(2, 2))
    world.settle()
    assert list(world.requests) == [BASE]
    world.status(BASE, "placed")
    world.settle()
    others = [name for name in world.requests if name != BASE]
    assert len(others) == 2
    assert all(name.startswith(f"{BASE}-") and len(name) == len(BASE) + 9 for name in others)
    assert [world.requests[name].min_available for name in others] == [1, 1]
    assert sorted(rank for name in others for rank in world.ranks(name).values()) == ["2", "3"]
    assert all(world.members[name].distributed for name in others)
    assert {world.requests[name].annotations["berth/gang-pods"] for name in others} == {"4"}


def test_a_group_that_is_pending_keeps_its_pods_back() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", phase="Pending"))
    world.pods(*members(4))
    world.settle()
    assert world.hold(BASE) == "PodGroup is Pending: not admitted yet"
    world.gangs.set_group(a_group("pg"))
    world.settle()
    assert list(world.requests) == [BASE]


def test_a_request_is_taken_back_when_its_group_is_sent_back_and_comes_again_with_another_uid() -> None:
    world = requested()
    before = world.requests[BASE].uid
    world.gangs.set_group(a_group("pg", phase="Pending", version="2"))
    world.settle()
    assert world.withdrawn == [(BASE, before, "its PodGroup is Pending again")]
    assert world.hold(BASE) == "PodGroup is Pending: not admitted yet"
    world.gangs.set_group(a_group("pg", version="3"))
    world.settle()
    assert world.requests[BASE].uid != before


def test_a_group_that_is_not_there_holds_its_pods() -> None:
    world = GangWorld()
    world.pods(*members(1))
    world.settle()
    assert world.hold(BASE) == "PodGroup pg is not there"


# Pods that are not to be requested


def test_pods_with_gates_or_wrong_asks_are_no_members_and_the_reason_is_told() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3))
    chips = {"limits": {CHIPS: "1"}}
    wrong = {"containers": [{"name": "a", "resources": chips}, {"name": "b", "resources": chips}]}
    world.pods(
        *members(2),
        a_pod("p-2", group="pg", spec=wrong),
        a_pod("p-3", group="pg", gates=["kueue.x-k8s.io/admission"]),
        a_pod("p-4", group="pg", deleting=True),
        a_pod("p-5", group="pg", scheduler="volcano"),
    )
    world.settle()
    assert world.hold(BASE) == (
        "2 of at least 3 pods are there; pod p-2 asks for chips in two containers: a and b; ask in one, and 1 more"
    )
    world.pods(a_pod("p-3", group="pg"))
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-3"}


def test_a_pod_alone_is_held_under_its_own_name() -> None:
    world = GangWorld()
    world.pods(a_pod("one", gates=["g"]), a_pod("two"), a_pod("three", scheduler="default-scheduler"))
    world.settle()
    (held,) = [name for name, seen in world.members.items() if seen.hold]
    assert world.hold(held) == "pod one waits for scheduling gate g"
    assert list(world.requests) == ["pod.two"]
    assert world.ranks("pod.two") == {"two": ""}
    assert not world.members["pod.two"].distributed
    world.pods(a_pod("one"))
    world.settle()
    assert sorted(world.requests) == ["pod.one", "pod.two"]
    assert world.members[held].pods == [] or held == "pod.one"


def test_chips_of_two_kinds_in_a_gang_hold_it() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(*members(1), a_pod("p-1", group="pg", resource="huawei.com/Ascend310P"))
    world.settle()
    assert world.hold(BASE) == (
        "pods p-0 and p-1 ask for chips of different kinds: huawei.com/Ascend910 and huawei.com/Ascend310P"
    )


def test_a_run_time_that_is_none_holds_the_gang() -> None:
    world = GangWorld()
    world.pods(a_pod("one", annotations={"berth/run-for": "soon"}))
    world.settle()
    assert world.hold("pod.one").startswith("annotation berth/run-for is 'soon': expected a duration")


def test_unequal_pods_of_a_task_are_several_tasks() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*(a_pod(f"p-{index}", group="pg", chips=chips) for index, chips in enumerate((8, 8, 4, 8))))
    world.settle()
    tasks = [(task.name, task.replicas, task.chips) for task in world.requests[BASE].tasks]
    assert tasks == [("worker", 2, 8), ("worker-2", 1, 4), ("worker-3", 1, 8)]


def test_a_pod_with_chips_of_an_attempt_that_was_rolled_back_is_stale() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(*members(1), a_pod("p-1", group="pg", annotations={CHIPS: "Ascend910-0", "predicate-time": "1"}))
    world.settle()
    assert world.members[BASE].stale == [1]
    world.pods(*members(1, 1))
    world.settle()
    assert world.members[BASE].stale == []


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


def test_a_cancelled_request_stays_cancelled_after_a_restart() -> None:
    world = requested()
    world.status(BASE, "cancelled")
    world.settle()
    after = GangWorld()
    after.gangs.restore(world.members[BASE], None)  # its name is forgotten already
    after.gangs.set_group(a_group("pg"))
    after.pods(*members(4))
    assert [effect for effect in after.settle(after_s=60) if type(effect).__name__ != "SetGroup"] == []


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
