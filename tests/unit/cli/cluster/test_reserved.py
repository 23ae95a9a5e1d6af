"""Chips that are reserved for jobs that recover, as the commands show them."""

from berth.cli.cluster.folded_nodes import rows_of
from berth.cli.cluster.node_map import drawing, reserved_lines
from berth.cli.output import moment
from berth.core.explain.evidence import Holder, Reserved
from berth.core.explain.explainer import explain_now
from berth.core.explain.job_status import status_of
from berth.schemas.ledger import Verdict
from tests.support.cells import a_job, a_node
from tests.support.fault_cells import GRACE, FaultCell

GLYPHS = {"free": ".", "used": "#", "reserved": ":", "unhealthy": "x", "used-unhealthy": "X"}


def a_cell(nodes: str) -> FaultCell:
    cell = FaultCell([a_node(name) for name in nodes], hold_places_ms=60_000)
    cell.now_ms = 1_772_442_860_000
    return cell


def test_the_new_place_of_a_rank_that_leaves_is_reserved_for_it() -> None:
    cell = a_cell("abc")
    cell.run(a_job("j", chips=4, replicas=3))
    broken = cell.node_of("j", 2)
    cell.break_chip(broken)
    (step,) = cell.turns()
    assert step.placement is not None
    (place,) = step.placement.names()
    chips = list(step.placement.chips_by_rank()[0])
    rows = {row.name: row for row in rows_of(cell.state)}
    assert rows[place].reserved == [Reserved("default/j", [2], chips, until_ms=0)]
    assert [span.text for span in drawing(rows[place], GLYPHS)].count(":") == 4
    assert [row.name for row in rows.values() if row.reserved] == [place]
    assert reserved_lines([*rows.values()]) == [
        f"{place}: chips {chips[0]}-{chips[-1]} reserved for rank 2 of default/j"
    ]
    cell.remove("j")
    cell.turns()
    assert not any(row.reserved for row in rows_of(cell.state))


def test_held_places_are_shown_by_nodes_status_and_explanations_of_others() -> None:
    cell = a_cell("ab")
    cell.run(a_job("j", chips=8, replicas=2), labels=GRACE)
    cell.ask(a_job("small", chips=8))
    cell.break_chip("a")
    cell.turns()
    cell.remove("j")
    cell.turns()
    until_ms = cell.now_ms + 60_000
    assert reserved_lines(rows_of(cell.state)) == [
        "b: chips 0-7 reserved for rank 1 of default/j, until 2026-03-02 09:15:20.000 UTC at the latest"
    ]
    assert "".join(span.text for span in drawing(rows_of(cell.state)[1], GLYPHS)).replace(" ", "") == "::::::::"
    status = status_of(cell.state, ("default", "j"), at_ms=cell.now_ms)
    assert status is not None
    assert status.recovery is not None
    assert (status.recovery.held, status.recovery.held_until_ms) == ([1], until_ms)
    small = cell.state.fold.gangs[cell.state.jobs["default", "small"].uid]
    verdict = Verdict("default", "small", small.uid, 1, refusal=small.refusal)
    explanation = explain_now(cell.state, verdict, ledger_seq=1)
    assert explanation is not None
    (near,) = [one for one in explanation.nearest if one.node == "b"]
    assert near.holders == [Holder("default/j", 8, end_ms=until_ms, reserved=8)]
    assert near.holders[0].words(moment) == ("default/j (8 chips reserved, until about 2026-03-02 09:15:20.000 UTC)")
    cell.wait(60_000)
    assert reserved_lines(rows_of(cell.state)) == []
    status = status_of(cell.state, ("default", "j"), at_ms=cell.now_ms)
    assert status is not None
    assert status.recovery is not None
    assert (status.recovery.held, status.recovery.held_until_ms) == ([], 0)
