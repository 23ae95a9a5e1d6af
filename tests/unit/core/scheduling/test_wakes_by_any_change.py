"""Classes that a change for the worse may help: that nodes become fewer, are taken or lose chips wakes them.

Under ``reference_parity`` a SuperPoD with more free nodes than ``super_pod_size`` bars a job; a plan of levels fills
whole nodes; a task stands in the way of another on the node that it finds best.
"""

from collections.abc import Callable

import pytest

from berth.core.cluster.node_packing import pack_health, pack_nodes
from berth.core.requests.job_validation import SHARE_AICORE, SHARE_HBM, SHARE_POLICY
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import Leaf, NodeHealth, PodPhase, PodsSeen, TopologySeen
from berth.schemas.intake import JobRequest, Task
from berth.schemas.ledger import Round
from berth.schemas.nodes import NodeCondition
from berth.schemas.pod_constraints import PodConstraints
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import HOST, near
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import foreign
from tests.unit.services.dispatcher.test_superpods import in_blocks

A3 = "superpod910a3x16"
NAMES = "abcdef"
TWO_LEVELS = '{"default": {"level1": {"label": "rack"}, "level2": {"label": "hall"}}}'


def a_superpod(**settings: object) -> Seat:
    """A SuperPoD of six nodes that is said to have two, and a job of one block of two nodes, refused for that."""
    seat = Seat(reference_parity=True, super_pod_size=2, reserve_nodes=0, **settings)
    for name in NAMES:
        put(seat, name)
    seat.job(in_blocks("blocks", 2, 2))
    record = seat.round()
    assert record is not None
    refusal = record.verdicts[0].refusal
    assert refusal is not None
    assert refusal.blocks is not None
    assert refusal.blocks.rule == "size"
    return seat


def put(seat: Seat, name: str, *, superpod: str = "0") -> None:
    node = a_node(name, A3, leaf=name, superpod=superpod)
    seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))


def placed(record: Round | None) -> list[str]:
    return [verdict.name for verdict in record.verdicts if verdict.placement is not None] if record is not None else []


def leave(seat: Seat, name: str) -> None:
    seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [], at_ms=1))


def fault(seat: Seat, name: str) -> None:
    seat.ill(name, NodeHealth.NO_NEW_WORK)


def move(seat: Seat, name: str) -> None:
    leave(seat, name)
    put(seat, name, superpod="1")


@pytest.mark.parametrize("how", [leave, fault, move])
def test_nodes_that_go_fail_or_move_wake_the_class(how: Callable[[Seat, str], None]) -> None:
    seat = a_superpod()
    assert seat.round() is None
    for name in NAMES[:3]:
        how(seat, name)
    other = restarted(seat)
    record = seat.round()
    assert placed(record) == ["blocks"]
    assert other.round() == record


def test_nodes_that_others_take_wake_a_class_of_one_pod_that_has_constraints() -> None:
    seat = Seat(
        reference_parity=True,
        super_pod_size=2,
        reserve_nodes=0,
    )
    for name in NAMES:
        put(seat, name)
    shy = PodConstraints(anti_affinity=(near(HOST, app="other"),))
    seat.job(in_blocks("blocks", 1, 1, tasks=[Task("worker", 1, 16, constraints=shy)]))
    assert placed(seat.round()) == []
    for name in NAMES[:3]:
        leave(seat, name)
    assert placed(seat.round()) == []
    foreign(seat, NAMES[3], chips=0xFFFF)
    record = seat.round()
    assert record is not None
    assert len(record.adoptions) == 1
    assert placed(seat.round()) == ["blocks"]


def test_nodes_that_others_take_wake_the_class() -> None:
    seat = a_superpod()
    for name in NAMES[:2]:
        leave(seat, name)
    assert placed(seat.round()) == []
    foreign(seat, NAMES[2], chips=0xFFFF)
    record = seat.round()
    assert record is not None
    assert len(record.adoptions) == 1
    other = restarted(seat)
    record = seat.round()
    assert placed(record) == ["blocks"]
    assert other.round() == record


def test_a_class_that_is_refused_again_sleeps_until_the_next_change() -> None:
    seat = a_superpod()
    leave(seat, "a")
    record = seat.round()
    assert record is not None
    assert placed(record) == []
    assert seat.round() is None


def levels(name: str) -> JobRequest:
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=2"}
    return a_job(name, chips=8, replicas=2, annotations=annotations)


def in_rack(seat: Seat, name: str, *, chips: int = 0xFF) -> None:
    labels = dict(a_node(name).labels) | {"rack": "r", "hall": "h"}
    node = a_node(name, leaf=name, labels=labels, chips=chips, allocatable=chips.bit_count())
    seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [node], at_ms=1))


def test_a_node_with_fewer_chips_wakes_a_class_whose_plan_fills_whole_nodes() -> None:
    seat = Seat(resource_levels=TWO_LEVELS)
    in_rack(seat, "a")
    in_rack(seat, "b", chips=0x1FF)
    seat.job(levels("tree"))
    assert placed(seat.round()) == []
    in_rack(seat, "b")
    other = restarted(seat)
    for one in (seat, other):
        assert placed(one.round()) == ["tree"]
        assert one.round() is None


def in_zone(seat: Seat, name: str, zone: str) -> None:
    labels = dict(a_node(name).labels) | {"zone": zone}
    seat.fact(f"node.leaf-{name}", pack_nodes(f"leaf-{name}", [a_node(name, leaf=name, labels=labels)], at_ms=1))


def two_tasks(name: str, *, picky: int = 1) -> JobRequest:
    """A pod of four chips, and others of eight that may use one zone alone."""
    selector = dict(a_job("j").node_selector)
    tasks = [Task("any", 1, 4), Task("picky", picky, 8, node_selector=selector | {"zone": "red"})]
    return a_job(name, tasks=tasks)


def test_what_others_take_wakes_a_class_whose_tasks_stand_in_the_way_of_one_another() -> None:
    """The first task goes to the fuller node from then on, and leaves the other node to the second."""
    seat = Seat()
    in_zone(seat, "a", "red")
    in_zone(seat, "b", "blue")
    seat.job(two_tasks("both"))
    assert placed(seat.round()) == []
    selector = dict(a_job("j").node_selector) | {"zone": "blue"}
    seat.job(a_job("other", chips=4, node_selector=selector))
    assert placed(seat.round()) == ["other"]
    other = restarted(seat)
    for one in (seat, other):
        assert placed(one.round()) == ["both"]
        assert one.round() is None


def test_a_class_whose_tasks_stand_in_the_way_of_one_another_sleeps_while_chips_are_too_few() -> None:
    """Nobody is tried only to be refused again where a count tells as much."""
    seat = Seat()
    for name in "abc":
        in_zone(seat, name, "red")
    seat.job(two_tasks("both", picky=3))
    assert placed(seat.round()) == []
    seat.job(a_job("other", chips=1))
    assert placed(seat.round()) == ["other"]
    assert seat.round() is None


def test_only_pods_that_find_no_node_behind_others_make_their_class_wake_by_any_change() -> None:
    """Of those that get their nodes first nobody stands in the way, and less room never helps them."""
    seat = Seat("a", "b")
    for chips in (8, 4):
        seat.job(a_job(f"runs-{chips}", chips=chips))
        seat.round()
    seat.job(a_job("first", tasks=[Task("one", 2, 4), Task("two", 1, 1)]))
    seat.job(a_job("second", tasks=[Task("one", 1, 4), Task("two", 1, 1)]))
    seat.job(a_job("alike", tasks=[Task("one", 1, 4), Task("two", 1, 4)]))
    assert placed(seat.round()) == []
    sleeping = {one.uid: one.by_any_change for one in seat.scheduler.dump().sleeping}
    assert sleeping == {"uid-first": False, "uid-second": True, "uid-alike": False}


def test_a_chip_beyond_the_product_that_the_network_loses_wakes_pods_of_a_distributed_job() -> None:
    """Such pods leave it out then, and the node counts as their product."""
    seat = Seat(strict_job_shape=False)
    node = a_node("a", "module910x8", leaf="a", chips=0x1FE)
    seat.fact("node.leaf-a", pack_nodes("leaf-a", [node], at_ms=1))
    seat.ill("a", NodeHealth.OK)
    seat.job(a_job("wide", chips=2, replicas=2, product="module910x8"))
    assert placed(seat.round()) == []
    seat.fact("health.leaf-a", pack_health("leaf-a", [NodeCondition("a", network_unhealthy=0x100)], at_ms=1))
    other = restarted(seat)
    for one in (seat, other):
        assert placed(one.round()) == ["wide"]


def too_many_to_share(**settings: object) -> Seat:
    """A soft-share node whose first chip is shared, and that lists one chip too many to share; a job waits."""
    seat = Seat(**settings)
    for chips in (0xFFFF, 0x1FFFF):
        node = a_node("s", "soft-share", leaf="s", chips=chips, allocatable=chips.bit_count())
        seat.fact("node.leaf-s", pack_nodes("leaf-s", [node], at_ms=1))
        name = "first" if chips == 0xFFFF else "second"
        quota = {SHARE_AICORE: "10", SHARE_HBM: "1024", SHARE_POLICY: "elastic"}
        seat.job(a_job(name, product="soft-share", labels=quota))
        assert placed(seat.round()) == (["first"] if name == "first" else [])
    return seat


def test_a_shared_chip_that_goes_wakes_a_class_to_which_the_node_had_too_many() -> None:
    seat = too_many_to_share()
    seat.fact("health.leaf-s", pack_health("leaf-s", [NodeCondition("s", withheld=1)], at_ms=1))
    other = restarted(seat)
    for one in (seat, other):
        assert placed(one.round()) == ["second"]


def test_a_chip_that_others_take_wakes_a_class_to_which_the_node_had_too_many() -> None:
    seat = too_many_to_share()
    foreign(seat, "s", chips=1 << 16)
    record = seat.round()
    assert record is not None
    assert len(record.adoptions) == 1
    assert placed(seat.round()) == ["second"]


def test_under_parity_pods_that_run_are_a_change_for_those_who_wait() -> None:
    """No row changes by it, but leaf switches do."""
    seat = Seat("a", "b", reference_parity=True)
    seat.fact("topology.switch", TopologySeen("switch", [Leaf("leaf", "leaf", ["a", "b"])]))
    seat.job(a_job("j", chips=8, replicas=2, labels={"tor-affinity": "large-model-schema"}))
    assert placed(seat.round()) == ["j"]
    assert seat.round() is None
    holding = seat.state.fold.holdings["uid-j", 1]
    names = holding.placement.names()
    pods = PodsSeen(
        "default", "j", "uid-j", 1, pack([0, 1], 4), pack_names(names), pack([0, 1], 4), pack([PodPhase.RUNNING] * 2, 1),
        pack([0xFF] * 2, 8),
    )  # fmt: skip
    seat.fact("pod.default.j", pods)
    assert seat.scheduler.dump().nodes_changed
