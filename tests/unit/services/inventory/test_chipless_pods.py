"""Pods that name chips for which they do not ask."""

from collections.abc import AsyncIterator

import pytest

from berth.core.cluster.node_packing import unpack_nodes
from berth.schemas.facts import NodesSeen, PodsSeen
from tests.unit.services.inventory.test_service import Tree, World, a_node, a_pod

PATH = "/api/v1/namespaces/team/pods"
ALL = ",".join(f"Ascend910-{chip}" for chip in range(8))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.bus.ensure_streams()
    made.kube.put("/api/v1/nodes", a_node("a"))
    yield made
    await made.bus.close()


def without_chips(pod: Tree) -> Tree:
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return pod


@pytest.mark.parametrize("key", ["huawei.com__AscendReal", "huawei.com__Ascend910", "huawei.com__npu"])
@pytest.mark.parametrize("scheduler", ["berth", "default-scheduler"])
async def test_chipless_pod_holds_no_chips(world: World, key: str, scheduler: str) -> None:
    world.kube.put(PATH, without_chips(a_pod("p", node="a", phase="Running", scheduler=scheduler, **{key: ALL})))
    async with world.inventory():
        await world.has(world.ledgers, "what pods say of the ledger")
        await world.quiet()
    assert world.facts("pod", PodsSeen) == []
    (node,) = unpack_nodes(world.facts("node", NodesSeen)[-1])
    assert (node.chips, node.chips_others) == (0xFF, 0)


async def test_of_more_chips_than_a_pod_asks_for_none_is_counted_as_named(world: World) -> None:
    """It has two; which of them is not known, so that two of the node are given to nobody."""
    world.kube.put(PATH, a_pod("p", node="a", phase="Running", scheduler="other", **{"huawei.com__AscendReal": ALL}))
    async with world.inventory():
        await world.has(world.ledgers, "what pods say of the ledger")
        await world.quiet()
    assert world.facts("pod", PodsSeen) == []
    (node,) = unpack_nodes(world.facts("node", NodesSeen)[-1])
    assert (node.chips, node.chips_others) == (0xFF, 2)


async def test_the_event_on_such_a_pod_says_how_many_chips_it_asks_for(world: World) -> None:
    world.kube.put(PATH, without_chips(a_pod("p", node="a", phase="Running", **{"huawei.com__AscendReal": ALL})))
    async with world.inventory():
        await world.has(lambda: world.kube.objects("/api/v1/events"), "an event")
    (event,) = world.kube.objects("/api/v1/events")
    assert "its annotations name 8 chips: expected the 0 that it asks for" in event["message"]
