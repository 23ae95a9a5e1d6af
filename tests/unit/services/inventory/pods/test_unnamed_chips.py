"""Chips that bound pods ask for and that no fact of them names: how many are counted on their nodes."""

import pytest

from berth.core.cluster.node_packing import unpack_nodes
from berth.products.model import LABEL_SOFT_SHARE
from berth.schemas.columns import unpack
from berth.schemas.nodes import NodeDescription
from berth.services.inventory.pods.collection import Pods
from berth.services.inventory.usage.collection import Usage
from tests.unit.services.inventory.pods.test_collection import World, a_node, a_pod, accepted, status

NAMING_MS = 10_000
REAL = "huawei.com/AscendReal"


def a_world() -> World:
    world = World()
    world.pods = Pods(world.nodes, Usage(), lambda row: row.queue, await_job_ms=1000, naming_ms=NAMING_MS)
    return world


def others_at_last(world: World) -> int:
    """:func:`others`, once all facts of pods are published."""
    world.facts()
    return others(world)[0]


def others(world: World, node: str = "n1") -> tuple[int, bool]:
    """Chips of pods that nobody has named on a node, and whether some may be soon."""
    found: dict[str, NodeDescription] = {}
    due = world.nodes.due(world.now_ms)
    for fact in (*due.leaving, *due.rest):
        found.update((one.name, one) for one in unpack_nodes(fact))
    return found[node].chips_others, found[node].is_unsettled


@pytest.mark.parametrize(
    ("annotations", "count"),
    [
        ({}, 4),
        ({REAL: "Ascend910-1,Ascend910-2"}, 2),
        ({REAL: "Ascend910-x"}, 4),
        ({REAL: "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3,Ascend910-4"}, 4),
        ({REAL: "Ascend910-8,Ascend910-9,Ascend910-10,Ascend910-11"}, 4),
        ({REAL: "Ascend910-0,Ascend910-1,Ascend910-2,Ascend910-3"}, 0),
    ],
    ids=["none", "two of four", "unreadable", "more than asked", "not of its node", "all"],
)
def test_what_annotations_do_not_name_counts_by_the_number(annotations: dict[str, str], count: int) -> None:
    world = a_world()
    world.put(a_pod("alien", asked=4, annotations=annotations))
    assert others(world) == (count, count > 0)


def test_annotations_that_name_another_number_than_was_asked_are_told() -> None:
    world = a_world()
    world.put(a_pod("few", asked=4, chips="Ascend910-0"), a_pod("many", asked=1, chips="Ascend910-2,Ascend910-3"))
    assert world.pods.reasons == {
        "uid-few": "pod team/few: its annotations name 1 chips: expected the 4 that it asks for",
        "uid-many": "pod team/many: its annotations name 2 chips: expected the 1 that it asks for",
    }


def test_a_pod_has_its_chips_while_it_lives() -> None:
    world = a_world()
    for changes, count in (({"phase": "Pending"}, 2), ({"ending": True}, 2), ({"phase": "Failed"}, 0)):
        world.put(a_pod("alien", **changes))
        assert others(world)[0] == count
    world.put(a_pod("other"))
    assert others(world)[0] == 2
    world.pods.remove("uid-other")
    assert others(world)[0] == 0


def test_chips_count_by_the_number_until_the_fact_that_names_them_is_published() -> None:
    world = a_world()
    world.put(a_pod("alien"))
    assert others(world)[0] == 2
    world.put(a_pod("alien", annotations={REAL: "Ascend910-4,Ascend910-5"}))
    world.nodes.put(a_node("n1", 7))
    assert others(world)[0] == 2
    assert [fact.chips[0] for fact in world.facts()] == [0b110000]
    assert others(world) == (0, False)


def test_chips_may_be_named_for_two_periods() -> None:
    world = a_world()
    world.put(a_pod("alien"))
    assert world.pods.next_due_ms() == NAMING_MS
    assert others(world) == (2, True)
    world.now_ms = NAMING_MS
    world.facts()
    assert others(world) == (2, False)
    assert world.pods.next_due_ms() is None


def test_pods_of_a_job_count_by_the_number_until_the_job_is_known() -> None:
    world = a_world()
    world.put(a_pod("mine", job=("j", "u", 1, 0), chips="Ascend910-0,Ascend910-1"))
    assert others(world)[0] == 2
    world.pods.note_job(accepted("j", "u", 1))
    assert others(world) == (0, False)


def test_pods_of_an_attempt_that_is_over_count() -> None:
    world = a_world()
    world.pods.note_job(accepted("j", "u", 1))
    world.pods.note_status(status("j", "u", 1, "failed"))
    world.put(a_pod("mine", job=("j", "u", 1, 0)))
    assert others(world)[0] == 2


def test_parts_of_chips_count_as_whole_ones() -> None:
    world = a_world()
    world.nodes.put(a_node("n1", labels={LABEL_SOFT_SHARE: "true"}))
    world.put(a_pod("alien", asked=150))
    assert others(world)[0] == 2
    world.put(a_pod("named", asked=30, chips="Ascend910-0"))
    assert others(world)[0] == 2


def test_chips_that_two_pods_name_count_for_both_and_are_told() -> None:
    world = a_world()
    world.put(a_pod("a", chips="Ascend910-0,Ascend910-1"), a_pod("b", chips="Ascend910-1,Ascend910-2"))
    assert (others_at_last(world), world.pods.twice.count) == (1, 1)
    assert world.pods.twice.sentences(world.pods.row) == {
        "uid-a": "chip 1 of node n1 is named by pod team/b too",
        "uid-b": "chip 1 of node n1 is named by pod team/a too",
    }
    world.put(a_pod("c", chips="Ascend910-1,Ascend910-2"))
    assert (others_at_last(world), world.pods.twice.count) == (3, 2)
    assert world.pods.twice.sentences(world.pods.row)["uid-c"] == (
        "chips 1, 2 of node n1 are named by pod team/a and team/b too"
    )
    world.put(a_pod("b", chips="Ascend910-1,Ascend910-2", phase="Succeeded"))
    assert (others_at_last(world), world.pods.twice.count) == (1, 1)
    world.pods.remove("uid-a")
    assert (others_at_last(world), world.pods.twice.count) == (0, 0)
    assert world.pods.twice.sentences(world.pods.row) == {}


def test_a_chip_that_a_pod_of_a_job_names_too_counts_for_the_other_one() -> None:
    world = a_world()
    world.pods.note_job(accepted("j", "u", 1))
    world.put(a_pod("a", chips="Ascend910-0,Ascend910-1"))
    assert others_at_last(world) == 0
    world.put(a_pod("z", job=("j", "u", 1, 0), chips="Ascend910-0,Ascend910-1"))
    assert others_at_last(world) == 2
    world.put(a_pod("z", job=("j", "u", 1, 0), chips="Ascend910-4,Ascend910-5"))
    assert others_at_last(world) == 0


def test_pods_that_share_a_chip_do_not_name_it_twice() -> None:
    world = a_world()
    world.nodes.put(a_node("n1", labels={LABEL_SOFT_SHARE: "true"}))
    world.put(a_pod("a", asked=50, chips="Ascend910-0"), a_pod("b", asked=50, chips="Ascend910-0"))
    assert (world.pods.twice.count, world.pods.twice.sentences(world.pods.row)) == (0, {})


def test_of_a_pod_of_a_job_no_more_chips_are_told_than_it_asks_for() -> None:
    world = a_world()
    world.pods.note_job(accepted("j", "u", 1))
    for named, chips in (("Ascend910-4,Ascend910-5", 0b110000), ("Ascend910-4,Ascend910-5,Ascend910-6", 0)):
        world.put(a_pod("a", job=("j", "u", 1, 0), asked=2, annotations={REAL: named}))
        assert [unpack(fact.chips, 8) for fact in world.facts()] == [[chips]]
        assert others(world) == (0, False)
        world.nodes.put(a_node("n1", 7))
    assert list(world.pods.reasons) == ["uid-a"]


def test_chips_that_change_are_told_at_once() -> None:
    world = a_world()
    world.pods = Pods(world.nodes, Usage(), lambda row: row.queue, await_job_ms=1000, settle_ms=1000)
    world.pods.note_job(accepted("j", "u", 2_000))
    world.put(a_pod("p0", job=("j", "u", 1, 0), chips="Ascend910-0"))
    world.put(*(a_pod(f"p{rank}", job=("j", "u", 1, rank), asked=0) for rank in range(1, 2_000)))
    assert len(world.facts()) == 1
    world.put(a_pod("p0", job=("j", "u", 1, 0), chips="Ascend910-0", phase="Pending"))
    assert world.facts() == []
    world.put(a_pod("p0", job=("j", "u", 1, 0), chips="Ascend910-5", phase="Pending"))
    assert [unpack(fact.chips, 8)[0] for fact in world.facts()] == [0b100000]
