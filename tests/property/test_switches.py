"""Plans of switch affinity: what holds for every cluster, every job and every order of coming and going."""

from collections import Counter
from typing import TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.switches.occupancy.leaf_bits import (
    CROSS,
    EXCLUSIVE,
    LARGE_CROSS,
    NOT_NORMAL,
    SHARED,
    STATE,
    UNHEALTHY,
)
from berth.core.topologies.switches.occupancy.leaf_states import LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.planner import LARGE, NORMAL, Demand, LeafPool, NoPlan, Plan, SwitchRules, plan
from berth.core.topologies.switches.rescheduling import PartialGang, open_places, plan_partial
from berth.schemas.facts import Leaf

STATES = (0, EXCLUSIVE, SHARED, SHARED | UNHEALTHY)
LEAF_STATES = (0, CROSS, CROSS | NOT_NORMAL, CROSS | NOT_NORMAL | LARGE_CROSS, NOT_NORMAL)
LABELS = st.sampled_from([NORMAL, LARGE])

Kind = TypeVar("Kind", bound=np.generic)


@st.composite
def boards(draw: st.DrawFn) -> LeafPool:
    count, width = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    places = draw(st.integers(width, width + 1))
    share = draw(st.sampled_from([1, 2, 3]))
    usable = draw(st.lists(st.integers(0, 3).map(lambda n: n < share), min_size=count * width, max_size=count * width))
    slices = [draw(st.permutations(range(width))) for _ in range(count)]
    state = draw(st.lists(st.sampled_from(STATES), min_size=count, max_size=count))
    marks = draw(st.lists(st.sampled_from(LEAF_STATES), min_size=count, max_size=count))
    return LeafPool(
        [f"leaf{index}" for index in range(count)],
        frozen(np.array(usable, np.bool_).reshape(count, width)),
        frozen(np.array(slices, np.int32).reshape(count, width)),
        frozen(np.array(state, np.uint8) | np.array(marks, np.uint8)),
        places,
    )


def frozen(array: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
    """An array that nobody can write to."""
    array.flags.writeable = False
    return array


RULES = st.builds(
    SwitchRules, st.sampled_from(["1.0", "2.0", "single-layer"]), st.integers(1, 2), st.sampled_from((OWN, REFERENCE))
)


def demand_of(replicas: int, label: str) -> Demand:
    return Demand(replicas, replicas, label)


def leaves_of(pool: LeafPool, cells: list[int]) -> list[int]:
    return [cell // pool.usable.shape[1] for cell in cells]


@given(boards(), st.integers(1, 30), LABELS, RULES)
def test_a_plan_has_a_usable_node_of_its_own_for_each_rank(
    pool: LeafPool, replicas: int, label: str, rules: SwitchRules
) -> None:
    found = plan(pool, demand_of(replicas, label), rules)
    again = plan(pool, demand_of(replicas, label), rules)
    assert found == again
    if isinstance(found, NoPlan):
        assert found.lack.need == replicas
        assert found.lack.have <= int(pool.usable.sum())
        return
    assert len(found.cells) == len(set(found.cells)) == len(found.states) == replicas <= int(pool.usable.sum())
    assert pool.usable.reshape(-1)[found.cells].all()
    assert list(found.after) == sorted(found.after)


@given(boards(), st.integers(1, 30), RULES)
def test_a_padding_job_never_lies_below_two_leaves(pool: LeafPool, replicas: int, rules: SwitchRules) -> None:
    found = plan(pool, Demand(replicas, min(replicas, 3), LARGE), rules._replace(differs=OWN))
    if isinstance(found, Plan):
        assert len(set(leaves_of(pool, found.cells))) == 1
    else:
        assert found.lack.rule == "one-leaf" or rules.policy == "single-layer"
        if found.lack.rule == "one-leaf":
            assert int(pool.usable.sum(axis=1).max()) == found.lack.have < replicas


@given(boards(), LABELS)
def test_nodes_of_one_logical_row_come_from_different_places(pool: LeafPool, label: str) -> None:
    width = pool.usable.shape[1]
    for replicas in range(1, int(pool.usable.sum()) + 1):
        found = plan(pool, demand_of(replicas, label), SwitchRules("1.0"))
        if isinstance(found, Plan) and found.rule == "logical-switches":
            for start in range(0, replicas, pool.places):
                row = [cell % width for cell in found.cells[start : start + pool.places]]
                assert len(set(row)) == len(row)


@given(boards(), st.integers(1, 30), LABELS)
def test_a_job_of_1_0_on_several_leaves_keeps_off_those_that_others_cross(
    pool: LeafPool, replicas: int, label: str
) -> None:
    found = plan(pool, demand_of(replicas, label), SwitchRules("1.0"))
    if isinstance(found, Plan) and len(leaves := set(leaves_of(pool, found.cells))) > 1:
        excluded = CROSS | (NOT_NORMAL if label == NORMAL else 0)
        assert not any(int(pool.bits[leaf]) & excluded == excluded for leaf in leaves)


@given(boards(), st.integers(1, 2))
def test_a_foundation_model_job_uses_few_shared_leaves_and_none_that_is_unhealthy(
    pool: LeafPool, shared_max: int
) -> None:
    for replicas in range(4, int(pool.usable.sum()) + 1):
        found = plan(pool, demand_of(replicas, LARGE), SwitchRules("2.0", shared_max))
        if not isinstance(found, Plan) or len(leaves := set(leaves_of(pool, found.cells))) == 1:
            continue
        state = {leaf: found.after.get(leaf, int(pool.bits[leaf]) & (STATE | UNHEALTHY)) for leaf in leaves}
        assert all(value in {SHARED, EXCLUSIVE} for value in state.values())
        assert sum(value == SHARED for value in state.values()) <= shared_max
        assert all(int(pool.bits[leaf]) & STATE == 0 for leaf in found.after)
        assert dict(zip(leaves_of(pool, found.cells), found.states, strict=True)) == state


class Cluster:
    """Jobs that come and go on leaves of one network."""

    def __init__(self, leaves: int, width: int, rules: SwitchRules) -> None:
        self.table = LeafTable(
            [Leaf(f"leaf{leaf}", "", [f"n{leaf}-{place}" for place in range(width)]) for leaf in range(leaves)]
        )
        self.occupancy = LeafOccupancy(self.table)
        self.rules = rules
        self.jobs: dict[int, LeafJob] = {}

    def pool(self) -> LeafPool:
        usable = self.table.listed.copy()
        for job in self.jobs.values():
            usable.reshape(-1)[[self.table.cell_of[node] for node in job.nodes]] = False
        return LeafPool(self.table.names, frozen(usable), self.table.slices, self.occupancy.bits(), self.table.places)

    def arrive(self, number: int, replicas: int, label: str) -> None:
        found = plan(self.pool(), Demand(replicas, replicas, label), self.rules)
        if isinstance(found, Plan):
            nodes = [self.table.node_names[cell] for cell in found.cells]
            self.jobs[number] = LeafJob(label, replicas, nodes, found.states)
            self.occupancy.put(("job", number), self.jobs[number])

    def depart(self, which: int) -> None:
        if self.jobs:
            number = sorted(self.jobs)[which % len(self.jobs)]
            del self.jobs[number]
            self.occupancy.drop(("job", number))

    def crossing(self) -> dict[int, list[LeafJob]]:
        """Jobs on several leaves, by leaf."""
        found: dict[int, list[LeafJob]] = {}
        for job in self.jobs.values():
            leaves = sorted({self.table.leaf_of(node) for node in job.nodes})
            for leaf in leaves if len(leaves) > 1 else ():
                found.setdefault(leaf, []).append(job)
        return found


def life(cluster: Cluster, events: list[tuple[bool, int, str]]) -> None:
    for number, (comes, size, label) in enumerate(events):
        if comes:
            cluster.arrive(number, size, label)
        else:
            cluster.depart(size)


def events(labels: st.SearchStrategy[str]) -> st.SearchStrategy[list[tuple[bool, int, str]]]:
    comes = st.integers(0, 3).map(bool)
    return st.lists(st.tuples(comes, st.integers(1, 14), labels), max_size=25)


@given(st.integers(2, 8), st.integers(1, 5), events(LABELS))
def test_a_leaf_never_has_two_crossing_jobs_of_which_one_is_a_foundation_model_job(
    leaves: int, width: int, history: list[tuple[bool, int, str]]
) -> None:
    cluster = Cluster(leaves, width, SwitchRules("1.0"))
    life(cluster, history)
    for jobs in cluster.crossing().values():
        assert len(jobs) == 1 or {job.tor_affinity for job in jobs} == {NORMAL}


@given(st.integers(2, 8), st.integers(1, 5), st.integers(1, 2), events(st.just(LARGE)))
def test_an_exclusive_leaf_has_one_crossing_job_and_a_job_few_shared_leaves(
    leaves: int, width: int, shared_max: int, history: list[tuple[bool, int, str]]
) -> None:
    cluster = Cluster(leaves, width, SwitchRules("2.0", shared_max))
    life(cluster, history)
    bits = cluster.occupancy.bits()
    used: Counter[int] = Counter()
    for leaf, jobs in cluster.crossing().items():
        assert int(bits[leaf]) & (STATE | UNHEALTHY) in {SHARED, EXCLUSIVE}
        assert len(jobs) == 1 or int(bits[leaf]) & STATE == SHARED
        used.update(id(job) for job in jobs if int(bits[leaf]) & STATE == SHARED)
    assert all(count <= shared_max for count in used.values())


@given(boards(), st.integers(1, 12), LABELS, RULES, st.data())
def test_lost_pods_get_open_places_of_their_own(
    pool: LeafPool, pods: int, label: str, rules: SwitchRules, data: st.DataObject
) -> None:
    width = pool.usable.shape[1]
    taken = [cell for cell in range(pool.usable.size) if not pool.usable.reshape(-1)[cell]]
    lives = data.draw(st.lists(st.sampled_from(taken or [-1]), unique=True, max_size=pods - 1))
    left = PartialGang(lives, list(range(len(lives), pods)), data.draw(st.booleans()))
    demand = Demand(pods - len(lives), pods, label)
    names = [f"n{cell // width}-{cell % width}" for cell in range(pool.usable.size)]
    found = plan_partial(pool, demand, rules, left, names)
    assert found == plan_partial(pool, demand, rules, left, names)
    opened = open_places(pool, demand, rules, left).places
    assert not (opened & ~pool.usable).any()
    if isinstance(found, NoPlan):
        return
    assert len(found.cells) == len(set(found.cells)) == len(found.states) == demand.replicas
    assert opened.reshape(-1)[found.cells].all()
    if rules.policy == "1.0" and rules.differs is OWN:
        at = Counter(pool.slices.reshape(-1)[found.cells].tolist())
        before = Counter(pool.slices.reshape(-1)[[cell for cell in lives if cell >= 0]].tolist())
        assert all((at + before)[position] <= -(-pods // pool.places) for position in at)


@given(boards(), st.integers(1, 30), LABELS, RULES)
def test_names_of_leaves_make_no_difference(pool: LeafPool, replicas: int, label: str, rules: SwitchRules) -> None:
    found = plan(pool, demand_of(replicas, label), rules)
    other = plan(pool._replace(names=[f"x{name}" for name in pool.names]), demand_of(replicas, label), rules)
    if isinstance(found, Plan) and isinstance(other, Plan):
        assert msgspec.structs.replace(found, missed=None) == msgspec.structs.replace(other, missed=None)
    else:
        assert type(found) is type(other)
