"""What is kept by shape, measured: shapes as large as jobs may make them are forgotten before they fill the memory."""

import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest

from berth.core.explain.obstacles import Namer
from berth.core.gangs import Gang
from berth.core.placement.best_rows import BestRows
from berth.schemas.intake import Task
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason, ReasonCount, Refusal
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell

LARGE, COUNT = 64, 1_000
"""Labels of a selector, of 1 KB each, and shapes."""


def shapes(shape: Shape) -> Iterator[Shape]:
    for number in range(COUNT):
        selector = tuple((f"key-{label}", f"{number}-{'x' * 1_000}-{label}") for label in range(LARGE))
        yield msgspec.structs.replace(shape, selector=selector)


def evaluated(cell: CoreCell, gang: Gang) -> Callable[[Shape], object]:
    del gang
    return cell.scheduler.scorer.evaluate


def counted(cell: CoreCell, gang: Gang) -> Callable[[Shape], object]:
    del gang
    return cell.scheduler.scorer.chips_for


def one_by_one(cell: CoreCell, gang: Gang) -> Callable[[Shape], object]:
    del gang
    scorer = cell.scheduler.scorer
    return lambda shape: scorer.evaluate_one(shape, 0, scorer.row_state(0))


def at_one_state(cell: CoreCell, gang: Gang) -> Callable[[Shape], object]:
    del gang
    best = BestRows(cell.scheduler.scorer)
    return lambda shape: best.candidates(shape, 1)


def explained(cell: CoreCell, gang: Gang) -> Callable[[Shape], object]:
    namer = Namer(cell.scheduler.scorer)
    refusal = Refusal(code="no-room", counts=[ReasonCount(NodeReason.SELECTOR, 1)], pods_need=1, nodes_total=1)
    return lambda shape: namer.sentence(refusal, msgspec.structs.replace(gang, request_class=((shape, 1),)))


@pytest.mark.parametrize("of_cell", [evaluated, counted, one_by_one, at_one_state, explained])
def test_large_shapes_take_bounded_memory(of_cell: Callable[[CoreCell, Gang], Callable[[Shape], object]]) -> None:
    cell = CoreCell([a_node("n")])
    cell.publish()
    cell.ask(a_job("j", tasks=[Task("t", 1, 1, 0, 0)]))
    cell.scheduler.sync()
    (gang,) = cell.scheduler.queue.gangs()
    use = of_cell(cell, gang)
    tracemalloc.start()
    try:
        for shape in shapes(gang.request_class[0][0]):
            use(shape)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 62_000_000, "all of them have 64 MB, and what is kept beside them"


def test_a_change_finds_what_is_kept_of_all_shapes_that_wait() -> None:
    """Each of the jobs is woken by a node that becomes free, and none of their shapes is compiled again."""
    cell = CoreCell([a_node("n")])
    cell.ask(a_job("first", chips=8))
    cell.decide()
    cell.ask(*(a_job(f"w{number}", tasks=[Task("t", 1, 8, number + 1)]) for number in range(5_000)))
    while cell.decide():
        cell.now_ms += 1
    memory = cell.scheduler.scorer._memory
    before = memory._bytes
    cell.nodes["n2"] = a_node("n2")
    cell.publish()
    assert cell.decide()
    assert memory._bytes == before
