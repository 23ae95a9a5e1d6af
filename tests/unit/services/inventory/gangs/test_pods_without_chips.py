"""Pods without chips in gangs: they count neither in its size nor among its ranks, and keep no chips out."""

from typing import Any

import pytest

from berth.core.requests.job_validation import ValidJob, validate
from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.ledger import Settings
from berth.schemas.refusal import NodeReason, ReasonCount, Refusal
from berth.services.inventory.gang_collection import Gangs
from tests.support.gang_world import BASE, CHIPS, GangWorld, a_group, a_pod, facts_of

VCJOB = ("batch.volcano.sh/v1alpha1", "Job", "llm", "vc-1")
ACJOB = ("mindxdl.gitee.com/v1", "AscendJob", "llm", "ac-1")
JOB = "vcjob.llm"
KEY = OwnerKey("VolcanoJob", "ns", "llm")


def task_pod(task: str, index: int, *, chips: int = 8, **more: Any) -> Pod:  # noqa: ANN401 - whatever a pod can have
    annotations = {"volcano.sh/task-spec": task}
    return a_pod(
        f"llm-{task}-{index}",
        group="pg",
        chips=chips,
        annotations=annotations,
        env={"VC_TASK_INDEX": str(index)},
        **more,
    )


def template(chips: int) -> dict[str, Any]:
    resources = {"limits": {CHIPS: str(chips)}} if chips else {"requests": {"cpu": "1"}}
    return {"spec": {"containers": [{"name": "main", "resources": resources}]}}


def volcano(*tasks: tuple[str, int, int], with_template: bool = True) -> dict[str, Any]:
    """Spec of a job with tasks (name, pods, chips)."""
    return {
        "tasks": [
            {"name": name, "replicas": pods} | ({"template": template(chips)} if with_template else {})
            for name, pods, chips in tasks
        ]
    }


def world_of(
    spec: dict[str, Any],
    *pods: Pod,
    least: int,
    by_task: dict[str, int] | None = None,
    **group: Any,  # noqa: ANN401 - whatever a group can have
) -> GangWorld:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=least, owner=VCJOB, by_task=by_task, **group))
    world.pods(*pods)
    world.settle()
    world.gangs.set_owner(KEY, facts_of(KEY, spec))
    world.settle()
    return world


def asked(world: GangWorld, name: str = JOB) -> list[tuple[str, int, int]]:
    return [(task.name, task.replicas, task.chips) for task in world.requests[name].tasks]


def test_a_master_without_chips_has_no_rank_and_does_not_count() -> None:
    pods = [task_pod("master", 0, chips=0), *(task_pod("worker", index) for index in range(3))]
    world = world_of(volcano(("master", 1, 0), ("worker", 3, 8)), *pods, least=4)
    assert asked(world) == [("master", 1, 0), ("worker", 3, 8)]
    assert world.requests[JOB].annotations == {"berth/gang-pods": "3"}
    assert world.ranks(JOB) == {"llm-master-0": "", "llm-worker-0": "0", "llm-worker-1": "1", "llm-worker-2": "2"}
    assert world.members[JOB].distributed


def test_one_pod_with_chips_beside_a_master_is_not_distributed() -> None:
    world = world_of(
        volcano(("master", 1, 0), ("worker", 1, 8)), task_pod("master", 0, chips=0), task_pod("worker", 0), least=2
    )
    assert world.requests[JOB].annotations == {"berth/gang-pods": "1"}
    assert not world.members[JOB].distributed


@pytest.mark.parametrize("with_template", [True, False])
def test_tasks_without_chips_between_others_leave_no_gap(*, with_template: bool) -> None:
    tasks = (("a", 2, 8), ("ps", 2, 0), ("b", 2, 8))
    pods = [task_pod(name, index, chips=chips) for name, count, chips in tasks for index in range(count)]
    world = world_of(volcano(*tasks, with_template=with_template), *pods, least=6)
    assert world.ranks(JOB) == {
        "llm-a-0": "0", "llm-a-1": "1", "llm-ps-0": "", "llm-ps-1": "", "llm-b-0": "2", "llm-b-1": "3",
    }  # fmt: skip


def test_ranks_do_not_count_tasks_without_chips_whose_pods_are_yet_to_come() -> None:
    spec = volcano(("ps", 2, 0), ("worker", 2, 8))
    world = world_of(spec, task_pod("worker", 0), task_pod("worker", 1), least=2)
    assert world.ranks(JOB) == {"llm-worker-0": "0", "llm-worker-1": "1"}
    assert world.requests[JOB].annotations == {"berth/gang-pods": "2"}


def test_a_minimum_below_the_size_takes_pods_with_chips_first() -> None:
    spec = volcano(("master", 1, 0), ("worker", 3, 8))
    pods = [task_pod("master", 0, chips=0), *(task_pod("worker", index) for index in range(3))]
    world = world_of(spec, *pods, least=3)
    assert asked(world) == [("worker", 3, 8)]
    world.status(JOB, "placed")
    world.settle()
    others = [name for name in world.requests if name != JOB]
    assert [asked(world, name) for name in others] == [[("master", 1, 0)]]
    assert world.requests[others[0]].annotations == {"berth/gang-pods": "3", "berth/beside": JOB}
    assert world.ranks(others[0]) == {"llm-master-0": ""}


@pytest.mark.parametrize("is_first", [True, False])
def test_elastic_workers_start_with_their_master_where_the_minima_of_tasks_do_not_fit(*, is_first: bool) -> None:
    """Case a/23: the PodGroup has all workers in ``minTaskMember``, and a smaller ``minMember``."""
    tasks = [("master", 1, 0), ("worker", 5, 8)]
    spec = volcano(*(tasks if is_first else tasks[::-1]))
    pods = [task_pod("master", 0, chips=0), *(task_pod("worker", index) for index in range(5))]
    world = world_of(spec, *pods, least=3, by_task={"master": 1, "worker": 5})
    assert sorted(asked(world)) == [("master", 1, 0), ("worker", 2, 8)]
    world.status(JOB, "placed")
    world.settle()
    others = [asked(world, name) for name in world.requests if name != JOB]
    assert others == [[("worker", 1, 8)]] * 3


def elastic_that_waits(*reasons: NodeReason, task: str = "master") -> GangWorld:
    """A master and two workers of which two must start, and each reason excludes two nodes for a pod of the task."""
    pods = [task_pod("master", 0, chips=0), task_pod("worker", 0), task_pod("worker", 1)]
    world = world_of(volcano(("master", 1, 0), ("worker", 2, 8)), *pods, least=2, by_task={"master": 1, "worker": 2})
    assert asked(world) == [("master", 1, 0), ("worker", 1, 8)]
    counts = [ReasonCount(reason, 2) for reason in reasons]
    refusal = Refusal(code="no-room", task=task, nodes_total=2 * len(counts), counts=counts)
    for _ in range(2):
        world.verdict(JOB, accepted_seq=7)
        world.status(JOB, "waiting", refusal=refusal)
        world.settle()
    return world


@pytest.mark.parametrize("reasons", [[NodeReason.SELECTOR], [NodeReason.CORDONED, NodeReason.TAINT]])
def test_elastic_workers_start_without_a_master_that_no_node_takes(reasons: list[NodeReason]) -> None:
    """As Volcano, which goes on with other tasks when one finds no node, while the minimum can be reached."""
    world = elastic_that_waits(*reasons)
    assert [reason for _, _, reason in world.withdrawn] == ["no node takes pods of task master: others start first"]
    assert asked(world) == [("worker", 2, 8)]
    assert world.requests[JOB].since_seq == 7
    world.status(JOB, "placed")
    world.settle()
    others = [asked(world, name) for name in world.requests if name != JOB]
    assert others == [[("master", 1, 0)]]


@pytest.mark.parametrize(
    ("reasons", "task"),
    [
        ([NodeReason.SELECTOR, NodeReason.CPU], "master"),
        ([NodeReason.CORDONED], "master"),
        ([NodeReason.SELECTOR], "worker"),
    ],
)
def test_elastic_workers_wait_with_a_master_that_may_find_room(reasons: list[NodeReason], task: str) -> None:
    world = elastic_that_waits(*reasons, task=task)
    assert world.withdrawn == []


def test_elastic_pods_without_chips_do_not_start_without_a_pod_with_chips() -> None:
    spec = volcano(("ps", 2, 0), ("chief", 1, 0), ("worker", 5, 8))
    pods = [
        *(task_pod("ps", index, chips=0) for index in range(2)),
        task_pod("chief", 0, chips=0),
        *(task_pod("worker", index) for index in range(5)),
    ]
    world = world_of(spec, *pods, least=2, by_task={"ps": 2, "chief": 1, "worker": 5})
    assert asked(world) == [("ps", 1, 0), ("worker", 1, 8)]


def test_the_minimum_of_a_task_without_chips_is_part_of_the_minimum() -> None:
    spec = volcano(("master", 2, 0), ("worker", 3, 8))
    pods = [
        *(task_pod("master", index, chips=0) for index in range(2)),
        *(task_pod("worker", index) for index in range(3)),
    ]
    world = world_of(spec, *pods, least=3, by_task={"master": 1})
    assert asked(world) == [("master", 1, 0), ("worker", 2, 8)]
    short = world_of(spec, *pods[2:], least=3, by_task={"master": 1})
    assert short.hold(JOB) == "task master has 0 of at least 1 pod"


def test_with_switch_affinity_all_pods_with_chips_start_together() -> None:
    spec = volcano(("master", 1, 0), ("worker", 3, 8))
    pods = [task_pod("master", 0, chips=0), *(task_pod("worker", index) for index in range(3))]
    labels = {"tor-affinity": "normal-schema"}
    world = world_of(spec, *pods, least=3, labels=labels)
    assert asked(world) == [("worker", 3, 8)]
    world = world_of(spec, *pods, least=3, by_task={"master": 1}, labels=labels)
    assert world.hold(JOB) == (
        "minMember is 3 of 4 pods: expected 4: with label tor-affinity all pods of the job start together"
    )
    world = world_of(spec, *pods, least=2, labels=labels)
    assert world.hold(JOB) == (
        "minMember is 2 of 4 pods: expected 3: with label tor-affinity all pods with chips of the job start together"
    )


def test_blocks_need_all_pods_with_chips_and_not_the_others() -> None:
    spec = volcano(("worker", 4, 8), ("log", 2, 0))
    pods = [task_pod("worker", index) for index in range(4)]
    world = world_of(spec, *pods, least=1, annotations={"sp-block": "16"})
    assert asked(world) == [("worker", 4, 8)]
    assert world.requests[JOB].annotations["berth/gang-pods"] == "4"


def test_a_gang_without_chips_is_requested_as_one_and_has_no_chips() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2))
    world.pods(*(a_pod(f"p-{index}", group="pg", chips=0) for index in range(2)))
    world.settle()
    request = world.requests[BASE]
    assert (request.resource, request.annotations, asked(world, BASE)) == (
        "",
        {"berth/gang-pods": "0"},
        [("worker", 2, 0)],
    )
    assert isinstance(validate(request, Settings()), ValidJob)
    assert world.ranks(BASE) == {"p-0": "", "p-1": ""}
    assert not world.members[BASE].distributed


def test_the_scheduler_of_an_ascend_job_keeps_the_ranks_that_the_operator_wrote() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3, owner=ACJOB, by_task={"scheduler": 1, "worker": 2}))
    for kind, index, rank in (("scheduler", 0, None), ("worker", 0, 0), ("worker", 1, 1)):
        labels = {"training.kubeflow.org/replica-type": kind, "training.kubeflow.org/replica-index": str(index)}
        annotations = {"hccl/rankIndex": str(rank)} if rank is not None else {}
        world.pods(
            a_pod(
                f"llm-{kind}-{index}",
                group="pg",
                labels=labels,
                annotations=annotations,
                chips=0 if rank is None else 8,
            )
        )
    world.settle()
    key = OwnerKey("AscendJob", "ns", "llm")
    specs = {"Scheduler": {"replicas": 1, "template": template(0)}, "Worker": {"replicas": 2, "template": template(8)}}
    world.gangs.set_owner(key, facts_of(key, {"replicaSpecs": specs}))
    world.settle()
    assert asked(world, "acjob.llm") == [("scheduler", 1, 0), ("worker", 2, 8)]
    assert world.members["acjob.llm"].rank_index == ["", "", ""]
    assert world.requests["acjob.llm"].annotations == {"berth/gang-pods": "2"}


def test_workers_of_a_leader_without_chips_begin_at_rank_0() -> None:
    world = GangWorld()
    lws = "leaderworkerset.sigs.k8s.io"
    for index in range(3):
        labels = {
            f"{lws}/name": "serve",
            f"{lws}/group-index": "0",
            f"{lws}/group-key": "k",
            f"{lws}/worker-index": str(index),
        }
        world.pods(a_pod(f"serve-0-{index}", labels=labels, annotations={f"{lws}/size": "3"}, chips=8 if index else 0))
    world.settle()
    assert world.ranks("lws.serve-0") == {"serve-0-0": "", "serve-0-1": "0", "serve-0-2": "1"}


def test_a_restart_gives_no_rank_to_pods_without_chips() -> None:
    spec = volcano(("master", 1, 0), ("worker", 2, 8))
    pods = [task_pod("master", 0, chips=0), task_pod("worker", 0), task_pod("worker", 1)]
    first = world_of(spec, *pods, least=3)
    second = GangWorld()
    second.gangs = Gangs(second.settings)
    second.gangs.restore(first.members[JOB], first.job(JOB))
    second.gangs.set_group(a_group("pg", least=3, owner=VCJOB))
    second.pods(*pods)
    second.settle()
    second.gangs.set_owner(KEY, facts_of(KEY, spec))
    second.settle()
    assert second.published == []
    second.requests[JOB] = first.requests[JOB]
    second.status(JOB, "placed")
    second.pods(task_pod("worker", 2))
    second.settle()
    second.gangs.set_owner(KEY, facts_of(KEY, volcano(("master", 1, 0), ("worker", 3, 8))))
    second.settle()
    name = next(name for name in second.requests if name != JOB)
    assert second.ranks(name) == {"llm-worker-2": "2"}
