"""Pods that somebody made from the text of a bound one, with its node and its marks."""

from berth.core.cluster.node_packing import unpack_nodes
from berth.schemas.columns import unpack
from tests.unit.services.inventory.pods.test_collection import World, a_pod, accepted, status

JOB = ("job", "j1", 1, 0)


def cell() -> World:
    """A job of one pod runs."""
    world = World()
    world.pods.note_job(accepted("job", "j1", 1))
    world.pods.note_status(status("job", "j1", 1, "running"))
    world.put(a_pod("one", chips="Ascend910-0,Ascend910-1", job=JOB))
    return world


def copy(world: World) -> None:
    world.put(a_pod("two", chips="Ascend910-2,Ascend910-3", job=JOB, created="2026-11-20T08:30:00Z"))


def counted(world: World) -> dict[str, int]:
    """Chips in the newest fact of each gang, and those that the node has given to others."""
    found = {}
    for fact in world.facts():
        found[fact.gang] = sum(unpack(fact.chips, 8)) if fact.phase else 0
    due = world.nodes.due(0)
    others = [
        node.chips_others for fact in (*due.leaving, *due.rest) for node in unpack_nodes(fact) if node.name == "n1"
    ]
    return found | {"others": others[-1]} if others else found


def test_the_pod_that_was_there_first_has_the_rank_and_its_copy_counts_beside_it() -> None:
    world = cell()
    copy(world)
    assert counted(world) == {"job": 0b11, "pod/two": 0b1100, "others": 0}


def test_a_copy_that_goes_gives_back_what_it_had() -> None:
    world = cell()
    assert counted(world) == {"job": 0b11, "others": 0}
    copy(world)
    assert counted(world) == {"pod/two": 0b1100, "others": 0}
    world.pods.remove("uid-two")
    assert counted(world) == {"pod/two": 0, "others": 0}


def test_a_copy_has_the_rank_once_the_first_pod_is_gone() -> None:
    world = cell()
    copy(world)
    counted(world)
    world.pods.remove("uid-one")
    assert counted(world) == {"job": 0b1100, "pod/two": 0, "others": 0}
