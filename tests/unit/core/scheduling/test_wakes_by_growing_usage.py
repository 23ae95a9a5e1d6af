"""Gangs with constraints that sleep, and pods of others that take what the first pod of a gang had chosen.

It goes elsewhere from then on, and what it leaves is what the next pod needs. No chips, cpu or memory change.
"""

from collections.abc import Mapping
from typing import Final

import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import HostPort, PodConstraints, PreferredPods, SpreadTerm
from berth.schemas.usage_facts import UNLIMITED
from berth.schemas.volume_facts import ClaimSeen, VolumeSeen
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, NONE, OneNode, OnePod, having, near, usage_of
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_wakes_by_any_change import in_zone, placed

RDMA: Final = "rdma/hca"
PORT: Final = PodConstraints(ports=(HostPort(80),))
ALL_RDMA: Final = PodConstraints(resources=((RDMA, 2),))
SHY: Final = PodConstraints(anti_affinity=(near(HOST, app="first"),))


def use(seat: Seat, *pods: OnePod, limits: Mapping[str, int] | None = None, on_a: int = 2) -> None:
    """Pods of others, most pods of some nodes, and how much the first node offers of a resource."""
    most = limits or {}
    nodes = [OneNode(name, {}, most.get(name, 110), {RDMA: on_a if name == "a" else 2}) for name in "abc"]
    seat.fact("usage.all", usage_of("all", nodes, pods))


def two_pods(first: PodConstraints) -> JobRequest:
    """A pod that goes to the first node by name, and another one that needs that node."""
    selector = dict(a_job("j").node_selector)
    tasks = [
        Task("any", 1, 8, labels={"app": "first"}, constraints=first, node_selector=selector | {"zone": "red"}),
        Task("picky", 1, 8, labels={"app": "next"}, node_selector=selector | {"hall": "one"}),
    ]
    return a_job("both", tasks=tasks)


def a_cell(first: PodConstraints, *pods: OnePod) -> Seat:
    """Two nodes that take a whole pod, a third one that has too few chips, and a gang that finds no room."""
    seat = Seat()
    for name in "abc":
        labels = dict(a_node(name).labels) | {"zone": "red", "hall": "one" if name == "a" else "two"}
        chips = 1 if name == "c" else 0xFF
        node = a_node(name, leaf=name, labels=labels, chips=chips, allocatable=chips.bit_count())
        seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))
    use(seat, *pods)
    seat.job(two_pods(first))
    assert placed(seat.round()) == []
    assert seat.round() is None
    return seat


def see_placed(seat: Seat) -> None:
    """The gang is placed, also by a reader of a snapshot that was written before."""
    other = restarted(seat)
    for one in (seat, other):
        assert placed(one.round()) == ["both"]
        assert one.round() is None


NEAR: Final = PodConstraints(preferred_near=(PreferredPods(1, near(HOST, app="b")),))
APART: Final = PodConstraints(preferred_apart=(PreferredPods(1, near(HOST, app="b")),))
EVENLY: Final = PodConstraints(preferred_spread=(SpreadTerm(HOST, 1, having(app="b")),))


@pytest.mark.parametrize(
    ("first", "pod"),
    [
        (PORT, OnePod("a", constraints=PORT)),
        (ALL_RDMA, OnePod("a", constraints=PodConstraints(resources=((RDMA, 1),)))),
        (NEAR, OnePod("b", labels={"app": "b"})),
        (APART, OnePod("a", labels={"app": "b"})),
        (EVENLY, OnePod("a", labels={"app": "b"})),
    ],
    ids=["a port", "a resource", "preferred near", "preferred apart", "preferred evenly"],
)
def test_a_pod_of_others_that_makes_the_first_pod_go_elsewhere_wakes_the_gang(
    first: PodConstraints, pod: OnePod
) -> None:
    seat = a_cell(first)
    use(seat, pod)
    see_placed(seat)


def test_a_pod_that_repels_the_first_one_wakes_the_gang_although_others_repelled_it_before() -> None:
    seat = a_cell(NONE, OnePod("c", constraints=SHY))
    use(seat, OnePod("c", constraints=SHY), OnePod("a", constraints=SHY))
    see_placed(seat)


@pytest.mark.parametrize(
    ("first", "before", "pod"),
    [(PORT, (), OnePod("a", constraints=PORT)), (NONE, (OnePod("c", constraints=SHY),), OnePod("a", constraints=SHY))],
    ids=["a port", "a pod that repels"],
)
def test_a_turn_knows_what_several_facts_took(first: PodConstraints, before: tuple[OnePod, ...], pod: OnePod) -> None:
    seat = a_cell(first, *before)
    use(seat, *before, pod)
    use(seat, *before, pod, OnePod("b"))
    see_placed(seat)


def test_a_node_that_offers_less_of_a_resource_wakes_the_gang() -> None:
    seat = a_cell(ALL_RDMA)
    use(seat, on_a=1)
    see_placed(seat)


def test_a_node_that_takes_fewer_volumes_wakes_the_gang() -> None:
    seat = Seat()
    seat.fact("claim.default.data", ClaimSeen("default", "data", phase="bound", volume="pv"))
    seat.fact("volume.pv", VolumeSeen("pv", driver="disk", handle="pv"))
    for name, zone in (("a", "red"), ("b", "blue")):
        in_zone(seat, name, zone)
    selector = dict(a_job("j").node_selector) | {"zone": "red"}
    tasks = [
        Task("any", 1, 8, constraints=PodConstraints(claims=("data",))),
        Task("picky", 1, 8, node_selector=selector),
    ]
    for most, seen in ((1, []), (0, ["both"])):
        nodes = [OneNode("a", volumes={"disk": most}), OneNode("b", volumes={"disk": 1})]
        seat.fact("usage.all", usage_of("all", nodes, ()))
        if most:
            seat.job(a_job("both", tasks=tasks))
        assert placed(seat.round()) == seen


def three_pods(*, most: int = 1) -> Seat:
    """Three shapes without constraints: the first goes to the fullest node, the second to the first by name."""
    seat = Seat()
    for name, zone in (("a", "one"), ("b", "two"), ("c", "full")):
        chips = 0xF if name == "c" else 0xFF
        labels = dict(a_node(name).labels) | {zone: "yes", "not-b": str(name != "b"), "not-c": str(name != "c")}
        labels["not-a"] = str(name != "a")
        node = a_node(name, leaf=name, labels=labels, chips=chips, allocatable=chips.bit_count())
        seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))
    use(seat, limits={"c": most})
    selector = dict(a_job("j").node_selector)
    tasks = [
        Task("x", 1, 4, node_selector=selector | {"not-a": "True"}),
        Task("y", 1, 3, node_selector=selector | {"not-c": "True"}),
        Task("z", 1, 8, node_selector=selector | {"one": "yes"}),
    ]
    seat.job(a_job("both", tasks=tasks))
    assert placed(seat.round()) == []
    return seat


def test_the_last_place_of_a_node_that_is_taken_wakes_a_gang_without_constraints() -> None:
    """Its first pod goes to another node, which the second one likes better from then on."""
    seat = three_pods()
    use(seat, OnePod("c"), limits={"c": 1})
    see_placed(seat)


@pytest.mark.parametrize("most", [1, UNLIMITED])
def test_a_node_that_allows_fewer_pods_wakes_it_too(most: int) -> None:
    seat = three_pods(most=most)
    use(seat, limits={"c": 0})
    see_placed(seat)


@pytest.mark.parametrize("wanted", [PORT, ALL_RDMA, APART])
def test_a_gang_of_pods_that_are_alike_and_ask_nothing_of_other_nodes_sleeps_on(wanted: PodConstraints) -> None:
    """Each node takes as many of them, wherever the first one goes."""
    seat = Seat()
    for name in "ab":
        in_zone(seat, name, "red")
    use(seat)
    seat.job(a_job("alike", tasks=[Task("worker", 3, 4, cpu_milli=100_000, constraints=wanted)]))
    assert placed(seat.round()) == []
    takes = PodConstraints(ports=(HostPort(80),), resources=((RDMA, 1),))
    use(seat, OnePod("a", labels={"app": "b"}, constraints=takes))
    assert seat.round() is None


def test_a_gang_that_is_planned_whole_wakes_when_a_port_is_taken() -> None:
    """The plan has both pods in one zone, where the second may not be beside the first."""
    seat = Seat(super_pod_size=2, reserve_nodes=0)
    nodes = [
        a_node(
            name,
            "superpod850x8",
            superpod=superpod,
            rack="0",
            labels={**a_node(name, "superpod850x8").labels, "zone": zone},
        )
        for name, superpod, zone in (("a", "0", "red"), ("b", "0", "blue"), ("c", "1", "red"))
    ]
    seat.fact("node.all", pack_nodes("all", nodes, at_ms=1))
    use(seat)
    even = PodConstraints(spread=(SpreadTerm("zone", 1, having(app="first")),))
    tasks = [
        Task("worker", 1, 8, labels={"app": "first"}, constraints=PORT),
        Task("same", 1, 8, labels={"app": "first"}, constraints=even),
    ]
    annotations = {"huawei.com/schedule_policy": "chip8-node8-sp", "sp-block": "8"}
    seat.job(a_job("both", product="superpod850x8", tasks=tasks, annotations=annotations))
    record = seat.round()
    assert placed(record) == []
    use(seat, OnePod("c", constraints=PORT))
    see_placed(seat)


@pytest.mark.parametrize(
    "pod",
    [
        OnePod("a", constraints=PodConstraints(ports=(HostPort(81),))),
        OnePod("a", constraints=ALL_RDMA),
        OnePod("c", constraints=PORT),
        OnePod("a", labels={"app": "b"}),
    ],
    ids=["another port", "a resource", "on a node that takes none of its pods", "with a label"],
)
def test_pods_of_others_that_the_gang_does_not_meet_let_it_sleep(pod: OnePod) -> None:
    seat = a_cell(PORT)
    use(seat, pod)
    assert seat.round() is None
