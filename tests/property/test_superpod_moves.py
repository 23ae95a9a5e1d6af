"""Blocks after a fault and blocks of inference: what holds for every cluster and every loss."""

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import assume, event, given
from hypothesis import strategies as st

from berth.core.parity import REFERENCE
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, BlockRules, CandidatePool, NoBlocks, pool_of
from berth.core.topologies.superpods.block_history import DisruptedGang, HeldBlock, PodFate
from berth.core.topologies.superpods.inference import AffinityPreference, mindie_allocations, service_allocations
from berth.core.topologies.superpods.rescheduling import StuckBlocks, plan_again
from tests.support.inference_plans import plan_service
from tests.support.plan_decisions import decisions_after

STAYS = [PodFate.RUNS] * 5 + [PodFate.RETURNS, PodFate.LOST]


class Loss(NamedTuple):
    """A gang that lost something."""

    pool: CandidatePool
    demand: BlockDemand
    rules: BlockRules
    failure: DisruptedGang


@st.composite
def losses(draw: st.DrawFn, fates: tuple[PodFate, ...] = tuple(STAYS)) -> Loss:
    """Blocks in some SuperPoDs, what became of their pods, and candidates beside them."""
    superpods = draw(st.integers(1, 5))
    block = draw(st.integers(1, 4))
    lengths = [block] * draw(st.integers(1, 5))
    soft = draw(st.booleans())
    if soft and block > 1 and draw(st.booleans()):
        lengths[-1:] = [block - 1, 1]
    homes = [draw(st.integers(0, superpods - 1)) for _ in lengths]
    whole_job = draw(st.booleans()) and PodFate.RETURNS in fates
    sizes, held, rank = [0] * superpods, [], 0
    for block_id, (home, length) in enumerate(zip(homes, lengths, strict=True)):
        rows = tuple(100 * home + sizes[home] + place for place in range(length))
        sizes[home] += length
        states = [draw(st.sampled_from([PodFate.RETURNS, PodFate.LOST] if whole_job else fates)) for _ in rows]
        held.append(HeldBlock(block_id, str(home), tuple(range(rank, rank + length)), rows, tuple(states)))
        rank += length
    candidates = [
        row
        for one in held
        for row, fate in zip(one.rows, one.fates, strict=True)
        if fate is not PodFate.RUNS and draw(st.integers(0, 3)) < (3 if fate is PodFate.RETURNS else 1)
    ]
    for home, size in enumerate(sizes):
        candidates += [100 * home + size + place for place in range(draw(st.integers(0, 6)))]
    candidates.sort()
    rows_of = np.array(candidates, np.int64)
    pool = pool_of([str(home) for home in range(superpods)], rows_of // 100, rows_of)
    lost = [row for one in held for row, fate in zip(one.rows, one.fates, strict=True) if fate is PodFate.LOST]
    pods_run = any(one.runs for one in held)
    variant = draw(st.sampled_from(["a3", "850"]))
    return Loss(
        pool,
        BlockDemand("a3" if variant == "a3" else "850", block, rank, soft=soft),
        BlockRules(reserve=draw(st.integers(0, 4)), size=48),
        DisruptedGang(held, pods_run, frozenset(lost), waited_ms=draw(st.sampled_from([0, 60_000]))),
    )


def taken_of(found: BlockPlan) -> list[tuple[int, int, int]]:
    return sorted((allocation.block_id, allocation.pod, allocation.nodes) for allocation in found.allocations)


@given(losses())
def test_a_pod_that_runs_never_moves_and_no_node_is_used_twice(loss: Loss) -> None:
    found = plan_again(*loss)
    assert str(found) == str(plan_again(*loss))
    event(type(found).__name__)
    if not isinstance(found, BlockPlan):
        return
    rows, block_ids = found.rows.tolist(), found.block_ids.tolist()
    assert found.is_whole
    assert len(set(rows)) == loss.demand.replicas
    candidates = set(loss.pool.rows.tolist())
    for held in loss.failure.held:
        for rank, row, fate in zip(held.ranks, held.rows, held.fates, strict=True):
            if fate is PodFate.RUNS:
                assert (rows[rank], block_ids[rank]) == (row, held.block_id)
            else:
                assert rows[rank] in candidates
    assert sum(allocation.nodes for allocation in found.allocations) == loss.demand.replicas


@given(losses())
def test_intact_blocks_keep_their_nodes_and_every_block_is_inside_one_superpod(loss: Loss) -> None:
    found = plan_again(*loss)
    assume(isinstance(found, BlockPlan))
    assert isinstance(found, BlockPlan)
    rows, block_ids = found.rows.tolist(), found.block_ids.tolist()
    candidates = set(loss.pool.rows.tolist())
    for held in loss.failure.held:
        returning = {row for row, fate in zip(held.rows, held.fates, strict=True) if fate is not PodFate.RUNS}
        if not held.is_damaged and returning <= candidates:
            assert [rows[rank] for rank in held.ranks] == list(held.rows)
    homes = {(block_id, row // 100) for block_id, row in zip(block_ids, rows, strict=True)}
    assert len(homes) == len(set(block_ids))
    assert homes == {(allocation.block_id, allocation.pod) for allocation in found.allocations}
    if not loss.demand.soft:
        assert set(Counter(block_ids).values()) == {loss.demand.block}


@given(losses())
def test_blocks_are_stuck_only_where_their_superpod_lacks_nodes(loss: Loss) -> None:
    found = plan_again(*loss)
    candidates = set(loss.pool.rows.tolist())
    lacking: Counter[str] = Counter()
    free = Counter({name: int(count) for name, count in zip(loss.pool.ids, loss.pool.counts, strict=True)})
    fates = {held.block_id: held for held in loss.failure.held if held.runs}
    for held in loss.failure.held:
        own = sum(
            fate is PodFate.RETURNS and row in candidates for row, fate in zip(held.rows, held.fates, strict=True)
        )
        returning = held.fates.count(PodFate.RETURNS)
        if held.runs or (not held.is_damaged and own == returning):
            free[held.superpod] -= own
            lacking[held.superpod] += len(held.rows) - held.runs - own
    short = {name for name, number in lacking.items() if number > free[name]}
    if isinstance(found, StuckBlocks):
        assert {fates[block_id].superpod for block_id in found.block_ids} == short
        assert found.lack.lack == "home"
        assert found.lack.nodes_need > found.lack.nodes_have
    elif isinstance(found, BlockPlan):
        assert not short


@given(losses(fates=(PodFate.RUNS, PodFate.RUNS, PodFate.RUNS, PodFate.LOST)))
def test_without_a_documented_decision_the_reference_gives_the_same_nodes(loss: Loss) -> None:
    assume(not decisions_after(*loss))
    corrected = plan_again(*loss)
    copied = plan_again(*loss._replace(rules=loss.rules._replace(differs=REFERENCE)))
    assert isinstance(corrected, BlockPlan) == isinstance(copied, BlockPlan)
    if isinstance(corrected, BlockPlan) and isinstance(copied, BlockPlan):
        assert taken_of(corrected) == taken_of(copied)


@given(losses())
def test_nodes_under_other_names_in_the_same_order_only_rename_the_answer(loss: Loss) -> None:
    found = plan_again(*loss)
    pool = loss.pool._replace(rows=loss.pool.rows * 3 + 1)
    held = [one._replace(rows=tuple(3 * row + 1 for row in one.rows)) for one in loss.failure.held]
    failure = loss.failure._replace(held=held, failed_nodes=frozenset(3 * row + 1 for row in loss.failure.failed_nodes))
    renamed = plan_again(pool, loss.demand, loss.rules, failure)
    if isinstance(found, BlockPlan):
        assert isinstance(renamed, BlockPlan)
        assert renamed.rows.tolist() == (found.rows * 3 + 1).tolist()
        assert renamed.allocations == found.allocations
    else:
        assert renamed == found


COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@given(
    COUNTS,
    st.integers(1, 4),
    st.integers(1, 6),
    st.sets(st.integers(0, 5)),
    st.integers(0, 4),
    st.sampled_from([1, -1]),
)
def test_every_block_of_inference_goes_to_the_best_superpod_of_its_moment(
    free: list[int], block: int, blocks: int, marked: set[int], reserve: int, sign: int
) -> None:
    counts, ids = np.array(free, np.int64), [str(pod) for pod in range(len(free))]
    demand = BlockDemand("a3", block, block * blocks)
    matching = np.array([3 * (pod in marked) for pod in range(len(free))], np.int64)
    served = service_allocations(ids, counts, demand, {str(pod) for pod in marked})
    pleased = mindie_allocations(
        ids, counts, demand, BlockRules(reserve=reserve), AffinityPreference(sign < 0, matching)
    )
    enough = sum(count // block for count in free) >= blocks
    assert enough == (not isinstance(served, NoBlocks)) == (not isinstance(pleased, NoBlocks))
    if isinstance(served, NoBlocks) or isinstance(pleased, NoBlocks):
        return
    left, hosts = dict(enumerate(free)), set(marked)
    for allocation in served:
        able = [pod for pod in left if left[pod] >= block]
        assert allocation.pod == min(able, key=lambda pod: (pod not in hosts, -left[pod], pod))
        left[allocation.pod] -= block
        hosts.add(allocation.pod)
    left, near = dict(enumerate(free)), dict(enumerate(matching.tolist()))
    for allocation in pleased:
        able = [pod for pod in left if left[pod] >= block]
        assert allocation.pod == min(
            able, key=lambda pod: (left[pod] - reserve < block, -near[pod], sign * left[pod], pod)
        )
        left[allocation.pod] -= block
        near[allocation.pod] += block


@given(COUNTS, st.integers(1, 4), st.integers(1, 6))
def test_a_service_gets_whole_blocks_of_different_nodes(free: list[int], block: int, blocks: int) -> None:
    pods = np.repeat(np.arange(len(free)), free)
    pool = pool_of([str(pod) for pod in range(len(free))], pods, np.arange(len(pods)))
    found = plan_service(pool, BlockDemand("850", block, block * blocks), ())
    assume(isinstance(found, BlockPlan))
    assert isinstance(found, BlockPlan)
    assert len(set(found.rows.tolist())) == block * blocks
    assert Counter(found.block_ids.tolist()) == dict.fromkeys(range(blocks), block)
    assert found.pods.tolist() == pods[found.rows].tolist()
