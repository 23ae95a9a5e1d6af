"""What a round made for itself is freed with it: services look for garbage rarely, and it has columns of all nodes."""

import gc
from collections.abc import Iterator

import pytest

from berth.core.cluster.node_packing import pack_switches
from berth.core.topologies.switches.demand import TOR_AFFINITY
from berth.schemas.intake import JobRequest
from tests.support.cells import a_job, a_node
from tests.support.core_cells import SUBJECTS, CoreCell

BELOW_LEAVES = {TOR_AFFINITY: "normal-schema"}


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    yield
    if was_enabled:
        gc.enable()


def a_cell(policy: str) -> CoreCell:
    nodes = [a_node(f"n{index}", leaf=f"leaf-{index // 4}", position=index % 4) for index in range(8)]
    cell = CoreCell(nodes, queue_policy=policy, reserve_chips=1)
    cell.fact(SUBJECTS.fact_topology("switch"), pack_switches(nodes))
    return cell


@pytest.mark.parametrize("policy", ["skip", "fifo", "easy", "conservative"])
@pytest.mark.parametrize(
    ("request_", "is_placed"),
    [
        (a_job("small"), True),
        (a_job("below", chips=8, replicas=4, labels=BELOW_LEAVES), True),
        (a_job("large", chips=8, replicas=8), False),
        (a_job("broad", chips=8, replicas=8, labels=BELOW_LEAVES), False),
    ],
    ids=lambda value: value.name if isinstance(value, JobRequest) else "",
)
def test_a_round_leaves_nothing_that_only_a_collection_frees(
    policy: str, request_: JobRequest, *, is_placed: bool
) -> None:
    cell = a_cell(policy)
    cell.place(a_job("first", chips=8))
    cell.ask(request_)
    opening = cell.scheduler.open(cell.now_ms).opening
    assert opening is not None
    gc.collect()
    verdicts = cell.scheduler.decide(opening).round.verdicts
    assert [verdict.placement is not None for verdict in verdicts] == [is_placed]
    assert gc.collect() == 0
