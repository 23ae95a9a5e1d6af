"""A label that decides how chips of a node are counted may come, and go, while pods run there."""

import pytest

from berth.core.cluster.node_packing import unpack_nodes
from berth.products.model import LABEL_SOFT_SHARE
from tests.unit.services.inventory.pods.test_collection import World, a_node, a_pod


@pytest.mark.parametrize(("labels", "others"), [({LABEL_SOFT_SHARE: "true"}, 1), ({}, 8)])
@pytest.mark.parametrize("is_late", [False, True])
def test_pods_are_counted_by_the_label_of_now(labels: dict[str, str], others: int, *, is_late: bool) -> None:
    world = World()
    world.nodes.put(a_node("n1", labels={} if labels else {LABEL_SOFT_SHARE: "true"}))
    if not is_late:
        world.nodes.put(a_node("n1", labels=labels))
    world.put(a_pod("p", asked=50))
    if is_late and world.nodes.put(a_node("n1", labels=labels)):
        world.pods.touch_nodes(["n1"])
    due = world.nodes.due(0)
    nodes = {node.name: node for fact in (*due.leaving, *due.rest) for node in unpack_nodes(fact)}
    assert nodes["n1"].chips_others == others
