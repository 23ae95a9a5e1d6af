"""PodGroups where queues are in force: their queue lets them in, whatever is free, and they keep their turn."""

from typing import Any

import pytest

from berth.core.queues.tree import tree_of
from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.policies import PriorityClass
from berth.schemas.queues.queue import CHIP, Queue
from berth.services.inventory.podgroups.queue_admission import PODS_MAX
from tests.support.gang_world import BASE, CHIPS, a_group, a_pod
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


@pytest.mark.parametrize(
    ("group", "tree", "why"),
    [
        ({"queue": "a"}, [Queue("a", state="Closing")], "queue a is Closing"),
        ({"queue": "a"}, [Queue("b")], "queue a does not exist"),
        ({"queue": "theirs"}, [Queue("a"), Queue("theirs", namespaces=["x"])], "queue theirs is not for jobs of"),
        (
            {"queue": "a", "least": PODS_MAX},
            [Queue("a")],
            "queue a has 4 pods of jobs that wait, and this job has 10,000: at most 10,000",
        ),
    ],
    ids=("closes", "deleted", "names-another", "needs-more"),
)
def test_a_group_that_is_admitted_goes_back_when_its_queue_does_not_let_it_in_any_more(
    group: dict[str, Any], tree: list[Queue], why: str
) -> None:
    world = world_of(Queue("a"), chips=16)
    world.show(pending(queue="a"), pending("other", queue="a"))
    world.run()
    assert world.phase() == "Inqueue"
    world.gangs.groups.set_queues(tree_of(tree))
    world.show(a_group("pg", version="50", **{"least": 4, **group}))
    world.run()
    assert world.phase() == "Pending"
    assert world.condition()[2].startswith(why)
    world.gangs.groups.set_queues(tree_of([Queue("a"), Queue("theirs")]))
    world.show(a_group("pg", version="70", phase="Pending", **{**group, "least": 4}))
    world.run()
    assert world.phase() == "Inqueue"


def test_only_the_group_that_has_changed_goes_back() -> None:
    world = world_of(Queue("a"), chips=16)
    half = PODS_MAX // 2
    world.show(*(a_group(name, phase="Pending", queue="a", least=half) for name in ("first", "second")))
    world.run()
    world.show(a_group("first", version="50", queue="a", least=half + 1))
    world.run()
    world.show(a_group("second", version="60", queue="a", least=half, labels={"any": "thing"}))
    world.run()
    assert (world.phase("first"), world.phase("second")) == ("Pending", "Inqueue")


def test_a_group_that_is_admitted_and_names_another_queue_counts_there() -> None:
    world = world_of(Queue("a"), Queue("b"), chips=16)
    world.show(a_group("large", phase="Pending", queue="a", least=PODS_MAX))
    world.run()
    world.show(a_group("large", version="50", queue="b", least=PODS_MAX))
    world.run()
    world.show(a_group("in-a", phase="Pending", queue="a"), a_group("in-b", phase="Pending", queue="b"))
    world.run()
    assert [world.phase(name) for name in ("large", "in-a", "in-b")] == ["Inqueue", "Inqueue", "Pending"]


def test_a_group_of_which_a_pod_has_a_node_stays_whatever_becomes_of_its_queue() -> None:
    world = world_of(Queue("a"), chips=16)
    world.show(a_group("pg", least=1, queue="a"))
    world.pods(a_pod("p-0", group="pg", node="n1", phase="Running"))
    world.run()
    world.show(a_group("pg", version="50", least=2, queue="nowhere"))
    world.gangs.groups.set_queues(tree_of([Queue("a", state="Closed")]))
    world.run()
    assert (world.phase(), world.withdrawn) == ("Inqueue", [])


@pytest.mark.parametrize("how", ["deleted", "placed", "moved"])
def test_the_next_group_is_admitted_once_its_queue_has_fewer_pods_that_wait(how: str) -> None:
    world = world_of(Queue("a"), Queue("b"), chips=16)
    world.show(a_group("large", phase="Pending", queue="a", least=PODS_MAX))
    world.run()
    world.show(a_group("next", phase="Pending", queue="a"), a_group("other", phase="Pending", queue="nowhere"))
    world.run()
    assert world.phase("next") == "Pending"
    if how == "deleted":
        del world.shown["large"]
        world.gangs.drop_group("ns", "large")
    elif how == "placed":
        world.pods(a_pod("p-0", group="large", node="n1", phase="Running"))
    else:
        world.show(a_group("large", version="50", queue="b", least=PODS_MAX))
    world.run()
    assert (world.phase("next"), world.phase("other")) == ("Inqueue", "Pending")


def test_admissions_are_written_by_priority_then_age_then_name() -> None:
    world = world_of(Queue("a"), chips=16)
    world.gangs.set_priority_classes([PriorityClass(metadata=Meta(name="high"), value=9)])
    later = "2026-11-20T10:00:01Z"
    world.show(
        pending("b", queue="a", created=later),
        pending("a", queue="a", created=later),
        pending("d", queue="a"),
        pending("c", queue="a", created=later, priority_class="high"),
    )
    world.settle()
    assert [patch.name for patch in world.patches] == ["c", "d", "a", "b"]


def test_a_class_that_is_raised_while_groups_wait_decides_who_is_admitted() -> None:
    world = world_of(Queue("a", state="Closed"), chips=16)
    world.gangs.set_priority_classes([PriorityClass(metadata=Meta(name="low"), value=1)])
    half = PODS_MAX // 2 + 1
    for name, kind in (("first", ""), ("raised", "low")):
        world.show(a_group(name, phase="Pending", queue="a", least=half, priority_class=kind))
    world.run()
    world.gangs.set_priority_classes([PriorityClass(metadata=Meta(name="low"), value=100)])
    world.gangs.groups.set_queues(tree_of([Queue("a")]))
    world.run()
    assert (world.phase("first"), world.phase("raised")) == ("Pending", "Inqueue")


def test_a_group_goes_back_also_if_the_first_patch_meets_another_writer() -> None:
    world = world_of(Queue("a"), chips=16)
    world.show(pending(queue="a"), pending("other", queue="a"))
    world.run()
    world.show(a_group("pg", version="50", queue="a", least=PODS_MAX))
    world.settle()
    assert [patch.patch["status"]["phase"] for patch in world.patches] == ["Pending"]  # type: ignore[index]  # JSON
    world.patches.clear()
    world.show(a_group("pg", version="51", queue="a", least=PODS_MAX, labels={"any": "thing"}))
    world.run()
    assert world.phase() == "Pending"


def test_groups_that_were_admitted_before_queues_were_in_force_stay_however_many_pods_they_have() -> None:
    world = GroupWorld(chips=16)
    world.show(*(a_group(name, queue="a", least=PODS_MAX) for name in ("first", "second")))
    world.run()
    world.gangs.groups.set_queues(tree_of([Queue("a")]))
    world.run()
    assert [world.phase(name) for name in ("first", "second")] == ["Inqueue", "Inqueue"]


def test_a_group_that_has_chips_stays_although_none_of_its_pods_is_bound_yet() -> None:
    world = world_of(Queue("a"), chips=16)
    world.show(a_group("pg", least=1, queue="a"))
    world.pods(a_pod("p-0", group="pg"))
    world.run()
    world.verdict(BASE)
    world.status(BASE, "placed")
    world.gangs.groups.set_queues(tree_of([Queue("a", state="Closed")]))
    world.run()
    assert (world.phase(), world.withdrawn) == ("Inqueue", [])
