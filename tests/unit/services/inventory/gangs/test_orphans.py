"""Pods that run and have lost their controller, or got one: a drain must know what nobody makes again."""

import pytest

from tests.support.gang_world import GangWorld, a_pod, facts_of

SET = ("apps/v1", "ReplicaSet", "serve-1", "rs-1")


def running() -> tuple[GangWorld, str]:
    """Two pods of a ReplicaSet run; the name of their request."""
    world = GangWorld()
    world.pods(*[a_pod(f"serve-1-{index}", owner=SET) for index in range(2)])
    world.settle()
    answer(world, replicas=2)
    (name,) = world.requests
    world.verdict(name)
    world.status(name, "placed")
    world.settle()
    pods(world, SET, SET)
    world.outcome(name)
    world.status(name, "running")
    world.settle()
    return world, name


def answer(world: GangWorld, *, replicas: int | None) -> None:
    """Whoever reads the owner finds it, or finds that it is gone."""
    while world.looks:
        key = world.looks.pop()
        found = facts_of(key, {"replicas": replicas}, uid="rs-1") if replicas is not None else None
        world.gangs.set_owner(key, found, is_gone=found is None)
        world.settle()


def pods(world: GangWorld, *owners: tuple[str, str, str, str] | None) -> None:
    """The pods as they are now, with their controllers."""
    for index, owner in enumerate(owners):
        world.pods(a_pod(f"serve-1-{index}", node="n1", phase="Running", owner=owner))


@pytest.mark.parametrize("owners", [(None, None), (SET, None)])
def test_a_request_says_so_once_a_running_pod_has_no_controller_any_more(
    owners: tuple[tuple[str, str, str, str] | None, ...],
) -> None:
    world, name = running()
    assert not world.requests[name].is_unowned
    pods(world, *owners)
    answer(world, replicas=None if owners[0] is None else 1)
    world.settle(after_s=60)
    assert world.requests[name].is_unowned
    pods(world, SET, SET)
    answer(world, replicas=2)
    world.settle(after_s=60)
    assert not world.requests[name].is_unowned
