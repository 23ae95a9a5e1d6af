"""Pods that an earlier attempt bound, and the ranks that they leave."""

from tests.support.gang_world import a_pod, running
from tests.unit.services.inventory.gangs.test_replacements import new, recovers, uids


def test_pods_of_an_attempt_that_is_over_make_room_though_their_end_is_seen_together_with_the_next_attempt() -> None:
    world = running()
    bound = {"berth/attempt": "1"}
    world.pods(*[a_pod(f"p-{rank}", group="pg", node="n1", phase="Running", annotations=bound) for rank in range(4)])
    world.settle()
    for rank in range(4):
        world.gangs.drop_pod(f"uid-p-{rank}")
        world.pods(new(f"p-{rank}"))
    recovers(world, phase="placed", attempt=2, of_attempt=1, scope="job")
    world.settle()
    assert uids(world) == ["new-p-0", "new-p-1", "new-p-2", "new-p-3"]
    again = [new(f"p-{rank}", node="n2", annotations={"berth/attempt": "2"}) for rank in range(4)]
    world.pods(*again)
    world.settle()
    world.gangs.drop_pod("new-p-2")
    world.pods(a_pod("p-2", uid="third", group="pg"))
    world.settle()
    assert uids(world)[2] == "new-p-2", "a pod of the present attempt keeps its rank until that is rolled back"
    assert (len(world.published), world.withdrawn) == (1, [])
