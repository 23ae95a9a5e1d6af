"""How many gangs a round takes, by the work to score their shapes."""

import pytest

from berth.core.gangs import Gang
from berth.core.placement.round_demand import ROUND_WORK_MAX, gangs_of_one_round, work_of_shape
from berth.core.requests.gangs import gang_of
from berth.schemas.facts import JobSeen
from berth.schemas.ledger import Settings
from tests.support.cells import a_job

ANNOTATIONS = {"huawei.com/schedule_policy": "chip8-node8-sp", "sp-block": "8"}


def gangs_in_blocks(*sizes: int) -> list[Gang]:
    """Gangs of so many pods each, in blocks of one node."""
    requests = [
        a_job(f"j{index}", chips=8, replicas=size, product="superpod850x8", annotations=ANNOTATIONS)
        for index, size in enumerate(sizes)
    ]
    return [
        gang_of(
            JobSeen("default", request.name, request.uid, "accepted", intake_seq=1, accepted_seq=1, request=request),
            request,
            attempt=1,
            settings=Settings(),
        )
        for request in requests
    ]


@pytest.mark.parametrize(
    ("sizes", "nodes", "shapes", "count"),
    [
        ((1, 2, 3), 80, 3, 3),
        ((1, 2, 3), 80, 2, 2),
        ((1, 2, 1, 2, 3), 80, 2, 4),
        ((1, 2), 80, 0, 1),
        ((), 80, 1, 0),
    ],
)
def test_a_round_takes_gangs_up_to_a_bound_of_its_work(
    sizes: tuple[int, ...], nodes: int, shapes: int, count: int
) -> None:
    gangs = gangs_in_blocks(*sizes)
    work_max = shapes * work_of_shape(0, nodes)
    assert list(gangs_of_one_round(gangs, nodes=nodes, work_max=work_max)) == gangs[:count]


def test_marks_of_a_round_fit_into_one_message() -> None:
    """One bit for each node and shape, and one shard may own all nodes."""
    gangs = gangs_in_blocks(*range(1, 201))
    for nodes in (10_000, 50_000, 1_000_000):
        taken = gangs_of_one_round(gangs, nodes=nodes)
        assert len(taken) == min(ROUND_WORK_MAX // work_of_shape(0, nodes), 200)
        assert len(taken) * nodes / 8 < 1_000_000
