"""PodGroups where queues are in force: their queue lets them in, whatever is free, and they keep their turn."""

import pytest

from berth.core.queues.tree import tree_of
from berth.schemas.queues.queue import CHIP, Queue
from berth.services.inventory.podgroups.queue_admission import PODS_MAX
from tests.support.gang_world import CHIPS, a_group
from tests.unit.services.inventory.podgroups.test_collection import GroupWorld, pending

ENABLED = "huawei.com/schedule_enable_dequeue"


def world_of(*queues: Queue, chips: int = 0) -> GroupWorld:
    world = GroupWorld(chips=chips)
    world.gangs.groups.set_queues(tree_of(queues))
    return world


def test_a_group_is_admitted_although_no_chip_is_free() -> None:
    world = world_of(Queue("a", capability={CHIPS: 16 * CHIP}))
    world.show(pending(queue="a"))
    world.run()
    assert world.phase() == "Inqueue"


@pytest.mark.parametrize(
    ("queue", "why"),
    [
        ("nowhere", "queue nowhere does not exist"),
        ("shut", "queue shut is Closed"),
        ("theirs", "queue theirs is not for jobs of namespace ns"),
    ],
)
def test_a_group_waits_whose_queue_lets_nobody_in_until_it_does(queue: str, why: str) -> None:
    world = world_of(Queue("shut", state="Closed"), Queue("theirs", namespaces=["others"]), chips=16)
    world.show(pending(queue=queue))
    world.run()
    assert (world.phase(), world.condition()[2]) == ("Pending", why)
    world.gangs.groups.set_queues(tree_of([Queue(queue)]))
    world.run()
    assert world.phase() == "Inqueue"


def test_a_group_keeps_its_turn_however_long_it_waits_unless_it_asks_to_go_back() -> None:
    world = world_of(Queue("a"), chips=16)
    world.show(pending("waits", queue="a"), pending("asks", queue="a", annotations={ENABLED: "on"}))
    world.run()
    world.run(after_s=100_000)
    assert (world.phase("waits"), world.phase("asks")) == ("Inqueue", "Pending")


def test_a_queue_has_no_more_pods_that_wait_than_its_bound_but_one_large_job() -> None:
    world = world_of(Queue("a"), Queue("b"), chips=16)
    world.show(a_group("large", phase="Pending", queue="a", least=PODS_MAX + 1))
    world.run()
    world.show(a_group("next", phase="Pending", queue="a", least=1), a_group("other", phase="Pending", queue="b"))
    world.run()
    assert [world.phase(name) for name in ("large", "next", "other")] == ["Inqueue", "Pending", "Inqueue"]
    assert world.condition("next")[2] == "queue a has 10,001 pods of jobs that wait, and this job has 1: at most 10,000"


def test_without_queues_groups_are_admitted_by_what_is_free_again() -> None:
    world = world_of(Queue("a"))
    world.gangs.groups.set_queues(None)
    world.show(pending(queue="a"))
    world.run()
    assert world.phase() == "Pending"
