"""Held places of jobs in SuperPoDs that start anew: their blocks are planned as if all of these places were free."""

from berth.schemas.facts import NodeHealth
from berth.schemas.nodes import NodeCondition
from tests.support.cells import a_job
from tests.support.core_cells import nodes_in_superpods
from tests.support.fault_cells import GRACE, FaultCell
from tests.support.replacements import holding_of

A3 = "superpod910a3x16"
_HOLD_MS = 60_000


def a_cell(*widths: int) -> FaultCell:
    """SuperPoDs with nodes ``0-0``, ``0-1``, ..., in the first of which a job with two blocks of two pods runs."""
    nodes = nodes_in_superpods(widths, A3)
    cell = FaultCell(nodes[:4], reserve_nodes=0, hold_places_ms=_HOLD_MS)
    annotations = {"huawei.com/schedule_policy": "chip2-node16-sp", "sp-block": "32"}
    cell.run(a_job("j", product=A3, chips=16, replicas=4, annotations=annotations), labels=GRACE)
    assert names_of(cell) == ["0-0", "0-1", "0-2", "0-3"]
    cell.nodes |= {node.name: node for node in nodes}
    cell.publish()
    return cell


def names_of(cell: FaultCell) -> list[str]:
    return holding_of(cell.state, "j").placement.names()


def lost(cell: FaultCell, *nodes: str) -> None:
    """Nodes must be left."""
    for name in nodes:
        cell.conditions[name] = NodeCondition(name, level=NodeHealth.EVICT, updated_ms=cell.now_ms)
    cell.publish()
    (step,) = cell.turns()
    assert (step.scope, cell.phase("j")) == ("job", "ending")


def repaired(cell: FaultCell) -> None:
    """All nodes are healthy."""
    cell.conditions.clear()
    cell.publish()


def ended(cell: FaultCell) -> None:
    """Its pods are gone."""
    cell.remove("j")
    cell.turns()


def test_a_block_is_rebuilt_with_a_place_that_is_held_for_another_rank() -> None:
    cell = a_cell(4, 2)
    lost(cell, "0-0", "0-2")
    ended(cell)
    assert cell.phase("j") == "placed"
    assert names_of(cell) == ["0-3", "0-1", "1-0", "1-1"], "rank 1 keeps its node, rank 0 gets that of rank 3"


def test_the_node_of_a_faulty_rank_that_is_well_again_keeps_its_block_where_it_is() -> None:
    cell = a_cell(4, 2)
    lost(cell, "0-0")
    repaired(cell)
    ended(cell)
    assert names_of(cell) == ["0-0", "0-1", "0-2", "0-3"]


def test_other_nodes_of_the_superpod_come_before_that_of_a_faulty_rank() -> None:
    cell = a_cell(5, 2)
    lost(cell, "0-0")
    repaired(cell)
    ended(cell)
    assert names_of(cell) == ["0-4", "0-1", "0-2", "0-3"]


def test_a_place_that_the_job_does_not_take_again_is_free_for_others_after_the_record() -> None:
    cell = a_cell(4, 2)
    cell.run(a_job("other", product=A3, chips=16), a_job("another", product=A3, chips=16), labels={})
    lost(cell, "0-0")
    cell.ask(a_job("small", product=A3, chips=16, priority=9))
    ended(cell)
    assert (cell.phase("j"), cell.phase("small")) == ("waiting", "waiting")
    cell.take_back("other")
    cell.take_back("another")
    cell.turns()
    cell.remove("other")
    cell.remove("another")
    cell.turns()
    assert (names_of(cell), cell.node_of("small", 0)) == (["1-0", "1-1", "0-2", "0-3"], "0-1")
    placed = [[verdict.name for verdict in record.verdicts if verdict.placement] for record in cell.records]
    assert [names for names in placed if names][-2:] == [["j"], ["small"]]


def test_without_a_plan_all_places_stay_held() -> None:
    cell = a_cell(4)
    lost(cell, "0-0")
    cell.remove("j")
    cell.turn()
    cell.ask(a_job("small", product=A3, chips=16, priority=9))
    cell.turns()
    assert (cell.phase("j"), cell.phase("small")) == ("waiting", "waiting")
    cell.wait(_HOLD_MS)
    assert cell.phase("small") == "placed"
