"""A copy of a cell under assumptions is as the cell once they have come true, which stays as it is until then."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.chips.soft_share_table import ENABLE_LABEL
from berth.core.cluster.node_columns import COLUMNS
from berth.core.cluster.node_packing import pack_nodes, pack_switches
from berth.core.constraints.usage_index import UsageIndex
from berth.core.errors import InvariantError
from berth.core.explain.evidence import Event
from berth.core.placement.projected_state import footprint_of
from berth.core.state.cell import State
from berth.core.state.cell_fork import CellFork
from berth.core.topologies.switches.occupancy.leaf_index import leaf_index_of
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob
from berth.schemas.constraints import Expression
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import Task
from berth.schemas.ledger import Release
from berth.schemas.nodes import NodeCondition
from berth.schemas.pod_constraints import HostPort, LabelSelector, PodConstraints, PodTerm
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell

NODES = 4
BAD: dict[int, dict[str, object]] = {1: {"cordoned": True, "labels": {"new": "x"}}, 2: {"ready": False}}
SICK = NodeCondition("n3", unhealthy=1, network_unhealthy=2, withheld=4, level=NodeHealth.NO_NEW_WORK)
APART = PodTerm("kubernetes.io/hostname", LabelSelector((Expression("app", "In", ("a",)),)))
CONSTRAINTS = (
    None,
    PodConstraints(ports=(HostPort(80, "TCP"),)),
    PodConstraints(anti_affinity=(APART,)),
    PodConstraints(resources=(("example.com/x", 2),)),
)
JOBS = st.lists(st.tuples(st.sampled_from((0, 1, 2, 4)), st.integers(1, 3), st.integers(0, 3)), max_size=6)
Jobs = list[tuple[int, int, int]]
"""Chips a pod, pods, and the constraints of each job."""


def a_cell(jobs: Jobs) -> CoreCell:
    """Jobs are placed while all nodes are well; some nodes then are not."""
    cell = CoreCell([a_node(f"n{number}", leaf="ab"[number // 2], position=number % 2) for number in range(NODES)])
    cell.fact(SUBJECTS.fact_topology("switch"), pack_switches(cell.nodes.values()))
    for number, (chips, pods, which) in enumerate(jobs):
        task = Task(
            "t", pods, chips, 100 * number, 10, labels={"app": "ab"[number % 2]}, constraints=CONSTRAINTS[which]
        )
        cell.ask(a_job(f"j{number}", tasks=[task]))
        cell.decide()
    for number, changes in BAD.items():
        cell.nodes[f"n{number}"] = msgspec.structs.replace(cell.nodes[f"n{number}"], **changes)
    cell.conditions["n3"] = SICK
    cell.publish()
    return cell


def all_of(state: State) -> dict[str, object]:
    """What holdings and nodes are in a state."""
    table, index = state.table, state.constraints.view.usage
    table.ranks()
    found: dict[str, object] = {
        name: getattr(table, name)[table.view()].tolist() for name in COLUMNS if name not in {"changed", "node_class"}
    }
    found["classes"] = [table.classes[number] for number in table.node_class[table.view()].tolist()]
    found["leaves"] = leaf_index_of(state.indexes).occupancy.bits().tolist()
    found["held"] = sorted(state.fold.holdings), [state.held_by(key) for key in sorted(state.fold.holdings)]
    return found | usage_of(index, len(table))


def raw_of(state: State) -> object:
    """What is to stay as it is, to the last byte."""
    table = state.table
    columns = [getattr(table, name).tobytes() for name in COLUMNS]
    return state.dump(), columns, list(table.classes), list(table.names), table.revision


def usage_of(index: UsageIndex, rows: int) -> dict[str, object]:
    slots = index.slots(rows)
    names = ("pods", "groups", "terms", "ports", "resources", "claims", "claims_on", "_by_namespace", "_by_pair")
    return {name: getattr(index, name) for name in names} | {"slots": None if slots is None else slots.tolist()}


@given(JOBS, st.sets(st.integers(0, 5)))
def test_a_copy_without_some_holdings_is_as_the_cell_once_they_have_ended(jobs: Jobs, ended: set[int]) -> None:
    cell = a_cell(jobs)
    before, raw = all_of(cell.state), raw_of(cell.state)
    holdings = [one for one in cell.state.fold.holdings.values() if int(one.name[1:]) in ended]
    fork = CellFork(cell.state)
    for holding in holdings:
        fork.lift(holding)
    assert (all_of(cell.state), raw_of(cell.state)) == (before, raw)
    second = CellFork(fork)
    for holding in reversed(holdings):
        second.lay(holding)
    assert all_of(second) == before
    for holding in holdings:
        cell.release(Release(holding.uid, holding.attempt, "succeeded"))
    assert all_of(fork) == all_of(cell.state)


@given(JOBS, st.sets(st.integers(0, 5)))
def test_pods_that_go_at_once_leave_what_they_leave_one_by_one(jobs: Jobs, ended: set[int]) -> None:
    cell = a_cell(jobs)
    state = cell.state
    holdings = [one for one in state.fold.holdings.values() if int(one.name[1:]) in ended]
    fork, at_once = CellFork(state), CellFork(state)
    footprints = [footprint_of(state, state.held_by(one.key), one.placement) for one in holdings]
    for holding, footprint in zip(holdings, footprints, strict=True):
        fork.lift(holding)
        at_once.become(holding.key)
        leaf_index_of(at_once.indexes).occupancy.drop(holding.key)
        at_once.nodes.shift(*footprint[:4], gives_back=True)
    assert without_pods(all_of(at_once)) == without_pods(all_of(fork))
    for holding, footprint in zip(holdings, footprints, strict=True):
        fork.lay(holding)
        at_once.become(holding)
        job = footprint.counted["switches"]
        assert isinstance(job, LeafJob)
        leaf_index_of(at_once.indexes).set(holding.key, job)
        at_once.nodes.shift(*footprint[:4], gives_back=False)
    assert without_pods(all_of(at_once)) == without_pods(all_of(fork))


def without_pods(found: dict[str, object]) -> dict[str, object]:
    """All but the numbers of pods that ask for no cpu or memory, which change only one by one."""
    return {name: value for name, value in found.items() if name not in {"no_cpu", "no_memory"}}


@given(JOBS, st.sets(st.integers(0, NODES - 1)))
def test_a_copy_with_healed_nodes_is_as_the_cell_once_they_are_well(jobs: Jobs, healed: set[int]) -> None:
    cell = a_cell(jobs)
    before, raw = all_of(cell.state), raw_of(cell.state)
    fork = CellFork(cell.state, facts=True)
    fork.heal(fork.table.row_of[f"n{number}"] for number in healed)
    assert (all_of(cell.state), raw_of(cell.state)) == (before, raw)
    for number in healed:
        cell.happen(Event("node-well", node=f"n{number}"))
    rows = [fork.table.row_of[f"n{number}"] for number in healed]
    assert fork.table.spoken[rows].all()
    fork.table.spoken[rows] = cell.state.table.spoken[rows]  # the facts here name only nodes that are not well
    assert all_of(fork) == all_of(cell.state)


def test_a_copy_with_added_nodes_is_as_the_cell_once_they_have_come() -> None:
    cell = a_cell([(4, 3, 1)])
    before, raw = all_of(cell.state), raw_of(cell.state)
    nodes = [a_node(name, labels={ENABLE_LABEL: "true"}) for name in ("zz-0", "zz-1")]
    for fork in (CellFork(cell.state, facts=True), CellFork(CellFork(cell.state), facts=True)):
        fork.add(pack_nodes("more", nodes))
        assert fork.table.spoken[fork.table.rows_of_domain("more")].all()
        fork.table.spoken[fork.table.rows_of_domain("more")] = False
    assert (all_of(cell.state), raw_of(cell.state)) == (before, raw)
    cell.fact(SUBJECTS.fact_node("more"), pack_nodes("more", nodes))
    assert all_of(fork) == all_of(cell.state)
    assert fork.shares.nodes == cell.state.shares.nodes != {}


def test_a_copy_folds_neither_facts_nor_records() -> None:
    cell = a_cell([])
    fork = CellFork(cell.state)
    with pytest.raises(InvariantError, match="folds neither facts nor records"):
        fork.apply_fact("fact.node.all", 99, b"")
    with pytest.raises(InvariantError, match="folds neither facts nor records"):
        fork.apply_record(fork.fold.head + 1, b"")
