"""Blocks where SuperPoDs have racks: what holds for every yard, every gang and every loss."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from berth.core.rescheduling.racks import RackMended, Stage, Standing, mend_racks, parts_of
from berth.core.superpods.model import BlockPlan, NoBlocks, Rows, Rules, Want, Yard, yard_of
from berth.core.superpods.rack_inference import plan_rack_service
from berth.core.superpods.racks import RACK_NODES, plan_racks

RULES = st.integers(1, 40).map(lambda size: Rules(0, size))


@st.composite
def yards(draw: st.DrawFn) -> Yard:
    pods, racks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    step = draw(st.sampled_from([1, 9]))
    left = draw(st.lists(st.integers(0, RACK_NODES), min_size=pods * racks, max_size=pods * racks))
    cells = np.repeat(np.arange(pods * racks), left)
    ill = np.array(draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells))), np.bool_)
    return yard_of(
        [str(pod) for pod in range(pods)],
        cells // racks,
        np.arange(len(cells)),
        racks=cells % racks * step,
        ill=ill,
    )


@st.composite
def wants(draw: st.DrawFn) -> Want:
    part = draw(st.sampled_from([1, 2, 4, 8]))
    block = part * draw(st.integers(1, 3))
    return Want(
        "rack",
        block,
        block * draw(st.integers(1, 4)),
        soft=draw(st.booleans()),
        rack_block=part,
        ub_memory=draw(st.booleans()),
    )


def where(yard: Yard, rows: Rows) -> tuple[Rows, Rows]:
    """SuperPoD and rack of each node."""
    order = np.argsort(yard.rows)
    pods = np.repeat(np.arange(len(yard.ids)), yard.counts)[order]
    place = np.searchsorted(yard.rows[order], rows)
    return pods[place], yard.racks[order][place]


def is_split(yard: Yard, plan: BlockPlan, want: Want) -> bool:
    """A block stands in several SuperPoDs, or a part of it in several racks."""
    pods, racks = where(yard, plan.rows)
    cells = pods * 1_000 + racks
    blocks, parts = pods.reshape(-1, want.block), cells.reshape(-1, want.rack_block)
    return bool((blocks != blocks[:, :1]).any() or (parts != parts[:, :1]).any())


@settings(max_examples=300)
@given(yards(), wants(), RULES)
def test_a_gang_is_whole_and_a_hard_one_is_never_split(yard: Yard, want: Want, rules: Rules) -> None:
    found = plan_racks(yard, want, rules)
    if isinstance(found, NoBlocks):
        shares_memory = want.ub_memory and want.replicas > RACK_NODES
        assert not want.soft or shares_memory or len(yard.rows) < want.replicas
        return
    assert found.is_whole
    assert len(set(found.rows.tolist())) == want.replicas
    assert found.pods.tolist() == where(yard, found.rows)[0].tolist()
    assert sum(grant.nodes for grant in found.grants) == want.replicas
    if not want.soft:
        assert found.vids.tolist() == [rank // want.block for rank in range(want.replicas)]
        assert not is_split(yard, found, want)


@settings(max_examples=200)
@given(yards(), wants(), RULES)
def test_shared_memory_stays_inside_a_domain(yard: Yard, want: Want, rules: Rules) -> None:
    found = plan_racks(yard, want, rules)
    if isinstance(found, BlockPlan) and want.ub_memory and want.replicas > RACK_NODES:
        pods, racks = where(yard, found.rows)
        assert len(set(zip(pods.tolist(), (racks // 16).tolist(), strict=True))) == 1


@settings(max_examples=100)
@given(yards(), wants(), RULES, st.integers(1, 50))
def test_other_rows_only_rename_the_answer(yard: Yard, want: Want, rules: Rules, by: int) -> None:
    found, again = plan_racks(yard, want, rules), plan_racks(yard._replace(rows=yard.rows + by), want, rules)
    if isinstance(found, BlockPlan) and isinstance(again, BlockPlan):
        assert (found.rows + by).tolist() == again.rows.tolist()
        assert found.grants == again.grants
    else:
        assert found == again


@settings(max_examples=200)
@given(yards(), wants(), st.sets(st.tuples(st.sampled_from(["0", "1"]), st.integers(0, 3))))
def test_every_block_of_a_service_stands_in_one_rack(yard: Yard, want: Want, hosts: set[tuple[str, int]]) -> None:
    found = plan_rack_service(yard, want, sorted(hosts))
    left = np.bincount(np.unique(np.stack(where(yard, yard.rows)), axis=1, return_inverse=True)[1].reshape(-1))
    assert isinstance(found, BlockPlan) == (int((left // want.block).sum()) >= want.blocks)
    if isinstance(found, BlockPlan):
        assert len(set(found.rows.tolist())) == want.replicas
        assert not is_split(yard, found, want._replace(rack_block=want.block))


@settings(max_examples=300)
@given(yards(), wants(), RULES, st.sampled_from(["pod", "part", "block", "job"]), st.data())
def test_a_sound_pod_moves_only_with_its_part(
    yard: Yard, want: Want, rules: Rules, stage: Stage, data: st.DataObject
) -> None:
    plan = plan_racks(yard, want, rules)
    if isinstance(plan, NoBlocks):
        return
    lost = data.draw(st.lists(st.integers(0, want.replicas - 1), unique=True))
    left = yard.without(np.isin(yard.rows, plan.rows[lost]))
    standing = Standing(plan.rows, plan.vids, *where(yard, plan.rows))
    found = mend_racks(left, want, rules, standing, stage)
    if isinstance(found, NoBlocks):
        assert lost
        return
    assert isinstance(found, RackMended)
    assert len(set(found.plan.rows.tolist())) == want.replicas
    assert np.isin(found.plan.rows, left.rows).all()
    assert set(lost) <= set(found.moved.tolist())
    assert set(found.given_up.tolist()) == set(found.moved.tolist()) - set(lost)
    assert set(found.moved.tolist()) <= loose_of(plan, lost, want, stage)
    assert found.plan.pods.tolist() == where(left, found.plan.rows)[0].tolist()
    if not want.soft:
        assert not is_split(left, found.plan, want)
    if stage == "pod":
        assert where(left, found.plan.rows)[1].tolist() == standing.racks.tolist()


def loose_of(plan: BlockPlan, lost: Sequence[int], want: Want, stage: Stage) -> set[int]:
    marks = np.isin(np.arange(want.replicas), lost)
    return {rank for part in parts_of(plan.vids, marks, want, stage) for rank in part.tolist()}
