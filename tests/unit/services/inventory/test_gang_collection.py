"""Gangs and their requests: which pods, in what order, and why others wait."""

from berth.formats.kubernetes.workloads.port import OwnerKey
from tests.support.gang_world import BASE, CHIPS, GangWorld, a_group, a_pod, facts_of, members, requested

VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "llm", "ac-1")


# Volcano PodGroups


def test_a_gang_is_requested_when_its_minimum_is_there() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*members(2))
    world.settle()
    assert world.hold(BASE) == "2 of at least 4 pods exist"
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
    assert world.hold(BASE) == "PodGroup pg does not exist"


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
        "2 of at least 3 pods exist; pod p-2 asks for chips in two containers: a and b; ask in one, and 1 more"
    )
    world.pods(a_pod("p-3", group="pg"))
    world.settle()
    assert world.standing(BASE) == {0: "p-0", 1: "p-1", 2: "p-3"}


def test_a_pod_that_two_podgroups_claim_is_held_and_both_are_named() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    label = "scheduling.x-k8s.io/pod-group"
    world.pods(*members(1), a_pod("p-1", group="pg", labels={label: "co"}))
    world.settle()
    twice = (
        f"pod p-1 names two PodGroups, pg (annotation scheduling.k8s.io/group-name) and co (label {label}); name one"
    )
    assert world.hold(BASE) == f"1 of at least 2 pods exists; {twice}"
    assert not world.requests
    world.pods(a_pod("p-1", group="pg", labels={label: "pg"}))
    world.settle()
    assert list(world.requests) == [BASE]


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
    assert world.hold("pod.one").endswith("or 'forever'")
    world.pods(a_pod("two", annotations={"berth/run-for": "forever"}))
    world.settle()
    assert world.requests["pod.two"].run_ms == 0


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


# Switch affinity


LARGE = {"tor-affinity": "large-model-schema"}


def test_the_label_of_switch_affinity_counts_wherever_it_stands_and_nearest_to_the_job_first() -> None:
    places = [
        (LARGE, {"tor-affinity": "normal-schema"}, {}, "large-model-schema"),
        ({}, LARGE, {"tor-affinity": "normal-schema"}, "large-model-schema"),
        ({}, {}, LARGE, "large-model-schema"),
        ({"tor-affinity": "null"}, LARGE, LARGE, "null"),
    ]
    for of_group, of_job, of_pods, wanted in places:
        world = GangWorld()
        world.gangs.set_group(a_group("pg", least=4, owner=ACJOB, labels=of_group))
        world.pods(*members(4, labels=of_pods))
        world.settle()
        spec = {"replicaSpecs": {"Worker": {"replicas": 4, "template": {}}}}
        world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], spec, labels=of_job))
        world.settle()
        request = world.requests["acjob.llm"]
        assert (request.labels["tor-affinity"], request.min_available) == (wanted, 4)


def test_a_pod_alone_has_the_label_of_its_own() -> None:
    world = GangWorld()
    world.pods(a_pod("one", labels=LARGE))
    world.settle()
    assert world.requests["pod.one"].labels == LARGE


def test_a_job_with_switch_affinity_that_would_not_start_whole_is_held() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, owner=VCJOB))
    world.pods(*members(4, labels=LARGE))
    world.settle()
    tasks = {"tasks": [{"name": "a", "replicas": 4}]}
    world.gangs.set_owner(world.looks[0], facts_of(world.looks[0], tasks))
    world.settle()
    words = "minMember is 2 of 4 pods: expected 4: with label tor-affinity all pods of the job start together"
    assert (world.hold("vcjob.llm"), world.requests) == (words, {})
    world.gangs.set_group(a_group("pg", least=4, owner=VCJOB, version="2"))
    world.settle()
    assert world.requests["vcjob.llm"].min_available == 4


def test_pods_beyond_the_minimum_of_a_job_whose_size_nobody_tells_are_held_with_switch_affinity_only() -> None:
    for labels, has_chips, is_held in (
        (LARGE, True, True),
        (LARGE, False, False),
        ({"tor-affinity": "null"}, True, False),
    ):
        world = GangWorld()
        world.gangs.set_group(a_group("pg", least=2))
        world.pods(*members(2, labels=labels, chips=8 if has_chips else 0))
        world.settle()
        assert list(world.requests) == [BASE]
        world.pods(*members(1, 2, labels=labels, chips=8 if has_chips else 0))
        world.verdict(BASE)
        world.status(BASE, "placed")
        world.settle()
        assert (len(world.requests) == 1) == is_held
        holds = [seen.hold for seen in world.members.values() if seen.hold]
        assert bool(holds) == is_held


def test_pods_of_a_gang_whose_pods_need_not_start_together_do_not_wait_for_the_first() -> None:
    world = requested(1)
    world.pods(*members(2, 1))
    world.settle()
    assert len(world.requests) == 3
