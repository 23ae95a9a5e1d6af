"""All rows scored at once, as a round leaves them, are scored as each of them is alone."""

import random

import pytest

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.view import RowState
from berth.core.gangs import Gang
from berth.core.placement.gang_placement import PlacementRound
from berth.core.placement.round_demand import candidate_counts
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.scoring import Reasons, Scorer, Scores
from berth.schemas.facts import NodeHealth
from berth.schemas.intake import Task
from berth.schemas.nodes import NodeCondition
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason
from tests.support.cells import a_job, a_node
from tests.support.core_cells import CoreCell

PRODUCTS = ("module910bx8", "module910a3x16", "half910x4", "310p")


def a_cell(products: tuple[str, ...]) -> CoreCell:
    nodes = [
        a_node(f"n{index:02}", products[index % len(products)], cpu_milli=8_000 + 1_000 * index, memory_mib=9_000)
        for index in range(60)
    ]
    cell = CoreCell(nodes)
    cell.conditions["n03"] = NodeCondition("n03", level=NodeHealth.SUB_HEALTHY)
    cell.publish()
    return cell


def gangs(cell: CoreCell, product: str) -> list[Gang]:
    tasks = [(1, 100, 0), (2, 0, 700), (4, 900, 10), (8, 0, 0), (0, 300, 300), (0, 0, 0)]
    for chips, cpu, memory in tasks:
        cell.ask(a_job(f"j{chips}-{cpu}", product=product, tasks=[Task("t", 1, chips, cpu, memory)]))
    cell.scheduler.sync()
    return [gang for gang in cell.scheduler.queue.gangs() if gang.invalid is None]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("seed", range(4))
def test_rows_at_once_are_scored_as_one_by_one(product: str, seed: int) -> None:
    cell = a_cell(PRODUCTS)
    shapes: list[Shape] = [shape for gang in gangs(cell, product) for shape, _ in gang.request_class]
    assert len(shapes) >= 3
    scorer = cell.scheduler.scorer
    nodes = RoundNodes(scorer)
    dice = random.Random(seed)  # noqa: S311  # a test's choices
    fitting = 0
    for step in range(120):
        shape, row = dice.choice(shapes), dice.randrange(60)
        state = nodes.states.get(row) or scorer.row_state(row)
        if not scorer.evaluate_one(shape, row, state)[0]:
            nodes.place(row, shape)
        if step % 17 == 0:
            nodes.roll_back_gang()
            nodes.begin_gang()
        if step % 29 == 0:
            nodes.begin_gang()
            nodes.keep({dice.randrange(60): (dice.choice((500, 1 << 40)), 100) for _ in range(3)})
        if step % 10 == 0:
            for one in shapes:
                reasons, scores = nodes.now().evaluate(one)
                for touched in nodes.states:
                    reason, score = scorer.evaluate_one(one, touched, nodes.states[touched])
                    assert reason == reasons[touched]
                    assert score == scores[touched] or reason
                    fitting += reason == NodeReason.FITS
    assert fitting > 100
    table = cell.state.table
    assert all(table.free[row] == scorer.row_state(row).free for row in range(60)), "the state stays as it is"


def test_a_gang_whose_pods_touch_many_nodes_is_placed_as_if_each_were_scored_alone() -> None:
    """One shape is scored again pod by pod; of many shapes each is scored after many nodes were touched."""
    names = []
    for differs in (False, True):
        cell = a_cell(PRODUCTS[:1])
        task = [Task(f"t{n}", 1, 1, 100, memory_mib=10 + (n % 40 if differs else 0)) for n in range(300)]
        cell.ask(a_job("j", tasks=task))
        (verdict,) = cell.decide()
        assert verdict.placement is not None
        names.append(verdict.placement.names())
    assert names[0] == names[1], "chips decide, not the memory"


class Counting(Scorer):
    """Counts the rows that are scored."""

    rows = 0

    def evaluate(self, shape: Shape, without: Fits | None = None) -> tuple[Reasons, Scores]:
        Counting.rows += len(self.table)
        return super().evaluate(shape, without)

    def evaluate_one(self, shape: Shape, row: int, state: RowState, base: RowState | None = None) -> tuple[int, int]:
        Counting.rows += 1
        return super().evaluate_one(shape, row, state, base)


@pytest.mark.parametrize(("chips", "pods"), [(8, 1), (4, 3), (1, 4)])
def test_touched_nodes_without_room_are_not_scored_for_each_shape(chips: int, pods: int) -> None:
    """Nodes fill up one after the other, so of those that the gang has touched few have room at any time."""
    tasks = 200
    cell = CoreCell([a_node(f"n{index:03}", cpu_milli=64_000) for index in range(600)])
    cell.ask(a_job("j", tasks=[Task(f"t{n}", pods, chips, 1 + n) for n in range(tasks)]))
    cell.scheduler.sync()
    (gang,) = cell.scheduler.queue.gangs()
    asks = candidate_counts([gang])
    views = {shape: cell.scheduler.scorer.candidates(shape, count) for shape, count in asks.items()}
    assert len(views) == tasks
    Counting.rows = 0
    scorer = Counting(cell.state.table, cell.state.shares, cell.state.fold.settings)
    (verdict,) = PlacementRound(scorer, views, asks).choose([gang]).verdicts
    assert verdict.placement is not None
    assert Counting.rows < 3 * tasks * pods
