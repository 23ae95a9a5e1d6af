"""Removed nodes: what was known of them decides nothing, for a scheduler that saw them and for one from a snapshot."""

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.columns import pack, pack_names
from berth.schemas.facts import PodPhase, PodsSeen
from tests.support.cells import a_node
from tests.support.placed_parts import the_block
from tests.unit.core.scheduling.test_scheduler import Seat, restarted

A3 = "superpod910a3x16"


def put(seat: Seat, *names: str, chips: int = 0xFFFF) -> None:
    nodes = [a_node(name, A3, superpod="3", chips=chips, allocatable=chips.bit_count()) for name in names]
    seat.fact("node.superpod-3", pack_nodes("superpod-3", nodes, at_ms=1))


def told_of_a_block(seat: Seat, node: str) -> None:
    """Somebody else's pod, which says that it is in block 0, terminates on a node."""
    fact = PodsSeen(
        "default", "alien", "uid-alien", 0, pack([0], 4), pack_names([node]), pack([0], 4), pack([PodPhase.TERMINATING], 1),
        pack([1], 8), resource="huawei.com/Ascend910", foreign=True, blocks=pack([1], 2),
    )  # fmt: skip
    seat.fact("pod.default.alien", fact)


def test_pods_on_a_node_that_is_gone_are_in_no_superpod() -> None:
    seat = Seat()
    put(seat, "a", "b")
    put(seat, "b")
    other = restarted(seat)
    for one in (seat, other):
        told_of_a_block(one, "a")
    record = seat.round()
    assert record is not None
    (adoption,) = record.adoptions
    assert the_block(adoption.placement).superpods == []
    assert other.round() == record


def test_a_node_that_comes_back_smaller_is_a_node_that_comes() -> None:
    seat = Seat()
    put(seat, "a", "b")
    seat.round()
    put(seat, "b")
    seat.round()
    other = restarted(seat)
    for one in (seat, other):
        put(one, "a", "b", chips=0xFF)
    assert seat.scheduler.dump() == other.scheduler.dump()
