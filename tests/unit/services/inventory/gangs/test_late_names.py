"""Pods whose gang gets another name after they were requested, as controllers write group names late."""

import pytest

from berth.formats.kubernetes.objects import Pod
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of

OWNER = ("apps/v1", "ReplicaSet", "web", "uid-web")


def pods(group: str = "", *indexes: int, node: str = "") -> list[Pod]:
    wanted = indexes or (0, 1)
    least = {"huawei.com/schedule_minAvailable": str(len(wanted))}
    return [a_pod(f"web-{index}", group=group, owner=OWNER, annotations=least, node=node) for index in wanted]


def requested(*indexes: int) -> tuple[GangWorld, str]:
    """Pods of a controller, two if none are said, that were requested as its gang, and the name of the request."""
    world = GangWorld()
    world.pods(*pods("", *indexes))
    world.settle()
    for owner in world.looks:
        world.gangs.set_owner(owner, facts_of(owner, {"replicas": len(indexes) or 2}))
    world.settle()
    ((name, _),) = world.requests.items()
    world.verdict(name)
    world.status(name, "waiting")
    world.settle()
    return world, name


@pytest.mark.parametrize("indexes", [(0,), (0, 1)])
def test_a_pod_whose_rank_is_decided_keeps_it(indexes: tuple[int, ...]) -> None:
    world, name = requested(*indexes)
    world.status(name, "placed")
    world.gangs.set_group(a_group("podgroup-web", least=len(indexes)))
    world.pods(*pods("podgroup-web", *indexes))
    world.settle(after_s=60)
    assert world.withdrawn == []
    assert world.standing(name) == {index: f"web-{index}" for index in indexes}
    assert list(world.requests) == [name]


def test_a_pod_that_waits_is_requested_anew_and_the_old_request_says_where_it_went() -> None:
    world, name = requested()
    uid = world.requests[name].uid
    world.gangs.set_group(a_group("podgroup-web", least=2))
    world.pods(*pods("podgroup-web"))
    world.settle()
    assert world.withdrawn == [(name, uid, "pod web-0 is now of PodGroup podgroup-web")]
    assert world.standing("podgroup.podgroup-web") == {0: "web-0", 1: "web-1"}


def test_a_gang_of_which_a_pod_went_waits_for_the_others_to_go_too() -> None:
    world, name = requested()
    uid = world.requests[name].uid
    world.gangs.set_group(a_group("podgroup-web", least=2))
    world.pods(*pods("podgroup-web", 1))
    world.settle()
    assert world.withdrawn == [(name, uid, "pod web-1 is now of PodGroup podgroup-web")]
    assert world.hold("podgroup.podgroup-web") == "1 of at least 2 pods exists"
    world.pods(*pods("podgroup-web", 0))
    world.settle()
    assert world.standing("podgroup.podgroup-web") == {0: "web-0", 1: "web-1"}
