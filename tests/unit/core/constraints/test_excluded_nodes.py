"""Topology spread: pods on nodes that the pod may not use count for nothing, whenever they came."""

import msgspec
import pytest

from berth.schemas.intake import Task
from berth.schemas.pod_constraints import PodConstraints, SpreadTerm
from tests.support.constraint_worlds import HOST, OneNode, OnePod, having, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell
from tests.unit.core.constraints.test_constraints import in_zone, job, nodes_of

ZONES = {"a1": "a", "a2": "a", "b1": "b"}
EXCLUDED = "a2"
WEB = {"app": "web"}
EVEN = SpreadTerm("zone", 1, having(app="web"))
HARD = PodConstraints(spread=(EVEN,))
SOFT = PodConstraints(preferred_spread=(EVEN,))


def a_cell(*there: OnePod) -> CoreCell:
    """Two zones; one of the nodes in the first has the wrong label."""
    nodes = [in_zone(name, zone) for name, zone in ZONES.items()]
    marked = [
        msgspec.structs.replace(node, labels={**node.labels, "disk": "slow" if node.name == EXCLUDED else "fast"})
        for node in nodes
    ]
    cell = CoreCell(marked, keeps=False)
    cell.fact(
        SUBJECTS.fact_usage("all"), usage_of("all", [OneNode(name, {"zone": ZONES[name]}) for name in ZONES], there)
    )
    return cell


def spread(constraints: PodConstraints) -> Task:
    return Task("worker", 1, 1, labels=WEB, constraints=constraints, node_selector={"disk": "fast"})


@pytest.mark.parametrize("constraints", [HARD, SOFT])
def test_pods_on_a_node_that_the_pod_may_not_use_do_not_count(constraints: PodConstraints) -> None:
    there = [*(OnePod(EXCLUDED, labels=WEB) for _ in range(5)), OnePod("b1", labels=WEB)]
    cell = a_cell(*there)
    cell.ask(job("job", spread(constraints)))
    (verdict,) = cell.decide()
    assert nodes_of(verdict) == ["a1"], "its zone has none that counts, the other has one"


@pytest.mark.parametrize("constraints", [HARD, SOFT])
def test_pods_that_the_same_round_puts_there_do_not_count_either(constraints: PodConstraints) -> None:
    cell = a_cell(OnePod("b1", labels=WEB))
    for number in range(3):
        cell.ask(job(f"other{number}", Task("worker", 1, 1, labels=WEB, node_selector={HOST: EXCLUDED})))
    cell.ask(job("job", spread(constraints)))
    placed = {verdict.name: nodes_of(verdict) for verdict in cell.decide()}
    assert placed == {"other0": [EXCLUDED], "other1": [EXCLUDED], "other2": [EXCLUDED], "job": ["a1"]}
