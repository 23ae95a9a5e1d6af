"""Under ``reference_parity`` a SuperPoD with more free nodes than ``super_pod_size`` bars a job; that they become fewer wakes it."""

from collections.abc import Callable

import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.schemas.facts import NodeHealth
from berth.schemas.ledger import Round
from tests.support.cells import a_node
from tests.unit.core.scheduling.test_scheduler import Seat, restarted
from tests.unit.core.scheduling.test_scheduler_policies import foreign
from tests.unit.services.dispatcher.test_superpods import in_blocks

A3 = "superpod910a3x16"
NAMES = "abcdef"


def a_superpod(**settings: object) -> Seat:
    """A SuperPoD of six nodes that is said to have two, and a job of one block of two nodes that is refused for that."""
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
    seat = a_superpod(corrections=1)
    assert seat.round() is None
    for name in NAMES[:3]:
        how(seat, name)
    other = restarted(seat)
    record = seat.round()
    assert placed(record) == ["blocks"]
    assert other.round() == record


def test_nodes_that_others_take_wake_the_class() -> None:
    seat = a_superpod(corrections=1)
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
    seat = a_superpod(corrections=1)
    leave(seat, "a")
    record = seat.round()
    assert record is not None
    assert placed(record) == []
    assert seat.round() is None


def test_before_the_corrections_the_class_sleeps_on() -> None:
    seat = a_superpod()
    for name in NAMES[:3]:
        leave(seat, name)
    assert seat.round() is None, "recordings of 0.4 say so"
