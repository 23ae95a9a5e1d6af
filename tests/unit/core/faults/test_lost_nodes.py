"""Nodes that are lost one after the other for one cause: one recovery, and no longer wait than for a sign of that."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec
import pytest

from berth.core.cluster.node_packing import pack_nodes
from berth.core.state.lost_nodes import LostNode, LostNodes
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS
from tests.support.fault_cells import GRACE, PODS_FIRST, CellOfDomains, FaultCell
from tests.support.replacements import holding_of

SETTLE = 200
NONE: Mapping[str, object] = MappingProxyType({})
WAYS = ["gone", "not ready"]


def a_cell(per_leaf: int = 4, leaves: str = "xyz", **settings: object) -> FaultCell:
    nodes = [a_node(f"{leaf}{place}", leaf=leaf, position=place) for leaf in leaves for place in range(per_leaf)]
    return CellOfDomains(nodes, **{"fault_settle_ms": SETTLE, **settings})


def below(cell: FaultCell, leaf: str) -> list[int]:
    """Ranks of the job on nodes of a leaf."""
    return [rank for rank, name in enumerate(holding_of(cell.state, "j").placement.names()) if name.startswith(leaf)]


def running(
    replicas: int = 6, labels: dict[str, str] = PODS_FIRST, settings: Mapping[str, object] = NONE
) -> tuple[FaultCell, str, list[str]]:
    """A job that runs, the leaf below which it has most pods, and its nodes there."""
    cell = a_cell(**settings)  # type: ignore[arg-type]  # settings of the ledger
    cell.run(a_job("j", chips=8, replicas=replicas), labels=labels)
    cell.wait(10_000)  # the epoch is not new any more
    names = holding_of(cell.state, "j").placement.names()
    leaf = max("xyz", key=lambda one: sum(name.startswith(one) for name in names[1:]))
    if names[0].startswith(leaf):  # the master is elsewhere
        leaf = next(one for one in "xyz" if one != leaf and any(name.startswith(one) for name in names))
    return cell, leaf, [name for name in names if name.startswith(leaf)]


@pytest.mark.parametrize("way", WAYS)
def test_a_leaf_that_is_reported_node_by_node_makes_one_step_with_its_last_node(way: str) -> None:
    cell, leaf, _ = running(11)
    ranks = below(cell, leaf)
    assert len(ranks) > 2
    for place in range(4):
        assert cell.wait(150) == []
        cell.lose(f"{leaf}{place}", way=way)
        if place < 3:
            assert cell.turns() == []
    (step,) = cell.turns()
    assert (step.ranks, cell.scheduler.next_due_ms) == (ranks, 0)


@pytest.mark.parametrize("way", WAYS)
def test_nodes_of_a_leaf_count_together_once_no_further_one_follows(way: str) -> None:
    cell, _, (first, second, *_) = running()
    cell.lose(first, way=way)
    assert cell.turns() == []
    assert cell.scheduler.next_due_ms == cell.now_ms + SETTLE
    assert cell.wait(SETTLE - 1) == []
    cell.lose(second, way=way)
    assert cell.turns() == []
    assert cell.wait(SETTLE - 1) == []
    (step,) = cell.wait(1)
    names = holding_of(cell.state, "j").placement.names()
    assert [names[rank] for rank in step.ranks] == [first, second]


def test_a_job_restarts_once_for_a_leaf() -> None:
    cell, leaf, _ = running(6, labels=GRACE)
    for place in range(4):
        cell.wait(100)
        cell.lose(f"{leaf}{place}")
        cell.turns()
    assert [step.scope for step in cell.recoveries] == ["job"]
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert (cell.wait(100_000), holding_of(cell.state, "j").attempt, below(cell, leaf)) == ([], 2, [])


def test_it_waits_at_most_five_times_as_long() -> None:
    cell = a_cell(per_leaf=12, leaves="xyz")
    cell.run(a_job("j", chips=8, replicas=24))
    cell.wait(10_000)
    names = holding_of(cell.state, "j").placement.names()
    leaf = next(one for one in "xyz" if not names[0].startswith(one) and any(name.startswith(one) for name in names))
    nodes = [name for name in names if name.startswith(leaf)]
    begin_ms = cell.now_ms
    steps = []
    for name in nodes:
        cell.lose(name)
        steps = cell.turns() or cell.wait(150)
        if steps:
            break
    assert cell.now_ms == begin_ms + 1_050
    assert [names[rank] for rank in steps[0].ranks] == nodes[:1]


@pytest.mark.parametrize("way", WAYS)
def test_a_node_that_comes_back_in_time_moves_nothing(way: str) -> None:
    cell, _, (first, *_) = running()
    before = cell.nodes[first]
    cell.lose(first, way=way)
    cell.turns()
    cell.wait(SETTLE - 1)
    cell.nodes[first] = before
    cell.publish()
    assert (cell.turns(), cell.wait(10_000), cell.state.faults.lost.dump()) == ([], [], [])


def test_a_chip_and_a_single_node_that_a_source_reports_count_at_once() -> None:
    cell, _, (first, second, third, *_) = running(11)
    cell.break_chip(first)
    assert len(cell.turns()) == 1
    cell.wait(10_000)
    cell.lose(second, way="evict")
    assert len(cell.turns()) == 1
    cell.wait(SETTLE // 2)
    cell.lose(third, way="evict")
    assert cell.turns() == []
    assert len(cell.wait(SETTLE)) == 1, "with the one before there is a sign of more"


@pytest.mark.parametrize("settings", [{"fault_settle_ms": 0}, {"reference_parity": True}])
def test_without_the_setting_and_under_parity_nodes_count_at_once(settings: dict[str, object]) -> None:
    cell, _, (first, *_) = running(settings=settings)
    cell.lose(first)
    assert len(cell.turns()) == 1


def test_nodes_without_a_switch_and_a_superpod_have_nothing_in_common() -> None:
    cell = CellOfDomains([a_node(name) for name in "abcd"], fault_settle_ms=SETTLE)
    cell.run(a_job("j", chips=8, replicas=3))
    cell.wait(10_000)
    cell.lose(cell.node_of("j", 2))
    assert len(cell.turns()) == 1


@pytest.mark.parametrize("settings", [{"fault_settle_ms": 0}, {"reference_parity": True}, {}])
def test_a_node_that_moves_to_another_domain_is_not_gone_meanwhile(settings: dict[str, object]) -> None:
    """As when the leaf switch of a node becomes known, or when a bucket of nodes splits."""
    cell = CellOfDomains([a_node(name) for name in "abcd"], **{"fault_settle_ms": SETTLE, **settings})
    cell.run(a_job("j", chips=8, replicas=3))
    cell.wait(10_000)
    stay = [node for name, node in cell.nodes.items() if name in "ab"]
    first = msgspec.structs.replace(pack_nodes("bucket-all", stay, at_ms=cell.now_ms), moving=["c", "d"])
    cell.fact(SUBJECTS.fact_node("bucket-all"), first)
    assert cell.turns() == []
    other = cell.reloaded()
    assert (other.turns(), other.scheduler.next_due_ms) == ([], cell.scheduler.next_due_ms)
    for one in (cell, other):
        assert one.wait(30_000) == []
    rest = [node for name, node in cell.nodes.items() if name in "cd"]
    cell.fact(SUBJECTS.fact_node("leaf-x"), pack_nodes("leaf-x", rest, at_ms=cell.now_ms))
    assert (cell.turns(), cell.wait(100_000), cell.state.faults.lost.dump()) == ([], [], [])
    assert other.wait(29_999) == []
    assert [step.ranks for step in other.wait(1)] == [[2]], "it never came"


def test_a_reader_of_a_snapshot_waits_as_long() -> None:
    cell, _, (first, second, *_) = running()
    cell.lose(first)
    cell.turns()
    cell.wait(50)
    cell.lose(second, way="not ready")
    cell.turns()
    due_ms = cell.scheduler.next_due_ms
    other = cell.reloaded()
    assert other.state.faults.lost.dump() == cell.state.faults.lost.dump() != []
    assert other.turns() == []
    assert (other.scheduler.next_due_ms, due_ms) == (due_ms, cell.now_ms + SETTLE)
    assert [step.ranks for step in other.wait(SETTLE)] == [step.ranks for step in cell.wait(SETTLE)] != []


def test_nothing_is_kept_of_lost_nodes_without_attempts() -> None:
    cell, _, (first, *_) = running()
    cell.lose(first, *[name for name in cell.nodes if name not in holding_of(cell.state, "j").placement.names()])
    assert [node.name for node in cell.state.faults.lost.dump()] == [first]
    cell.wait(SETTLE)
    cell.remove("j")
    cell.take_back("j")
    cell.turns()
    cell.remove("j")
    cell.turns()
    assert (cell.state.fold.holdings, cell.state.faults.lost.dump()) == ({}, [])


def test_a_node_that_is_not_ready_counts_after_a_while_whatever_becomes_of_others() -> None:
    cell, _, (first, second, *_) = running(settings={"not_ready_ms": 40_000, "fault_settle_ms": 0})
    cell.wait(100_000)
    cell.lose(first, way="not ready")
    assert cell.turns() == []
    assert cell.wait(30_000) == []
    cell.lose(second, way="not ready")
    cell.change("z3", cpu_milli=1_000)
    assert cell.turns() == []
    names = holding_of(cell.state, "j").placement.names()
    assert cell.wait(9_999) == []
    assert [[names[rank] for rank in step.ranks] for step in cell.wait(1)] == [[first]]
    assert cell.wait(29_999) == []
    assert [[names[rank] for rank in step.ranks] for step in cell.wait(1)] == [[second]]


def test_a_node_that_was_lost_for_both_reasons_keeps_both_times() -> None:
    lost = LostNodes()
    lost.note("a", "leaf-x", is_unready=False, is_evicted=True, at_ms=5)
    lost.note("a", "leaf-x", is_unready=True, is_evicted=True, at_ms=9)
    lost.note("a", "", is_unready=True, is_evicted=False, at_ms=12)
    assert lost.dump() == [LostNode("a", "leaf-x", 9, 0)]
    lost.note("a", "leaf-x", is_unready=False, is_evicted=False, at_ms=20)
    assert (lost.dump(), "a" in lost) == ([], False)
