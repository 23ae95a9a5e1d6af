"""Constraints of pods in the requests that are made for them."""

from typing import Any

from berth.schemas.constraints import Expression
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "train"}}}
        ]
    }
}


def requested(*pods: Any) -> GangWorld:  # noqa: ANN401 - pods as a test makes them
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=len(pods)))
    world.pods(*pods)
    world.settle()
    return world


def test_a_request_carries_the_constraints_and_the_labels_that_all_pods_of_a_task_have() -> None:
    pods = [
        a_pod(f"p-{index}", group="pg", labels={"app": "train", "index": str(index)}, spec={"affinity": APART})
        for index in range(2)
    ]
    (task,) = requested(*pods).requests[BASE].tasks
    app = LabelSelector((Expression("app", "In", ("train",)),))
    apart = PodTerm("kubernetes.io/hostname", app, ("ns",))
    assert task.constraints == PodConstraints(anti_affinity=(apart,))
    assert (task.replicas, task.labels) == (2, {"app": "train"})


def test_pods_with_claims_of_their_own_are_tasks_of_their_own() -> None:
    volumes = [{"name": "data", "ephemeral": {"volumeClaimTemplate": {}}}]
    tasks = (
        requested(*(a_pod(f"p-{index}", group="pg", spec={"volumes": volumes}) for index in range(2)))
        .requests[BASE]
        .tasks
    )
    assert [task.constraints for task in tasks] == [
        PodConstraints(claims=("p-0-data",)),
        PodConstraints(claims=("p-1-data",)),
    ]


def test_a_pod_with_the_same_host_port_twice_is_held_with_the_reason() -> None:
    ports = [{"containerPort": 1, "hostPort": 8080}, {"containerPort": 2, "hostPort": 8080}]
    resources = {"limits": {"huawei.com/Ascend910": "8"}}
    pod = a_pod("p-0", group="pg", spec={"containers": [{"name": "main", "ports": ports, "resources": resources}]})
    world = requested(pod)
    assert not world.requests
    (members,) = world.members.values()
    assert members.hold.startswith(
        "pod p-0 has spec.containers[0].ports[1].hostPort of 8080: expected another port than"
    )


def test_a_changed_constraint_of_a_pod_that_waits_is_a_new_request() -> None:
    world = requested(a_pod("p-0", group="pg"))
    first = world.requests[BASE]
    world.verdict(BASE)
    world.status(BASE, "waiting")
    ports = [{"containerPort": 1, "hostPort": 8080}]
    resources = {"limits": {"huawei.com/Ascend910": "8"}}
    spec = {"containers": [{"name": "main", "ports": ports, "resources": resources}]}
    world.gangs.drop_pod("uid-p-0")
    world.pods(a_pod("p-0", group="pg", uid="second", spec=spec))
    world.settle(after_s=60)
    assert [request.uid for request in world.published] != [first.uid]
    constraints = world.published[-1].tasks[0].constraints
    assert constraints is not None
    assert constraints.ports == (HostPort(8080),)
