"""Controllers and groups that are read on demand: requests end with them, and begin with their successors."""

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of, members

JOB = ("batch/v1", "Job", "train", "job-1")
THING = ("example.com/v1", "Thing", "train", "thing-1")
TRAIN = OwnerKey("Job", "ns", "train")
INDEXED = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}


def pods_of_job(count: int) -> list[Pod]:
    return [a_pod(f"t-{index}", owner=JOB) for index in range(count)]


def a_job_that_waits(**metadata: object) -> GangWorld:
    world = GangWorld()
    world.pods(*pods_of_job(2))
    world.settle()
    assert world.looks == [TRAIN]
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1", **metadata))
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
    world.status("job.train", "placed")
    world.settle()
    assert world.gangs.next_due_ms() is None


def test_the_controller_of_a_request_that_waits_is_read_ever_later_again() -> None:
    world = a_job_that_waits()
    for pause_s in (30, 60, 120, 120):
        world.settle(after_s=pause_s - 1)
        assert world.looks == []
        world.settle(after_s=1)
        assert world.looks == [TRAIN]
        world.looks.clear()
        world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1"))
        world.settle()
    world.status("job.train", "placed")
    world.settle(after_s=300)
    assert (world.looks, world.gangs.next_due_ms()) == ([], None)


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


def test_what_was_read_of_a_controller_says_nothing_of_the_next_one() -> None:
    """Its pods still run, so what was read of it is still known."""
    world = a_job_that_waits()
    world.status("job.train", "placed")
    world.pods(*(a_pod(f"t-{index}", owner=JOB, node="n1", phase="Running") for index in range(2)))
    world.outcome("job.train")
    world.status("job.train", "running")
    world.settle()
    world.pods(a_pod("again-0", owner=(*JOB[:3], "job-2")))
    world.settle()
    assert world.looks == [TRAIN]
    assert [seen.hold for seen in world.members.values() if seen.hold] == []
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-2"))
    world.settle()
    assert [seen.hold for seen in world.members.values() if seen.hold] == ["1 of at least 2 pods exists"]
    assert world.withdrawn == []


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


@pytest.mark.parametrize("label", ["no", "yes"])
def test_after_a_restart_a_rejected_request_is_kept_until_its_controller_is_read(label: str) -> None:
    world = a_job_that_waits(labels={"tor-affinity": "no"})
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members["job.train"], None)
    after.verdict("job.train", "rejected", code="invalid-argument")
    after.pods(*pods_of_job(2))
    after.settle()
    assert (after.members, after.looks) == (world.members, [TRAIN])
    after.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1", labels={"tor-affinity": label}))
    after.settle()
    assert [request.labels["tor-affinity"] for request in after.published] == ([] if label == "no" else ["yes"])


def test_after_a_restart_a_request_is_published_as_its_controller_says() -> None:
    world = a_job_that_waits(labels={"tor-affinity": "null"})
    after = GangWorld()
    after.members = dict(world.members)
    after.gangs.restore(world.members["job.train"], None)
    after.pods(*pods_of_job(2))
    after.settle()
    assert (after.published, after.looks) == ([], [TRAIN])
    after.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1", labels={"tor-affinity": "null"}))
    after.settle()
    assert after.published == world.published


def test_after_a_restart_the_controller_of_a_request_that_lost_a_pod_is_read_for_the_others() -> None:
    world = a_job_that_waits()
    after = GangWorld()
    after.requests, after.members = dict(world.requests), dict(world.members)
    after.gangs.restore(world.members["job.train"], None)
    after.pods(*pods_of_job(1))
    after.settle()
    assert after.looks == [TRAIN]
    after.gangs.set_owner(TRAIN, facts_of(TRAIN, dict(INDEXED), uid="job-1"))
    after.settle()
    assert after.hold("job.train") == "1 of at least 2 pods exists"


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


def test_the_owner_of_a_podgroup_without_pods_is_read_once_although_its_request_looks_at_it_too() -> None:
    owner = ("batch.volcano.sh/v1alpha1", "Job", "vc", "uid-vc")
    volcano = OwnerKey("VolcanoJob", "ns", "vc")
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=owner))
    world.pods(*members(2))
    world.settle()
    world.gangs.set_owner(volcano, facts_of(volcano, {"minAvailable": 2}, uid="uid-vc"))
    world.settle()
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "waiting")
    for index in range(2):
        world.gangs.drop_pod(f"uid-p-{index}")
    world.settle()
    world.looks.clear()
    for _ in range(5):
        world.gangs.set_owner(volcano, facts_of(volcano, {"minAvailable": 2}, uid="uid-vc"))
        world.settle()
    assert world.looks == []


def test_a_request_says_whether_a_pod_of_it_has_no_controller() -> None:
    world = GangWorld()
    world.pods(a_pod("alone"), a_pod("made", owner=("example.com/v1", "Thing", "train", "thing-1")))
    world.settle()
    assert {name: request.is_unowned for name, request in world.requests.items()} == {
        "pod.alone": True, "thing.train": False
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "left"),
    [
        ({"succeeded": 4}, 1),
        ({"succeeded": 2}, 3),
        ({"failedIndexes": "1,3-4"}, 2),
        ({"succeeded": 1, "failedIndexes": "0-2"}, 1),
        ({"failedIndexes": "?,3-1,-"}, 3),
    ],
)
def test_a_job_starts_with_the_completions_that_are_left(status: dict[str, object], left: int) -> None:
    """Pods that have ended may be gone, and an index beyond its backoff limit gets no pod any more."""
    world = GangWorld()
    world.pods(*pods_of_job(left))
    world.settle()
    spec = {"parallelism": 3, "completions": 5, "completionMode": "Indexed"}
    world.gangs.set_owner(TRAIN, facts_of(TRAIN, {**spec, "status": status}))
    world.settle()
    assert [task.replicas for task in world.requests["job.train"].tasks] == [left]


def test_a_job_set_starts_with_the_jobs_that_have_not_succeeded() -> None:
    """Pods of those that have may be gone with their nodes."""
    world = GangWorld()
    key = OwnerKey("JobSet", "ns", "set")
    marks = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/jobset-uid": "set-1"}
    labels = marks | {"jobset.sigs.k8s.io/replicatedjob-name": "w"}
    world.pods(*(a_pod(f"set-w-0-{index}", labels=labels, owner=JOB) for index in range(2)))
    world.settle()
    jobs = [
        {"name": name, "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}} for name in ("d", "w")
    ]
    status = {"replicatedJobsStatus": [{"name": "d", "succeeded": 1}, {"name": "w"}]}
    world.gangs.set_owner(key, facts_of(key, {"replicatedJobs": jobs, "status": status}, uid="set-1"))
    world.settle()
    assert [task.replicas for request in world.requests.values() for task in request.tasks] == [2]
