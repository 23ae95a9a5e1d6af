"""PodGroups of Kubernetes: constraints that are not held, pods beyond the minimum, several schedulers, priority."""

from collections.abc import Iterable
from typing import Any, Final

import pytest

from berth.formats.kubernetes.objects import Pod
from berth.formats.kubernetes.workloads.port import OwnerKey
from berth.schemas.intake import JobRequest, Preemption
from berth.services.inventory.gangs.priorities import PRIORITY_ASSUMED
from berth.services.inventory.gangs.warnings import CONSTRAINT_IGNORED
from tests.support.gang_world import GangWorld, a_group, a_pod, facts_of, members

G: Final = OwnerKey("NativePodGroup", "ns", "g")
GANG: Final = {"schedulingPolicy": {"gang": {"minCount": 2}}}


def pods(count: int, start: int = 0, **more: Any) -> list[Pod]:  # noqa: ANN401 - whatever a pod can have
    spec = {"schedulingGroup": {"podGroupName": "g"}}
    return [a_pod(f"p-{index}", spec=dict(spec), **more) for index in range(start, start + count)]


def a_world(group: dict[str, Any], *there: Pod) -> GangWorld:
    """Pods of a group that was read."""
    world = GangWorld()
    world.pods(*there)
    world.settle()
    world.gangs.set_owner(G, facts_of(G, dict(group)))
    world.settle()
    return world


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, "schedulingConstraints.topology[0].key rack"),
        ({"schedulingConstraints": {"other": [{"key": "x"}]}}, "schedulingConstraints.other[0].key x"),
        ({"parentCompositePodGroupName": "tree"}, "parentCompositePodGroupName tree"),
    ],
)
def test_11_a_group_with_a_constraint_that_is_not_held_waits_and_the_field_is_named(
    asked: dict[str, Any], named: str
) -> None:
    world = a_world(GANG | asked, *pods(2))
    assert world.published == []
    assert world.hold("native.g") == f"PodGroup g has spec.{named}: expected none, it is not held"


@pytest.mark.parametrize("empty", [{}, {"schedulingConstraints": {}}, {"schedulingConstraints": {"topology": []}}])
def test_a_group_without_constraints_starts(empty: dict[str, Any]) -> None:
    assert [request.min_available for request in a_world(GANG | empty, *pods(2)).published] == [2]


def sizes(requests: Iterable[JobRequest]) -> list[int]:
    """Pods of each request."""
    return [sum(task.replicas for task in request.tasks) for request in requests]


def test_all_pods_of_a_group_that_are_there_start_in_one_request() -> None:
    world = a_world(GANG, *pods(4))
    assert [(one.name, sizes([one])) for one in world.published] == [("native.g", [4])]
    assert [one.min_available for one in world.published] == [2]  # the others may leave before all end for another job
    assert world.ranks("native.g") == {f"p-{index}": str(index) for index in range(4)}


def test_a_group_without_room_for_all_starts_with_those_that_must_start_together() -> None:
    world = a_world(GANG, *pods(4))
    world.verdict("native.g", accepted_seq=7)
    world.status("native.g", "waiting", code="no-room")
    world.settle()
    assert [reason for _, _, reason in world.withdrawn] == ["there is no room for all of its 4 pods: 2 start first"]
    assert (sizes(world.published), [one.since_seq for one in world.published]) == ([4, 2], [0, 7])
    world.verdict("native.g")
    world.status("native.g", "placed")
    world.settle()
    assert sizes(world.published) == [4, 2, 1, 1]
    assert [one.min_available for one in world.published] == [2, 2, 1, 1]


def test_a_group_that_starts_anew_asks_for_all_of_its_pods_again() -> None:
    """That there was no room for all of them is of the start before."""
    world = a_world(GANG, *pods(4))
    world.verdict("native.g", accepted_seq=7)
    world.status("native.g", "waiting", code="no-room")
    world.settle()
    world.verdict("native.g")
    world.status("native.g", "placed")
    world.pods(*pods(4, node="n1", phase="Running"))
    world.outcome("native.g")
    world.status("native.g", "running")
    world.settle()
    before = len(world.published)
    for index in range(4):
        world.gangs.drop_pod(f"uid-p-{index}")
    for name in {one.name for one in world.published}:
        world.status(name, "failed")
    world.pods(*pods(4, 4))
    world.settle()
    assert sizes(world.published[before:]) == [4]


def test_a_pod_that_comes_later_joins_the_group_with_the_next_rank() -> None:
    world = a_world(GANG, *pods(2))
    world.verdict("native.g")
    world.status("native.g", "placed")
    world.pods(*pods(2, node="n1", phase="Running"), *pods(1, 2))
    world.outcome("native.g")
    world.status("native.g", "running")
    world.settle()
    later = world.published[1]
    assert (later.annotations["berth/gang-pods"], world.ranks(later.name)) == ("3", {"p-2": "2"})


def test_pods_of_a_group_that_name_two_schedulers_wait_and_both_are_named() -> None:
    world = a_world(GANG, *pods(2), *pods(2, 2, scheduler="default-scheduler"))
    assert world.published == []
    why = "the pods of PodGroup g name several schedulers, berth and default-scheduler: expected one"
    assert world.hold("native.g") == why
    world.gangs.drop_pod("uid-p-2")
    world.gangs.drop_pod("uid-p-3")
    world.settle()
    assert [request.min_available for request in world.published] == [2]


def test_of_a_podgroup_of_volcano_the_pods_of_another_scheduler_are_named_where_pods_are_missing() -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=4))
    world.pods(*members(2), *members(2, 2, scheduler="volcano"))
    world.settle()
    assert world.hold("podgroup.pg") == "2 of at least 4 pods exist; 2 more name scheduler volcano"


@pytest.mark.parametrize(("stated", "counts", "said"), [(5, 5, True), (9, 9, False), (None, 9, False)])
def test_the_priority_of_the_group_counts_and_other_ones_are_named(
    stated: int | None, counts: int, *, said: bool
) -> None:
    world = a_world(GANG | {"priority": stated}, *pods(2, priority=9, priority_class="high"))
    assert [request.priority for request in world.published] == [counts]
    words = {PRIORITY_ASSUMED: "its PodGroup has priority 5, pod p-0 has 9: priority 5 counts"}
    assert world.warnings == [words if said else {}]


HARD: Final = (
    "spec.networkTopology.mode is hard: it is not held, the pods may be below any switch; label tor-affinity or "
    "annotation sp-block keeps them together"
)


@pytest.mark.parametrize(("policy", "said"), [("none", False), ("single-numa-node", True)])
def test_of_a_pod_with_a_policy_for_numa_nodes_it_is_said_that_it_is_not_held(policy: str, *, said: bool) -> None:
    world = GangWorld()
    world.pods(a_pod("p", annotations={"volcano.sh/numa-topology-policy": policy}))
    world.settle()
    assert [list(one) for one in world.warnings] == [[CONSTRAINT_IGNORED] if said else []]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, HARD),
        ({"networkTopology": {"highestTierAllowed": 1}}, HARD),
        ({"networkTopology": {"mode": "soft"}}, ""),
        (
            {"subGroupPolicy": [{"name": "a", "subGroupSize": 2}]},
            "spec.subGroupPolicy has a: it is not held, the PodGroup is one gang",
        ),
    ],
)
def test_18_of_a_podgroup_with_a_constraint_that_is_not_held_it_is_said(asked: dict[str, Any], said: str) -> None:
    world = GangWorld()
    world.gangs.set_group(a_group("pg", least=2, spec=asked))
    world.pods(*members(2))
    world.settle()
    assert world.warnings == [{CONSTRAINT_IGNORED: said} if said else {}]


def test_the_class_of_a_group_says_what_holds_for_all_of_its_pods() -> None:
    of_pods = {"priorityClassName": "system-node-critical", "preemptionPolicy": "Never"}
    there = [a_pod(f"p-{at}", spec={"schedulingGroup": {"podGroupName": "g"}} | of_pods) for at in range(2)]
    own = GANG | {"priority": 5, "priorityClassName": "own", "preemptionPolicy": "PreemptLowerPriority"}
    assert [one.preemption for one in a_world(own, *there).published] == [None]
    meek = GANG | {"priority": 5, "priorityClassName": "system-cluster-critical", "preemptionPolicy": "Never"}
    assert [one.preemption for one in a_world(meek, *pods(2)).published] == [Preemption(never=True, critical=True)]
