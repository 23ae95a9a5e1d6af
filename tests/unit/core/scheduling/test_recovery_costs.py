"""Steps of recoveries are compared by cost where places are planned before anything is deleted."""

import msgspec
import pytest

from berth.core.faults.escalation import Wanted
from berth.core.scheduling.recovery_costs import deleted_pod_count, idle_of, smaller_step
from tests.support.cells import a_job, a_node
from tests.support.core_cells import nodes_in_superpods
from tests.support.fault_cells import PODS_FIRST, FaultCell
from tests.support.replacements import holding_of

_CONFIG = '{"default": {"level1": {"label": "rack"}, "level2": {"label": "row"}}}'


def in_rows(**settings: object) -> FaultCell:
    """Three rows of two racks of four nodes; ranks 0 to 7 of a job fill the first row and 8 to 15 the second."""
    cell = FaultCell(
        nodes_in_superpods((8, 8, 8), "superpod910a3x16"),
        **{"reserve_nodes": 0, "resource_levels": _CONFIG, "plan_before_delete": True, **settings},
    )
    annotations = {"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=4,level2=8"}
    cell.run(a_job("j", chips=16, replicas=16, product="superpod910a3x16", annotations=annotations), labels=PODS_FIRST)
    return cell


def rows_of(cell: FaultCell) -> list[str]:
    return [name.partition("-")[0] for name in holding_of(cell.state, "j").placement.names()]


def lose_rank_15(cell: FaultCell) -> None:
    assert rows_of(cell) == ["0"] * 8 + ["1"] * 8
    cell.break_chip(cell.node_of("j", 15))
    (step,) = cell.turns()
    assert (step.scope, step.ranks, step.placement) == ("pod", [15], None)
    cell.remove("j")
    cell.wait_for_places("j", 15)
    assert cell.turns() == []
    assert cell.wait(6_000) == []
    assert cell.wait(5_999) == []


def test_a_part_of_the_job_that_has_places_leaves_instead_of_the_whole_job() -> None:
    cell = in_rows()
    lose_rank_15(cell)
    (step,) = cell.wait(1)
    assert (step.ranks, step.faulty) == (list(range(8, 16)), [15])
    assert step.scope != "job"
    assert step.cause == "the new pod of rank 15 found no place for 12 s"
    assert step.placement is not None
    assert {name.partition("-")[0] for name in step.placement.names()} == {"2"}
    cell.remove("j")
    cell.turns()
    cell.bind("j")
    assert cell.wait(100_000) == []
    assert rows_of(cell) == ["0"] * 8 + ["2"] * 8
    assert holding_of(cell.state, "j").attempt == 1


def test_without_plans_the_next_scope_leaves_without_places() -> None:
    cell = in_rows(plan_before_delete=False)
    assert rows_of(cell) == ["0"] * 8 + ["1"] * 8
    cell.break_chip(cell.node_of("j", 15))
    cell.turns()
    cell.remove("j")
    cell.wait_for_places("j", 15)
    cell.turns()
    (step,) = cell.wait(6_000)
    assert (step.scope, step.ranks, step.placement) == ("level", [12, 13, 14, 15], None)


def test_healthy_pods_stay_where_neither_a_part_nor_the_whole_job_has_places() -> None:
    cell = in_rows()
    other = a_job(
        "other", chips=16, replicas=1, product="superpod910a3x16",
        annotations={"huawei.com/schedule_policy": "multilevel", "huawei.com/affinity-config": "level1=1"},
    )  # fmt: skip
    cell.run(other, labels={})
    assert cell.node_of("other", 0).startswith("2-")
    lose_rank_15(cell)
    assert cell.wait(3_600_000) == []
    assert rows_of(cell)[:8] == ["0"] * 8
    cell.fail("other", 0)
    (step,) = cell.turns()
    assert step.placement is not None
    assert {name.partition("-")[0] for name in step.placement.names()} == {"2"}


def wanted(**changes: object) -> Wanted:
    base = Wanted("pod", "grace", (2, 3), (3,), "CardUnhealthy", "a chip is unhealthy", 0)
    return base._replace(**changes)  # type: ignore[arg-type]  # fields of the step


@pytest.fixture
def cell() -> FaultCell:
    found = FaultCell([a_node(name) for name in "abcd"])
    found.run(a_job("j", chips=4, replicas=6))
    return found


def test_pods_that_leave_or_are_gone_already_are_not_restarted_again(cell: FaultCell) -> None:
    holding = msgspec.structs.replace(holding_of(cell.state, "j"), gone=[2])
    assert deleted_pod_count(holding, wanted(ranks=(2, 3, 4))) == 2
    assert deleted_pod_count(holding, wanted(how="place")) == 0


def test_chips_are_idle_without_a_place_and_beside_an_old_one(cell: FaultCell) -> None:
    cell.break_chip(cell.node_of("j", 5))
    holding = holding_of(cell.state, "j")
    (step,) = cell.turns()
    assert step.placement is not None
    ranks = tuple(step.ranks)
    assert idle_of(holding, wanted(ranks=ranks), None) == 4 * len(ranks)
    assert idle_of(holding, wanted(ranks=ranks), step.placement) == 4 * len(ranks)
    assert idle_of(holding, wanted(ranks=tuple(range(6))), holding.placement) == 0
    released = msgspec.structs.replace(holding, gone=list(ranks))
    assert idle_of(released, wanted(ranks=ranks, how="place"), step.placement) == 0


def test_a_smaller_step_needs_one_that_allows_it() -> None:
    job = wanted(scope="job", ranks=tuple(range(8)))
    found = smaller_step([wanted(how="place", ranks=(3,)), job], wanted(how="place", ranks=(3,)), [4, 5])
    assert found is not None
    assert (found.ranks, found.sought, found.needs_place, found.scope, found.moves) == (
        (3, 4, 5), (3, 4, 5), True, "pod", "job",
    )  # fmt: skip
    assert smaller_step([wanted(ranks=(3, 4, 5))], wanted(ranks=(3,)), [4, 5]) is None, "it is that step itself"
    assert smaller_step([job], wanted(ranks=(3,)), [0, 4]) is None, "no pod runs without the first"
    assert smaller_step([job], wanted(ranks=(3,)), []) is None
