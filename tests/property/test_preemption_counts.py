"""Counting of room: it never says no where a plan succeeds, and what is followed row by row is what is counted anew."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from berth.core.preemption.choice import Picked
from berth.core.preemption.legality import Legality
from berth.core.preemption.model import Candidate, Preemptor, VictimSet
from berth.core.preemption.pool import Pool
from berth.core.preemption.rooms import CountedRoom, Gains
from berth.core.preemption.search import Search
from berth.core.preemption.slots import Slots, WholeGroups
from berth.schemas.intake import JobRequest
from tests.support.cells import a_job, a_node
from tests.support.core_cells import nodes_in_superpods
from tests.support.dice import Dice
from tests.support.preemption_cells import PreemptionCell
from tests.support.preemption_oracle import a_contested_cell

World = Callable[[int], tuple[PreemptionCell, Preemptor]]
CELLS = 40
CANDIDATES_MAX = 6
A3 = "superpod910a3x16"


def in_blocks(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """Gangs on nodes of SuperPoDs, and one that wants whole blocks."""
    dice = Dice(seed)
    cell = PreemptionCell(
        nodes_in_superpods([dice.number(2, 6) for _ in range(dice.number(1, 3))], A3), reserve_nodes=0
    )
    for number in range(dice.number(1, 5)):
        cell.runs_if_fits(blocks(f"g{number}", dice.number(1, 3), 1))
    block = dice.pick(1, 2, 4)
    return cell, cell.preemptor(blocks("p", block * dice.number(1, 3), block, priority=1))


def blocks(name: str, replicas: int, block: int, priority: int = 0) -> JobRequest:
    annotations = {"sp-block": str(16 * block)}
    return a_job(name, chips=16, replicas=replicas, product=A3, annotations=annotations, priority=priority)


def in_rings(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """Gangs in rings of four chips, and one that wants rings."""
    dice = Dice(seed)
    product = "module910x8"
    nodes = [a_node(f"n{number}", product, cpu_milli=40_000) for number in range(dice.number(1, 3))]
    cell = PreemptionCell(nodes, strict_job_shape=False)
    for number in range(dice.number(2, 6)):
        cell.runs_if_fits(a_job(f"g{number}", chips=dice.pick(1, 2, 4), replicas=dice.number(1, 2), product=product))
    chips, pods = dice.pick(1, 2, 4, 8), dice.number(1, 4)
    return cell, cell.preemptor(a_job("p", chips=chips, replicas=pods, product=product, priority=1))


def sharing(seed: int) -> tuple[PreemptionCell, Preemptor]:
    """Pods that share chips, with others that have whole ones, and one more pod."""
    dice = Dice(seed)
    cell = PreemptionCell([a_node(f"n{number}", "soft-share", chips=0b11, allocatable=2) for number in range(2)])
    for number in range(dice.number(2, 6)):
        cell.runs_if_fits(quota(f"g{number}", dice.pick(20, 50, 100)))
    return cell, cell.preemptor(quota("p", dice.pick(50, 100), priority=1))


def quota(name: str, percent: int, priority: int = 0) -> JobRequest:
    request = a_job(name, product="soft-share", priority=priority)
    quotas = {"aicoreQuota": str(percent), "hbmQuota": "4000", "policy": "elastic"}
    request.labels.update({f"huawei.com/scheduler.softShareDev.{key}": value for key, value in quotas.items()})
    return request


NAMES = ["plain", "blocks", "rings", "shares"]
WORLDS: list[World] = [a_contested_cell, in_blocks, in_rings, sharing]


def pool_of(search: Search, preemptor: Preemptor) -> Pool:
    return search._pool(search._kin_of(preemptor), preemptor.gang)  # what a search keeps


@pytest.mark.parametrize("world", WORLDS, ids=NAMES)
def test_whatever_a_plan_takes_counts_as_room(world: World) -> None:
    plans = 0
    for seed in range(CELLS):
        cell, preemptor = world(seed)
        search = cell.search()
        pool = pool_of(search, preemptor)
        if len(pool.candidates) > CANDIDATES_MAX:
            continue
        areas = search._areas(preemptor.gang)  # as above
        attempt = search._attempt(preemptor.gang, pool, areas)  # as above
        groups = WholeGroups(areas)
        picked = Picked(
            CountedRoom(Gains(pool, pool.counts(preemptor.gang), groups), None), Legality(preemptor, None, None)
        )
        for victims in subsets(pool.candidates):
            picked.become(victims)
            fits = picked.fits()
            if attempt.planned(victims) is not None:
                plans += 1
                assert fits, f"seed {seed}: {[one.gang.counted.uid for one in victims]}"
    assert plans > CELLS


@pytest.mark.parametrize("world", WORLDS, ids=NAMES)
def test_one_row_counts_as_all_rows_at_once_do(world: World) -> None:
    for seed in range(CELLS):
        cell, preemptor = world(seed)
        pool = pool_of(cell.search(), preemptor)
        counts = pool.counts(preemptor.gang)
        states = {row: pool.state(row) for row in range(len(cell.state.table))}
        assert [[*counts.slots.of_row(row, state)] for row, state in states.items()] == np.array(counts.now).T.tolist()
        for one in pool.candidates:
            for row, mask, cpu, memory, share in pool.held(one).rows:
                states[row] = states[row].without_pod(mask & pool.usable.item(row), cpu, memory, share)
        assert [[*counts.slots.of_row(row, state)] for row, state in states.items()] == np.array(counts.most).T.tolist()


@pytest.mark.parametrize("product", ["module910bx8", "module910x8", "310p"])
def test_one_pod_on_a_node_gets_what_the_planner_gives_it(product: str) -> None:
    placed = 0
    for seed in range(CELLS // 2):
        dice = Dice(seed)
        nodes = [a_node(f"n{number}", product) for number in range(2)]
        cell = PreemptionCell(nodes, strict_job_shape=False)
        for number in range(dice.number(2, 6)):
            cell.runs_if_fits(a_job(f"g{number}", chips=dice.pick(1, 2, 4), product=product))
        preemptor = cell.preemptor(a_job("p", chips=dice.pick(1, 2, 4), product=product, priority=1))
        search = cell.search()
        areas = search._areas(preemptor.gang)  # as above
        alone, planned = (
            search._attempt(preemptor.gang, pool_of(search, preemptor), areas)  # as above
            for _ in range(2)
        )
        planned._is_lone = False  # as any other gang
        for row in range(len(nodes)):
            inside = np.arange(len(nodes)) == row
            for victims in subsets(pool_of(search, preemptor).candidates[:4]):
                found = alone.planned(victims, inside)
                assert found == planned.planned(victims, inside), f"seed {seed}"
                placed += found is not None
    assert placed > CELLS


def subsets(candidates: list[Candidate]) -> list[list[Candidate]]:
    return [list(some) for size in range(len(candidates) + 1) for some in itertools.combinations(candidates, size)]


def test_rows_that_are_counted_anew_after_a_result_are_as_if_all_were() -> None:
    followed = 0
    for seed in range(CELLS):
        cell, preemptor = a_contested_cell(seed)
        search = cell.search()
        found = search.find(preemptor)
        if not isinstance(found, VictimSet):
            continue
        search.accept(preemptor, found)
        base = search._base.scorer  # as above
        for kin in search._kins.values():  # as above
            for pool in kin.pools.values():
                followed += 1
                counts = pool.counts(preemptor.gang)
                anew = Pool(kin.candidates, pool.held, search._base, None, is_exact=False)  # as above
                again = Slots(preemptor.gang, anew._gone, None)  # as above
                for task, room in enumerate(again.at(base)):
                    assert np.array_equal(counts.now[task], room), f"seed {seed}"
                    assert np.array_equal(counts.most[task], again.most[task]), f"seed {seed}"
    assert followed > 3
