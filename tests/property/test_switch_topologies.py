"""Plans on every topology that a fact may tell: each passes the check and is planned on, or is refused with its field.

``places`` is not stated, smaller than the lists, as long or longer; lists may be empty and of different lengths;
positions may have gaps and go beyond the longest list.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, SHARED, UNHEALTHY
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable, check_topology, leaf_table
from berth.core.topologies.switches.planner import LARGE, NORMAL, Demand, LeafPool, NoPlan, Plan, SwitchRules, plan
from berth.core.topologies.switches.rescheduling import PartialGang, open_places, plan_partial
from berth.schemas.envelope import DecodeError
from berth.schemas.facts import Leaf, TopologySeen

_LIST_MAX = 4
_POSITION_MAX = 9
STATES = st.sampled_from([0, EXCLUSIVE, SHARED, SHARED | UNHEALTHY, CROSS])
LABELS = st.sampled_from([NORMAL, LARGE])
RULES = st.builds(
    SwitchRules, st.sampled_from(["1.0", "2.0", "single-layer"]), st.integers(1, 2), st.sampled_from((OWN, REFERENCE))
)


@st.composite
def topologies(draw: st.DrawFn) -> TopologySeen:
    leaves = []
    for leaf in range(draw(st.integers(0, 4))):
        count = draw(st.integers(0, _LIST_MAX))
        nodes = [f"n{leaf}-{place}" for place in range(count)]
        positions = draw(st.just([]) | st.lists(st.integers(0, _POSITION_MAX), min_size=count, max_size=count))
        leaves.append(Leaf(f"leaf{leaf}", "", nodes, positions))
    return TopologySeen("switches", leaves, places=draw(st.just(0) | st.integers(1, _POSITION_MAX + 2)))


class Scene(NamedTuple):
    """A board on a topology, and what a gang asks of it."""

    pool: LeafPool
    demand: Demand
    left: PartialGang
    rules: SwitchRules
    names: list[str]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    fact = draw(topologies().filter(is_sound))
    table = leaf_table(fact)
    usable = table.listed & np.array(draw(flags(table.listed.size)), np.bool_).reshape(table.listed.shape)
    bits = np.array([draw(STATES) for _ in range(len(table))], np.uint8)
    pool = LeafPool(table.names, usable, table.slices, bits, table.places)
    taken = np.flatnonzero(table.listed & ~usable).tolist()
    pods = draw(st.integers(1, 12))
    lives = draw(st.lists(st.sampled_from([-1, *taken]), max_size=pods - 1, unique=True))
    left = PartialGang(lives, list(range(len(lives), pods)), draw(st.booleans()))
    return Scene(pool, Demand(pods - len(lives), pods, draw(LABELS)), left, draw(RULES), table.node_names)


def flags(count: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.integers(0, 3).map(bool), min_size=count, max_size=count)


def is_sound(fact: TopologySeen) -> bool:
    try:
        check_topology(fact)
    except DecodeError:
        return False
    return True


@given(topologies())
def test_a_topology_is_refused_exactly_when_its_lists_contradict_it(fact: TopologySeen) -> None:
    beyond = any(
        len(leaf.nodes) > fact.places or any(position >= fact.places for position in leaf.positions)
        for leaf in fact.leaves
    )
    doubled = any(len(set(leaf.positions)) < len(leaf.positions) for leaf in fact.leaves)
    assert is_sound(fact) == (not doubled and not (fact.places and beyond))


@given(scenes())
def test_a_fresh_gang_is_planned_on_every_sound_topology(scene: Scene) -> None:
    demand = scene.demand._replace(replicas=scene.demand.pods)
    found = plan(scene.pool, demand, scene.rules)
    check(scene, found, scene.pool.usable.reshape(-1), demand.replicas)


@given(scenes())
def test_a_torn_gang_is_planned_on_every_sound_topology(scene: Scene) -> None:
    pool, demand, left, rules, names = scene
    opened = open_places(pool, demand, rules, left).places
    found = plan_partial(pool, demand, rules, left, names)
    check(scene, found, opened.reshape(-1), demand.replicas)
    if rules.policy == "1.0" and rules.differs is OWN and isinstance(found, Plan):
        slices = pool.slices.reshape(-1)
        at = Counter(slices[[*(cell for cell in left.cells if cell >= 0), *found.cells]].tolist())
        new = set(slices[found.cells].tolist())
        assert all(at[position] <= -(-demand.pods // pool.places) for position in new)


def check(scene: Scene, found: Plan | NoPlan, opened: npt.NDArray[np.bool_], replicas: int) -> None:
    """Check that each rank has an open place of its own, or that what is missing is said."""
    if isinstance(found, NoPlan):
        assert found.lack.need == replicas
        assert found.lack.places == scene.pool.places
        return
    assert len(found.cells) == len(set(found.cells)) == len(found.states) == replicas
    assert opened[found.cells].all()
    assert all(scene.names[cell] for cell in found.cells)


class TestPositionsBeyondTheLongestList:
    table = LeafTable([Leaf("a", "", ["a0", "a1"], [0, 7]), Leaf("b", "", ["b0", "b1"], [7, 3])])

    def pool(self, *usable: str) -> LeafPool:
        free = np.array([name in usable for name in self.table.node_names], np.bool_)
        return LeafPool(
            self.table.names,
            free.reshape(self.table.listed.shape),
            self.table.slices,
            np.zeros(2, np.uint8),
            self.table.places,
        )

    @pytest.mark.parametrize(
        ("lives", "usable", "parity", "node"),
        [
            ("a0", ("a1", "b0", "b1"), False, "a1"),  # the gang's own leaf has a position that is lacking
            ("a0", ("b0", "b1"), False, "b1"),  # position 3 comes before position 7
            ("a1", ("a0", "b0", "b1"), True, "b0"),  # the reference fills the highest position in use
        ],
    )
    def test_policy_1_0_fills_positions_that_are_lacking(
        self, lives: str, usable: tuple[str, ...], *, parity: bool, node: str
    ) -> None:
        pool, names = self.pool(*usable), self.table.node_names
        found = plan_partial(
            pool,
            Demand(1, 2, NORMAL),
            SwitchRules("1.0", differs=REFERENCE if parity else OWN),
            PartialGang([names.index(lives)], [1]),
            names,
        )
        assert isinstance(found, Plan)
        assert [names[cell] for cell in found.cells] == [node]

    def test_leaves_without_nodes_have_no_room(self) -> None:
        table = LeafTable([Leaf("a", "", []), Leaf("b", "", [])])
        pool = LeafPool(table.names, table.listed, table.slices, np.zeros(2, np.uint8), table.places)
        for label in (NORMAL, LARGE):
            fresh = plan(pool, Demand(3, 3, label), SwitchRules("1.0"))
            partial_gang = plan_partial(pool, Demand(1, 4, label), SwitchRules("1.0"), PartialGang([-1] * 3, [3]), [])
            assert isinstance(fresh, NoPlan)
            assert isinstance(partial_gang, NoPlan)
            assert (fresh.lack.need, fresh.lack.have, partial_gang.lack.need, partial_gang.lack.have) == (3, 0, 1, 0)
