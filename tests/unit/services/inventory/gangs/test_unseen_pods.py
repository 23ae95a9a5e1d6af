"""Pods that were bound, deleted and made again while the inventory did not look, or was away."""

import pytest

from tests.support.gang_world import GangWorld, a_pod, facts_of

SET = ("apps/v1", "StatefulSet", "web", "set-1")


def answer(world: GangWorld) -> None:
    """Whoever reads the owner finds it."""
    while world.looks:
        key = world.looks.pop()
        world.gangs.set_owner(key, facts_of(key, {"replicas": 2, "podManagementPolicy": "Parallel"}, uid="set-1"))
        world.settle()


def placed() -> tuple[GangWorld, str]:
    """A StatefulSet of two pods that has places; the name of its request."""
    world = GangWorld()
    world.pods(*[a_pod(f"web-{index}", owner=SET) for index in (0, 1)])
    world.settle()
    answer(world)
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "placed")
    world.settle()
    return world, name


@pytest.mark.parametrize("way", ["looked between", "one look", "restart"])
def test_the_pod_in_place_of_a_bound_one_is_requested(way: str) -> None:
    world, name = placed()
    if way == "restart":
        after = GangWorld()
        after.requests, after.members = dict(world.requests), dict(world.members)
        after.gangs.restore(world.members[name], world.job(name))
        after.status(name, "placed")
        world = after
    else:
        world.pods(a_pod("web-0", owner=SET, node="n1"))
        if way == "looked between":
            world.settle()
        world.gangs.drop_pod("uid-web-0")
    world.pods(a_pod("web-0", uid="again", owner=SET), a_pod("web-1", owner=SET))
    world.settle()
    answer(world)
    world.pods(a_pod("web-1", owner=SET, node="n1"))
    world.outcome(name)
    world.status(name, "running")
    for _ in range(10):
        world.settle(after_s=60)
        answer(world)
    (other,) = [one for one in world.requests if one != name]
    assert list(world.standing(other).values()) == ["web-0"]


def test_a_pod_whose_node_is_seen_late_is_not_requested_again() -> None:
    world, name = placed()
    world.outcome(name)
    world.status(name, "running")
    world.settle(after_s=20)
    world.pods(*[a_pod(f"web-{index}", owner=SET, node="n1") for index in (0, 1)])
    for _ in range(3):
        world.settle(after_s=60)
        answer(world)
    assert list(world.requests) == [name]
