"""Plans of blocks: what holds for every pool and every gang."""

from collections import Counter

import numpy as np
import numpy.typing as npt
from hypothesis import example, given
from hypothesis import strategies as st

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.blocks.model import (
    BlockAllocation,
    BlockDemand,
    BlockPlan,
    BlockRules,
    CandidatePool,
    NoBlocks,
    pool_of,
)
from berth.core.topologies.superpods.block_selection import select
from berth.core.topologies.superpods.planner import open_blocks_of, plan_blocks
from tests.support.plan_decisions import block_decisions


@st.composite
def pools(draw: st.DrawFn) -> CandidatePool:
    counts = draw(st.lists(st.integers(0, draw(st.sampled_from([4, 12, 30]))), max_size=8))
    total = sum(counts)
    step = draw(st.sampled_from([1, -1]))
    sub_healthy = draw(st.sampled_from([0, (1 << total) - 1]) | st.integers(0, (1 << total) - 1))
    pool = pool_of(
        [str(pod) for pod in range(len(counts))],
        np.repeat(np.arange(len(counts)), counts),
        np.arange(total)[::step].copy(),
        racks=np.arange(total) // 4,
        sub_healthy=np.array([sub_healthy >> node & 1 for node in range(total)], np.bool_),
    )
    for array in (pool.starts, pool.rows, pool.racks, pool.sub_healthy):
        array.flags.writeable = False
    return pool


@st.composite
def wants(draw: st.DrawFn) -> BlockDemand:
    block, blocks = draw(st.integers(1, 9)), draw(st.integers(1, 6))
    return BlockDemand(draw(st.sampled_from(["a3", "850"])), block, block * blocks, soft=draw(st.booleans()))


RULES = st.builds(BlockRules, st.integers(0, 12), st.integers(9, 40), st.just(OWN))


def left_before(pool: CandidatePool, allocations: tuple[BlockAllocation, ...]) -> list[list[int]]:
    """What each SuperPoD has left before each grant."""
    left = pool.counts.tolist()
    history = []
    for allocation in allocations:
        history.append(list(left))
        left[allocation.pod] -= allocation.nodes
        assert left[allocation.pod] >= 0
    return history


@given(pools(), wants(), RULES)
def test_a_gang_is_whole_and_no_node_is_used_twice(pool: CandidatePool, demand: BlockDemand, rules: BlockRules) -> None:
    plan = plan_blocks(pool, demand, rules)
    counts = pool.counts
    if isinstance(plan, NoBlocks):
        capacity = int((counts // demand.block).sum())
        assert len(pool.rows) < demand.replicas or (not demand.soft and capacity < demand.blocks)
        assert (plan.blocks_need, plan.nodes_need) == (demand.blocks, demand.replicas)
        assert (plan.blocks_have, plan.nodes_have) == (capacity, len(pool.rows))
        return
    rows, owner = plan.rows.tolist(), np.empty(len(pool.rows), np.int64)
    owner[pool.rows] = np.repeat(np.arange(len(counts)), counts)
    assert plan.is_whole
    assert len(set(rows)) == len(rows) == demand.replicas == sum(allocation.nodes for allocation in plan.allocations)
    assert owner[rows].tolist() == plan.pods.tolist()
    assert sorted(plan.block_ids.tolist()) == plan.block_ids.tolist()
    assert {allocation.block_id: (allocation.pod, allocation.nodes) for allocation in plan.allocations} == {
        block_id: (int(plan.pods[plan.block_ids == block_id][0]), count)
        for block_id, count in Counter(plan.block_ids.tolist()).items()
    }


@given(pools(), wants(), RULES)
def test_a_block_is_never_split_unless_the_gang_is_soft_and_no_superpod_has_room_for_it(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules
) -> None:
    plan = plan_blocks(pool, demand, rules)
    if isinstance(plan, NoBlocks):
        return
    whole = [allocation for allocation in plan.allocations if allocation.phase != "pieces"]
    assert all(allocation.nodes == demand.block for allocation in whole)
    assert len(whole) == min(demand.blocks, int((pool.counts // demand.block).sum()))
    assert [allocation.block_id for allocation in plan.allocations] == list(range(len(plan.allocations)))
    for allocation, left in zip(plan.allocations, left_before(pool, plan.allocations), strict=True):
        assert 0 < allocation.nodes <= demand.block
        if allocation.phase == "pieces":
            assert demand.soft
            assert max(left) < demand.block
            assert left[allocation.pod] == max(left)


@given(pools(), wants(), RULES)
def test_reserves_are_used_only_after_every_superpod_that_can_keep_them(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules
) -> None:
    plan = plan_blocks(pool, demand, rules)
    if isinstance(plan, NoBlocks):
        return
    for allocation, left in zip(plan.allocations, left_before(pool, plan.allocations), strict=True):
        can_keep = [pod for pod, free in enumerate(left) if free - rules.reserve >= demand.block]
        if allocation.phase in {"fits", "larger"}:
            assert allocation.pod in can_keep
        else:
            assert not can_keep


@given(pools(), wants(), RULES, st.booleans())
def test_healthy_nodes_of_a_superpod_go_first(
    pool: CandidatePool,
    demand: BlockDemand,
    rules: BlockRules,
    parity: bool,  # noqa: FBT001 - given by hypothesis
) -> None:
    plan = plan_blocks(pool, demand, rules._replace(differs=REFERENCE if parity else OWN))
    if isinstance(plan, NoBlocks):
        return
    used = np.isin(pool.rows, plan.rows)
    for pod in range(len(pool.ids)):
        own = slice(int(pool.starts[pod]), int(pool.starts[pod + 1]))
        if (used[own] & pool.sub_healthy[own]).any():
            assert (used[own] | pool.sub_healthy[own]).all()


def answer(found: BlockPlan | NoBlocks) -> object:
    """A plan as values that compare."""
    if isinstance(found, NoBlocks):
        return found
    return found.rows.tolist(), found.block_ids.tolist(), found.pods.tolist(), found.allocations


@given(pools(), wants(), RULES, st.booleans(), st.integers(1, 9))
def test_other_names_in_the_same_order_only_rename_the_answer(
    pool: CandidatePool,
    demand: BlockDemand,
    rules: BlockRules,
    parity: bool,  # noqa: FBT001 - given by hypothesis
    step: int,
) -> None:
    rules = rules._replace(differs=REFERENCE if parity else OWN)
    found = plan_blocks(pool, demand, rules)
    assert answer(found) == answer(plan_blocks(pool, demand, rules))
    new = np.cumsum(np.arange(len(pool.rows)) % step + 1)
    renamed = plan_blocks(
        pool._replace(ids=[f"9{name}x" for name in pool.ids], rows=new[pool.rows], racks=pool.racks + 7), demand, rules
    )
    if isinstance(found, NoBlocks):
        assert isinstance(renamed, NoBlocks)
        assert [near.superpod for near in renamed.closest] == [f"9{near.superpod}x" for near in found.closest]
        return
    kept = found.rows >= 0
    assert isinstance(renamed, BlockPlan)
    assert renamed.allocations == found.allocations
    assert renamed.rows[kept].tolist() == new[found.rows[kept]].tolist()


@given(pools(), wants(), RULES, st.integers(0, 8))
def test_a_superpod_without_candidates_changes_nothing(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, place: int
) -> None:
    place = min(place, len(pool.ids))
    starts = np.insert(pool.starts, place, pool.starts[place])
    larger = pool._replace(ids=[*pool.ids[:place], "empty", *pool.ids[place:]], starts=starts)
    found, again = plan_blocks(pool, demand, rules), plan_blocks(larger, demand, rules)
    if isinstance(found, BlockPlan):
        assert isinstance(again, BlockPlan)
        assert again.rows.tolist() == found.rows.tolist()
        assert again.block_ids.tolist() == found.block_ids.tolist()
    else:
        assert again == found


@given(pools(), wants(), RULES)
def test_without_a_decision_in_force_the_answer_is_the_references(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules
) -> None:
    if not block_decisions(pool, demand, rules):
        assert answer(plan_blocks(pool, demand, rules)) == answer(
            plan_blocks(pool, demand, rules._replace(differs=REFERENCE))
        )


class Literal:
    """The reference's way as the reference page writes it down: a table of cells, visited one by one."""

    def __init__(self, counts: list[int], demand: BlockDemand, rules: BlockRules) -> None:
        self.left, self.demand, self.reserve = list(counts), demand, rules.reserve
        self.need, self.next_id = list(range(demand.blocks)), demand.blocks
        self.given: list[tuple[int, int, int]] = []
        block = demand.block
        self.columns = rules.size // block + 1
        self.table: dict[tuple[int, int], list[int]] = {}
        for pod, free in enumerate(counts):
            if free < block and not demand.soft:
                continue
            beside = free - rules.reserve
            cell = (beside % block, beside // block) if beside >= 0 else (free % block, 0)
            assert cell[1] < self.columns
            self.table.setdefault(cell, []).append(pod)

    def cell(self, remainder: int, column: int, *, by_left: bool = False) -> list[int]:
        pods = self.table.get((remainder, column), [])
        return sorted(pods, key=lambda pod: -self.left[pod]) if by_left else pods

    def give(self, pod: int, nodes: int) -> None:
        self.given.append((self.pop(), pod, nodes))
        self.left[pod] -= nodes

    def pop(self) -> int:
        if self.need:
            return self.need.pop(0)
        self.next_id += 1
        return self.next_id - 1

    def drain(self, remainder: int, column: int) -> None:
        for pod in self.cell(remainder, column):
            while self.need and self.left[pod] - self.reserve >= self.demand.block:
                self.give(pod, self.demand.block)

    def run(self) -> list[tuple[int, int, int]]:
        block = self.demand.block
        for remainder in range(block):
            column = 1
            while column < self.columns and column <= len(self.need):
                self.drain(remainder, column)
                column += 1
        for column in range(len(self.need) + 1, self.columns):
            for remainder in range(block):
                self.drain(remainder, column)
        for remainder in reversed(range(block)):
            for column in range(self.columns):
                for pod in self.cell(remainder, column, by_left=True):
                    if self.need and self.left[pod] >= block:
                        self.give(pod, block)
        self.pieces()
        return self.given

    def pieces(self) -> None:
        block = self.demand.block
        missing = self.demand.replicas - sum(nodes for _, _, nodes in self.given)
        for remainder in [*range(block - 1, self.reserve - 1, -1), *range(min(block, self.reserve))]:
            for column in range(self.columns):
                for pod in self.cell(remainder, column, by_left=True):
                    if missing <= 0 or not self.left[pod]:
                        continue
                    nodes = min(block, self.left[pod])
                    if self.demand.variant == "850" and not self.demand.soft and nodes < block:
                        self.pop()
                        continue
                    self.give(pod, nodes)
                    missing -= nodes


def counts_up_to(most: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, most), max_size=14)


@given(st.integers(6, 40).flatmap(counts_up_to), wants(), st.integers(0, 14))
@example([17, 9], BlockDemand("850", 8, 24), 10)
@example([26, 8, 17], BlockDemand("a3", 8, 40, soft=True), 20)
def test_parity_is_the_text_of_the_reference_page_word_for_word(
    counts: list[int], demand: BlockDemand, reserve: int
) -> None:
    rules = BlockRules(reserve, max([*counts, demand.block]), differs=REFERENCE)
    array: npt.NDArray[np.int64] = np.array(counts, np.int64)
    found = select([str(pod) for pod in range(len(counts))], array, open_blocks_of(demand), rules)
    if sum(count // demand.block for count in counts) < demand.blocks and not demand.soft:
        assert isinstance(found, NoBlocks)
        return
    assert isinstance(found, tuple)
    assert [tuple(allocation)[:3] for allocation in found] == Literal(counts, demand, rules).run()
