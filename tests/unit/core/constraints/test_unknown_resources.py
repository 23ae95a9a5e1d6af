"""Resources that no node offers: a name that is close to a known one is named in the refusal."""

import pytest

from berth.core.explain.refusal_text import sentence
from berth.schemas.intake import JobRequest, Task
from berth.schemas.pod_constraints import PodConstraints
from tests.support.cells import a_job, a_node
from tests.support.constraint_worlds import OneNode, usage_of
from tests.support.core_cells import SUBJECTS, CoreCell


def a_cell() -> CoreCell:
    return CoreCell([a_node("a1")], keeps=False, corrections=1)


def offer(cell: CoreCell, resources: dict[str, int]) -> None:
    """Report what the only node offers."""
    cell.fact(SUBJECTS.fact_usage("all"), usage_of("all", [OneNode("a1", resources=resources)], []))


def asking(name: str, amount: int) -> JobRequest:
    wanted = PodConstraints(resources=((name, amount),))
    return a_job("job", tasks=[Task("t", 1, 1, constraints=wanted)])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("huawei.com/Ascend910B3", "huawei.com/Ascend910"),
        ("huawei.com/NPU", "huawei.com/npu"),
        ("rdma/hcas", "rdma/hca"),
    ],
)
def test_a_resource_that_no_node_offers_and_is_close_to_a_known_one_is_named(name: str, meant: str) -> None:
    cell = a_cell()
    offer(cell, {"rdma/hca": 1})
    refusal = cell.refuse(asking(name, 1))
    assert (refusal.code, refusal.field, refusal.value, refusal.expected) == ("no-resource", "resource", name, meant)
    assert sentence(refusal) == (
        f"no node offers {name}; did you mean {meant}; 0 of 1 node fits: 1 has too little {name}"
    )
    offer(cell, {name: 1})
    assert [verdict.placement is not None for verdict in cell.decide()] == [True]


@pytest.mark.parametrize("name", ["huawei.com/rdma_shared", "example.com/fpga", "rdma/hca"])
def test_any_other_resource_that_is_missing_is_one_of_which_nodes_have_too_little(name: str) -> None:
    cell = a_cell()
    offer(cell, {"rdma/hca": 1})
    refusal = cell.refuse(asking(name, 2))
    assert sentence(refusal) == f"0 of 1 node fits: 1 has too little {name}"
