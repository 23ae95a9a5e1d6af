"""A topology in a folder of its own, ``tests.support.rails``: it places, refuses, explains, replaces,
annotates pods, and tells other programs."""

from collections import Counter

import pytest

from berth.core.explain.explainer import explain_now
from berth.core.explain.model import Explanation, sentences
from berth.core.explain.node_snapshot import drawn_maps
from berth.core.explain.refusal_text import sentence
from berth.core.state.cell import State
from berth.core.topologies.annotations import annotations_of, register_writer
from berth.core.topologies.maps import Maps
from berth.core.topologies.registry import register, summary_of
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import JobRequest
from berth.schemas.ledger import Verdict
from berth.schemas.nodes import NodeCondition
from berth.schemas.placement import Placement
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell
from tests.support.rails.topology import ON_ONE_RAIL, RAIL, RAILS, Rails, rail_annotations
from tests.support.replacements import holding_of, leaving_of, replaced


def on_rails(*counts: int) -> CoreCell:
    """Rails 0, 1, ... with so many nodes of 8 chips each, and a node without a rail."""
    known = a_node("alone").labels
    nodes = [
        a_node(f"r{rail}-{at}", labels=known | {RAIL: str(rail)})
        for rail in range(len(counts))
        for at in range(counts[rail])
    ]
    return CoreCell([*nodes, a_node("alone")])


def on_one_rail(name: str, replicas: int) -> JobRequest:
    job = a_job(name, chips=8, replicas=replicas)
    return a_job(name, chips=8, replicas=replicas, labels=job.labels | {ON_ONE_RAIL: "true"})


def explained(cell: CoreCell, verdict: Verdict) -> Explanation:
    found = explain_now(cell.state, verdict, ledger_seq=cell.state.fold.head)
    assert found is not None
    return found


def test_all_pods_of_a_gang_are_on_the_smallest_rail_that_holds_them() -> None:
    cell = on_rails(5, 3, 2)
    cell.ask(on_one_rail("j", 3))
    (verdict,) = cell.decide()
    assert verdict.placement is not None
    assert verdict.placement.names() == ["r1-0", "r1-1", "r1-2"]


def test_gangs_of_one_round_see_what_those_before_them_take() -> None:
    cell = on_rails(4, 3)
    cell.ask(on_one_rail("a", 3), on_one_rail("b", 3))
    placed = [verdict.placement for verdict in cell.decide()]
    assert [Counter(name[:2] for name in one.names()) for one in placed if one is not None] == [{"r1": 3}, {"r0": 3}]


def test_a_gang_that_no_rail_holds_is_told_the_best_one() -> None:
    cell = on_rails(2, 3)
    refusal = cell.refuse(on_one_rail("j", 4))
    assert sentence(refusal) == "needs 4 nodes on one rail; the best one, rail 1, has 3"


def test_the_pods_of_a_gang_are_annotated_with_their_rail() -> None:
    cell = on_rails(2, 3)
    cell.place(on_one_rail("j", 2))
    assert annotations_of(holding_of(cell.state, "j").placement) == [{RAIL: "0"}, {RAIL: "0"}]


def test_other_programs_are_told_the_rails() -> None:
    state = on_rails(1, 1).state
    assert summary_of(state.indexes, state.topologies, state.fold.settings, lambda _node: []) == {"rails": "0,1"}
    assert summary_of(State().indexes, {}, state.fold.settings, lambda _node: []) == {}


def test_nothing_is_drawn_of_a_topology_without_a_form_or_of_none() -> None:
    state = on_rails(1).state
    assert drawn_maps(state, RAILS) == drawn_maps(state, "none") == Maps()


def test_an_explanation_says_the_rail_of_each_pod() -> None:
    cell = on_rails(2, 3)
    cell.ask(on_one_rail("j", 2))
    (verdict,) = cell.decide()
    found = explained(cell, verdict)
    assert [choice.leaf for choice in found.choices] == ["rail 0", "rail 0"]
    assert (
        sentences(found)[1]
        == "Rank 0 (worker) is on r0-0 on rail 0, chips 0-7, by rail plan: 8 usable chips free before."
    )


def test_an_explanation_of_a_gang_that_waits_says_what_would_make_room() -> None:
    cell = on_rails(2, 3)
    cell.place(on_one_rail("j", 3))
    cell.ask(on_one_rail("k", 3))
    (verdict,) = cell.decide()
    found = explained(cell, verdict)
    assert found.sentence == "needs 3 nodes on one rail; the best one, rail 0, has 2"
    assert found.unblocking is not None
    assert [event.job for way in found.unblocking.ways for event in way.events] == ["default/j"]


def test_a_lost_pod_stays_on_its_rail() -> None:
    cell = on_rails(6, 3)
    cell.place(on_one_rail("j", 2))
    assert holding_of(cell.state, "j").placement.names() == ["r1-0", "r1-1"]
    cell.conditions["r1-0"] = NodeCondition("r1-0", level=NodeHealth.NO_NEW_WORK)
    cell.publish()
    found = replaced(cell, leaving_of(cell, "j", [0]))
    assert isinstance(found, Placement)
    assert found.names() == ["r1-2"]


def test_a_name_is_registered_once() -> None:
    with pytest.raises(ValueError, match="topology rails is registered twice"):
        register(Rails())
    with pytest.raises(ValueError, match="annotations of topology rails are registered twice"):
        register_writer(RAILS, rail_annotations)
