"""Nodes whose kubelets have rejected pods of a gang: later requests of it avoid them."""

import msgspec

from berth.formats.kubernetes.objects import Pod
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, members, requested


def rejected(name: str, node: str) -> Pod:
    pod = a_pod(name, group="pg", node=node, phase="Failed")
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, reason="TopologyAffinityError"))


def running() -> GangWorld:
    """A gang of two pods, of which one runs and one was rejected."""
    world = requested(2)
    world.verdict(BASE)
    world.status(BASE, "placed")
    world.pods(*members(1, node="n1", phase="Running"), rejected("p-1", "n2"))
    world.outcome(BASE)
    world.status(BASE, "running")
    world.gangs.set_group(a_group("pg", least=1, version="2"))
    world.settle()
    return world


def avoided(world: GangWorld) -> list[list[str]]:
    """Nodes that each request but the first avoids."""
    return [one.avoided for one in world.published if one.name != BASE]


def test_a_pod_in_place_of_one_that_was_rejected_avoids_its_node() -> None:
    world = running()
    world.pods(a_pod("p-2", group="pg"))
    world.settle(after_s=1)
    assert avoided(world) == [["n2"]]


def test_a_request_that_waits_is_not_made_anew_for_a_rejection() -> None:
    world = running()
    world.pods(a_pod("p-2", group="pg"))
    world.settle(after_s=1)
    world.pods(rejected("p-9", "n3"))
    world.settle(after_s=1)
    assert avoided(world) == [["n2"]]


def test_a_node_on_which_a_pod_runs_is_not_avoided() -> None:
    world = running()
    world.pods(a_pod("p-3", group="pg", node="n2", phase="Running"), a_pod("p-2", group="pg"))
    world.settle(after_s=1)
    assert avoided(world)[-1] == []


def test_of_many_nodes_the_newest_are_avoided() -> None:
    world = running()
    world.pods(*(rejected(f"old-{number:02}", f"m{number:02}") for number in range(16)), a_pod("p-2", group="pg"))
    world.settle(after_s=1)
    assert avoided(world)[-1] == [f"m{number:02}" for number in range(16)]
