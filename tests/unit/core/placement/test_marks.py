"""How many gangs a round takes whose shapes are answered with a mark a node."""

import pytest

from berth.core.placement.round_demand import MARKS_BYTES_MAX, gangs_of_one_offer
from berth.core.requests.gangs import Gang, gang_of
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
    ("sizes", "nodes", "bytes_max", "count"),
    [
        ((1, 2, 3), 80, 30, 3),
        ((1, 2, 3), 81, 30, 2),
        ((1, 2, 1, 2, 3), 80, 20, 4),
        ((1, 2), 80, 1, 1),
        ((), 80, 1, 0),
        (tuple(range(1, 201)), 50_000, MARKS_BYTES_MAX, 200),
        (tuple(range(1, 201)), 1_000_000, MARKS_BYTES_MAX, 32),
    ],
)
def test_a_round_asks_for_no_more_marks_than_an_offer_holds(
    sizes: tuple[int, ...], nodes: int, bytes_max: int, count: int
) -> None:
    gangs = gangs_in_blocks(*sizes)
    assert list(gangs_of_one_offer(gangs, nodes=nodes, bytes_max=bytes_max)) == gangs[:count]
