"""An autoscaled Ray cluster starts with its head and the fewest workers of each group."""

from typing import Any, Final

from tests.support.gang_world import GangWorld, a_pod, facts_of

RAY: Final = ("ray.io/v1", "RayCluster", "ray", "ray-1")


def a_template(chips: int, scheduler: str = "berth") -> dict[str, Any]:
    limits = {"limits": {"huawei.com/Ascend910": str(chips)}} if chips else {}
    return {"spec": {"schedulerName": scheduler, "containers": [{"name": "main", "resources": limits}]}}


def a_group(name: str, replicas: int, least: int, chips: int = 8) -> dict[str, Any]:
    return {
        "groupName": name,
        "replicas": replicas,
        "minReplicas": least,
        "maxReplicas": 8,
        "template": a_template(chips),
    }


def first_of(*groups: dict[str, Any], head: str = "berth") -> list[str]:
    """Pods of the first request, where all pods are there."""
    spec = {
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"template": a_template(0, head)},
        "workerGroupSpecs": list(groups),
    }
    world = GangWorld()
    if head == "berth":
        world.pods(a_pod("ray-head", owner=RAY, chips=0, labels={"ray.io/group": "headgroup"}))
    for group in groups:
        name = group["groupName"]
        world.pods(
            *[a_pod(f"ray-{name}-{at}", owner=RAY, labels={"ray.io/group": name}) for at in range(group["replicas"])]
        )
    world.settle()
    while world.looks:
        key = world.looks.pop()
        world.gangs.set_owner(key, facts_of(key, dict(spec), uid="ray-1"))
        world.settle()
    return sorted(world.standing(next(iter(world.requests))).values())


def test_the_head_is_in_the_first_request_although_it_has_no_chips() -> None:
    assert first_of(a_group("w", 3, 1)) == ["ray-head", "ray-w-0"]


def test_each_group_has_its_fewest_workers_in_it() -> None:
    assert first_of(a_group("a", 3, 2), a_group("b", 2, 1)) == ["ray-a-0", "ray-a-1", "ray-b-0", "ray-head"]


def test_the_fewest_workers_remain_where_another_scheduler_places_the_head() -> None:
    assert first_of(a_group("w", 3, 2), head="default-scheduler") == ["ray-w-0", "ray-w-1"]
