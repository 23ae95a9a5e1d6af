"""Preferences of pods without chips: they count beside free cpu and memory, as in kube-scheduler."""

import msgspec
import pytest

from berth.schemas.constraints import Taint, Toleration
from berth.schemas.intake import Task
from berth.schemas.pod_constraints import PodConstraints, PreferredNodes, PreferredPods
from tests.support.constraint_worlds import HOST, OnePod, near
from tests.support.core_cells import CoreCell
from tests.unit.core.constraints.test_constraints import IN_B, ZONES, a_cell, in_zone, job, nodes_of, say

AVOIDED = Taint("slow", "yes", "PreferNoSchedule")


def node_of(cell: CoreCell, name: str, task: Task) -> str:
    """Node of a pod without chips that asks for little."""
    request = msgspec.structs.replace(
        job(name, msgspec.structs.replace(task, chips=0, cpu_milli=1_000, memory_mib=1_000)), resource=""
    )
    cell.ask(msgspec.structs.replace(request, node_selector={}))
    (verdict,) = cell.decide()
    (node,) = nodes_of(verdict)
    return node


def busy(cell: CoreCell, *nodes: str) -> None:
    """Most of the cpu and memory of some nodes is taken."""
    for name in nodes:
        task = Task("worker", 1, 1, cpu_milli=150_000, memory_mib=1_200_000, node_selector={HOST: name})
        cell.ask(job(f"busy-{name}", task))
        cell.decide()


def tainted(*names: str) -> CoreCell:
    """A cell of which some nodes are to be avoided."""
    nodes = [in_zone(name, zone) for name, zone in ZONES.items()]
    return CoreCell(
        [msgspec.structs.replace(node, taints=[AVOIDED] if node.name in names else []) for node in nodes],
        keeps=False,
    )


@pytest.mark.parametrize(
    ("wanted", "node"),
    [
        (PodConstraints(preferred_near=(PreferredPods(1, near(HOST, app="data")),)), "b2"),
        (PodConstraints(preferred_apart=(PreferredPods(1, near("zone", app="data")),)), "a1"),
        (PodConstraints(preferred_nodes=(PreferredNodes(1, IN_B),)), "b1"),
    ],
)
def test_a_preferred_term_outweighs_free_cpu_and_memory(wanted: PodConstraints, node: str) -> None:
    cell = a_cell(ZONES)
    say(cell, OnePod("b2", labels={"app": "data"}))
    busy(cell, "a1", "a2") if node == "a1" else busy(cell, "b1", "b2")
    assert node_of(cell, "job", Task("worker", 1, 0, constraints=wanted)) == node


def test_free_cpu_and_memory_decide_between_nodes_that_are_preferred_alike() -> None:
    cell = a_cell(ZONES)
    say(cell)
    busy(cell, "b1")
    wanted = PodConstraints(preferred_nodes=(PreferredNodes(1, IN_B),))
    assert node_of(cell, "job", Task("worker", 1, 0, constraints=wanted)) == "b2"


def test_a_node_that_is_to_be_avoided_gets_pods_only_when_no_other_has_room() -> None:
    cell = tainted("a1", "a2", "b1")
    busy(cell, "b2")
    assert node_of(cell, "one", Task("worker", 1, 0)) == "b2"
    only = tainted(*ZONES)
    assert node_of(only, "one", Task("worker", 1, 0)) == "a1"


def test_a_pod_that_tolerates_the_taint_is_not_kept_away() -> None:
    cell = tainted("a1", "a2", "b1")
    busy(cell, "b2")
    tolerations = [Toleration("slow", "Exists", "", "PreferNoSchedule")]
    assert node_of(cell, "one", Task("worker", 1, 0, tolerations=tolerations)) == "a1"


def test_two_preferences_outweigh_a_taint_and_one_does_not() -> None:
    """The weights are 2 for each kind of affinity and 3 for taints."""
    near_data = PodConstraints(preferred_near=(PreferredPods(1, near(HOST, app="data")),))
    both = msgspec.structs.replace(near_data, preferred_nodes=(PreferredNodes(1, IN_B),))
    for wanted, node in ((near_data, "a1"), (both, "b2")):
        cell = tainted("b2", "b1")
        say(cell, OnePod("b2", labels={"app": "data"}))
        assert node_of(cell, "job", Task("worker", 1, 0, constraints=wanted)) == node


def test_pods_with_chips_go_by_the_rules_for_chips_first() -> None:
    cell = tainted("a1")
    cell.ask(job("one", Task("worker", 1, 1)))
    (verdict,) = cell.decide()
    assert nodes_of(verdict) == ["a1"]
