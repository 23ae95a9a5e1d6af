"""Blocks where SuperPoDs have racks: what holds for every pool, every gang and every loss."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from berth.core.cluster.node_groups import Rows
from berth.core.topologies.blocks.model import BlockDemand, BlockPlan, BlockRules, CandidatePool, NoBlocks, pool_of
from berth.core.topologies.racks.inference import plan_rack_service
from berth.core.topologies.racks.limits import RACK_NODES
from berth.core.topologies.racks.planner import plan_racks
from berth.core.topologies.racks.rescheduling import MoveScope, PlacedRanks, RackRecovery, parts_of, recover_racks

RULES = st.integers(1, 40).map(lambda size: BlockRules(0, size))


@st.composite
def pools(draw: st.DrawFn) -> CandidatePool:
    pods, racks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    step = draw(st.sampled_from([1, 9]))
    left = draw(st.lists(st.integers(0, RACK_NODES), min_size=pods * racks, max_size=pods * racks))
    cells = np.repeat(np.arange(pods * racks), left)
    sub_healthy = np.array(draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells))), np.bool_)
    return pool_of(
        [str(pod) for pod in range(pods)],
        cells // racks,
        np.arange(len(cells)),
        racks=cells % racks * step,
        sub_healthy=sub_healthy,
    )


@st.composite
def wants(draw: st.DrawFn) -> BlockDemand:
    part = draw(st.sampled_from([1, 2, 4, 8]))
    block = part * draw(st.integers(1, 3))
    return BlockDemand(
        "rack",
        block,
        block * draw(st.integers(1, 4)),
        soft=draw(st.booleans()),
        rack_block=part,
        ub_memory=draw(st.booleans()),
    )


def where(pool: CandidatePool, rows: Rows) -> tuple[Rows, Rows]:
    """SuperPoD and rack of each node."""
    order = np.argsort(pool.rows)
    pods = np.repeat(np.arange(len(pool.ids)), pool.counts)[order]
    place = np.searchsorted(pool.rows[order], rows)
    return pods[place], pool.racks[order][place]


def is_split(pool: CandidatePool, plan: BlockPlan, demand: BlockDemand) -> bool:
    """A block stands in several SuperPoDs, or a part of it in several racks."""
    pods, racks = where(pool, plan.rows)
    cells = pods * 1_000 + racks
    blocks, parts = pods.reshape(-1, demand.block), cells.reshape(-1, demand.rack_block)
    return bool((blocks != blocks[:, :1]).any() or (parts != parts[:, :1]).any())


@given(pools(), wants(), RULES)
def test_a_gang_is_whole_and_a_hard_one_is_never_split(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules
) -> None:
    found = plan_racks(pool, demand, rules)
    if isinstance(found, NoBlocks):
        shares_memory = demand.ub_memory and demand.replicas > RACK_NODES
        assert not demand.soft or shares_memory or len(pool.rows) < demand.replicas
        return
    assert found.is_whole
    assert len(set(found.rows.tolist())) == demand.replicas
    assert found.pods.tolist() == where(pool, found.rows)[0].tolist()
    assert sum(allocation.nodes for allocation in found.allocations) == demand.replicas
    if not demand.soft:
        assert found.block_ids.tolist() == [rank // demand.block for rank in range(demand.replicas)]
        assert not is_split(pool, found, demand)


@given(pools(), wants(), RULES)
def test_shared_memory_stays_inside_a_domain(pool: CandidatePool, demand: BlockDemand, rules: BlockRules) -> None:
    found = plan_racks(pool, demand, rules)
    if isinstance(found, BlockPlan) and demand.ub_memory and demand.replicas > RACK_NODES:
        pods, racks = where(pool, found.rows)
        assert len(set(zip(pods.tolist(), (racks // 16).tolist(), strict=True))) == 1


@given(pools(), wants(), RULES, st.integers(1, 50))
def test_other_rows_only_rename_the_answer(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, by: int
) -> None:
    found, again = plan_racks(pool, demand, rules), plan_racks(pool._replace(rows=pool.rows + by), demand, rules)
    if isinstance(found, BlockPlan) and isinstance(again, BlockPlan):
        assert (found.rows + by).tolist() == again.rows.tolist()
        assert found.allocations == again.allocations
    else:
        assert found == again


@given(pools(), wants(), st.sets(st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 3))))
def test_every_block_of_a_service_stands_in_one_rack(
    pool: CandidatePool, demand: BlockDemand, hosts: set[tuple[str, int]]
) -> None:
    found = plan_rack_service(pool, demand, sorted(hosts))
    left = np.bincount(np.unique(np.stack(where(pool, pool.rows)), axis=1, return_inverse=True)[1].reshape(-1))
    assert isinstance(found, BlockPlan) == (int((left // demand.block).sum()) >= demand.blocks)
    if isinstance(found, BlockPlan):
        assert len(set(found.rows.tolist())) == demand.replicas
        assert not is_split(pool, found, demand._replace(rack_block=demand.block))


@given(pools(), wants(), RULES, st.sampled_from(["pod", "part", "block", "job"]), st.data())
def test_a_sound_pod_moves_only_with_its_part(
    pool: CandidatePool, demand: BlockDemand, rules: BlockRules, scope: MoveScope, data: st.DataObject
) -> None:
    plan = plan_racks(pool, demand, rules)
    if isinstance(plan, NoBlocks):
        return
    lost = data.draw(st.lists(st.integers(0, demand.replicas - 1), unique=True))
    left = pool.without(np.isin(pool.rows, plan.rows[lost]))
    placed = PlacedRanks(plan.rows, plan.block_ids, *where(pool, plan.rows))
    found = recover_racks(left, demand, rules, placed, scope)
    if isinstance(found, NoBlocks):
        assert lost
        return
    assert isinstance(found, RackRecovery)
    assert len(set(found.plan.rows.tolist())) == demand.replicas
    assert np.isin(found.plan.rows, left.rows).all()
    assert set(lost) <= set(found.moved.tolist())
    assert set(found.given_up.tolist()) == set(found.moved.tolist()) - set(lost)
    assert set(found.moved.tolist()) <= loose_of(plan, lost, demand, scope)
    assert found.plan.pods.tolist() == where(left, found.plan.rows)[0].tolist()
    if not demand.soft:
        assert not is_split(left, found.plan, demand)
    if scope == "pod":
        assert where(left, found.plan.rows)[1].tolist() == placed.racks.tolist()


def loose_of(plan: BlockPlan, lost: Sequence[int], demand: BlockDemand, scope: MoveScope) -> set[int]:
    marks = np.isin(np.arange(demand.replicas), lost)
    return {rank for part in parts_of(plan.block_ids, marks, demand, scope) for rank in part.tolist()}
