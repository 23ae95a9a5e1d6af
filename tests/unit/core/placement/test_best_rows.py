"""Best rows of many shapes: scored together where that is right, and each alone where it is not."""

import msgspec
import pytest

from berth.core.cluster.bitmaps import Fits
from berth.core.placement.best_rows import BestRows
from berth.core.placement.scoring import Reasons, Scorer, Scores
from berth.schemas.intake import Task
from berth.schemas.offers import Shape
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell


class CountingScorer(Scorer):
    """Scoring that counts how often all rows are scored."""

    times = 0

    def evaluate(self, shape: Shape, without: Fits | None = None) -> tuple[Reasons, Scores]:
        self.times += 1
        return super().evaluate(shape, without)


def scoring(*memory: int) -> tuple[CountingScorer, Shape]:
    """Scoring of nodes with so much free memory (MiB), best first, and the shape of a pod that asks for none."""
    cell = CoreCell([a_node(f"n{index}", cpu_milli=8_000, memory_mib=mib) for index, mib in enumerate(memory)])
    cell.ask(a_job("j", tasks=[Task("t", 2, 1, 0, 0)]))
    cell.scheduler.sync()
    (gang,) = cell.scheduler.queue.gangs()
    return CountingScorer(cell.state.table, cell.state.shares, cell.state.fold.settings), gang.request_class[0][0]


def test_shapes_that_differ_in_cpu_are_scored_once() -> None:
    scorer, shape = scoring(*([9_000] * 8))
    best = BestRows(scorer)
    for cpu in range(50):
        assert len(best.candidates(msgspec.structs.replace(shape, cpu_milli=cpu), 2).rows) == 2
    assert scorer.times == 1


@pytest.mark.parametrize("count", [1, 2])
def test_a_shape_is_scored_alone_where_the_best_rows_have_too_little_for_it(count: int) -> None:
    scorer, shape = scoring(100, 100, 100, 100, 100, 9_000, 9_000, 9_000)
    best = BestRows(scorer)
    small, large = (msgspec.structs.replace(shape, memory_mib=mib) for mib in (50, 500))
    assert best.candidates(small, count).rows == list(range(count))
    found = best.candidates(large, count)
    assert (found.rows, found.exhausted) == ([5, 6, 7][:count], False)
    assert scorer.times == 2


def test_a_pod_that_asks_for_no_memory_may_be_where_none_is_free() -> None:
    scorer, shape = scoring(0, 0, 9_000)
    best = BestRows(scorer)
    assert best.candidates(shape, 3).rows == [0, 1, 2]
    assert best.candidates(msgspec.structs.replace(shape, memory_mib=1), 3).rows == [2]


def test_more_rows_are_searched_for_when_more_are_asked_for() -> None:
    scorer, shape = scoring(*([9_000] * 9))
    best = BestRows(scorer)
    assert best.candidates(shape, 1).rows == [0]
    assert best.candidates(shape, 2).rows == [0, 1]
    found = best.candidates(shape, 8)
    assert (found.rows, found.exhausted) == (list(range(8)), False)
    assert scorer.times == 2
    found = best.candidates(shape, 20)
    assert (found.rows, found.exhausted) == (list(range(9)), True)
