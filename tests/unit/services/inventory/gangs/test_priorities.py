"""Priorities of jobs: of their pods, otherwise of the PriorityClass of their PodGroup."""

from typing import Any

import pytest

from berth.formats.kubernetes.lean import Meta
from berth.formats.kubernetes.policies import PriorityClass
from berth.services.inventory.gangs.priorities import PRIORITY_ASSUMED
from tests.support.gang_world import BASE, GangWorld, a_group, a_pod, members


def classes(default: str = "", **values: int) -> list[PriorityClass]:
    return [
        PriorityClass(metadata=Meta(name=name), value=value, global_default=name == default)
        for name, value in values.items()
    ]


@pytest.mark.parametrize(
    ("pods", "group", "default", "wanted"),
    [
        ({"priority": 0}, "high", "", 1000),
        ({}, "high", "", 1000),
        ({"priority": 5, "priority_class": "own"}, "high", "", 5),
        ({"priority": 7, "priority_class": "usual"}, "high", "usual", 1000),
        ({"priority": 7, "priority_class": "usual"}, "", "usual", 7),
        ({"priority": 0}, "missing", "", 0),
        ({"priority": 0}, "system-node-critical", "", 2_000_001_000),
    ],
)
def test_the_class_of_the_podgroup_counts_when_its_pods_have_none(
    pods: dict[str, Any], group: str, default: str, wanted: int
) -> None:
    world = GangWorld()
    world.gangs.set_priority_classes(classes(default, high=1000, own=5, usual=7))
    world.gangs.set_group(a_group("pg", least=2, priority_class=group))
    world.pods(*members(2, **pods))
    world.settle()
    assert world.requests[BASE].priority == wanted
    missing = "PodGroup names the PriorityClass missing, which does not exist: priority 0 counts"
    assert world.warnings == [{PRIORITY_ASSUMED: missing} if group == "missing" else {}]


def test_nothing_is_missing_before_the_classes_are_listed() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=1, priority_class="high"))
    world.pods(*members(1))
    world.settle()
    assert world.warnings == [{}]


def test_a_job_that_waits_gets_the_priority_that_its_class_gets() -> None:
    world = GangWorld()
    world.gangs.set_priority_classes([])
    world.gangs.set_group(a_group("pg", least=2, priority_class="high"))
    world.pods(*members(2, priority=0))
    world.settle()
    uid = world.requests[BASE].uid
    world.verdict(BASE)
    world.status(BASE, "waiting")
    world.gangs.set_priority_classes(classes(high=10))
    world.settle()
    assert (world.withdrawn, world.requests[BASE].uid, world.requests[BASE].priority) == ([], uid, 10)
    world.verdict(BASE)
    world.status(BASE, "placed")
    world.gangs.set_priority_classes(classes(high=20))
    world.settle()
    assert [request.priority for request in world.published] == [0, 10]


def test_pods_of_different_priorities_start_with_the_highest_and_it_is_said() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=3))
    priorities = (10, 0, 10)
    world.pods(
        *(
            a_pod(f"p-{at}", group="pg", priority=value, priority_class=f"c{value}")
            for at, value in enumerate(priorities)
        )
    )
    world.settle()
    assert world.requests[BASE].priority == 10
    differs = "its pods have different priorities, p-0 has 10, p-1 has 0: priority 10 counts"
    assert world.warnings == [{PRIORITY_ASSUMED: differs}]
