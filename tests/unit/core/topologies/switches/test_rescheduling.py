"""Lost pods below leaf switches: which places are open, which are taken, and what new pods say of their leaves."""

import pytest

from berth.core.parity import REFERENCE
from berth.core.topologies.switches.occupancy.leaf_bits import CROSS, EXCLUSIVE, SHARED, UNHEALTHY
from berth.core.topologies.switches.planner import LARGE, NORMAL, Demand, LeafPool, NoPlan, Plan, SwitchRules
from berth.core.topologies.switches.rescheduling import PartialGang, open_places, plan_partial
from tests.support.plan_decisions import replacement_decisions
from tests.unit.core.topologies.switches.test_planner import a_board

ONE = SwitchRules("1.0")
TWO = SwitchRules("2.0")
SINGLE = SwitchRules("single-layer")


def nodes_of(pool: LeafPool) -> list[str]:
    width = pool.usable.shape[1]
    return [f"{name}{place}" for name in pool.names for place in range(width)]


def partial_gang(pool: LeafPool, lives: str, *ranks: int, is_single: bool = False) -> PartialGang:
    names = nodes_of(pool)
    return PartialGang([names.index(name) for name in lives.split()], ranks, is_single)


def replace(pool: LeafPool, left: PartialGang, rules: SwitchRules, label: str = LARGE, pods: int = 0) -> str:
    """Nodes of the lost pods, or the rule that could not be met."""
    demand = Demand(len(left.ranks), pods or len(left.cells) + len(left.ranks), label)
    found = plan_partial(pool, demand, rules, left, nodes_of(pool))
    if isinstance(found, NoPlan):
        return found.lack.rule
    return " ".join(nodes_of(pool)[cell] for cell in found.cells)


def opened(pool: LeafPool, left: PartialGang, rules: SwitchRules, label: str = LARGE) -> str:
    demand = Demand(len(left.ranks), len(left.cells) + len(left.ranks), label)
    cells = open_places(pool, demand, rules, left).places.reshape(-1).nonzero()[0].tolist()
    return " ".join(nodes_of(pool)[cell] for cell in cells)


class TestOne:
    def test_the_position_that_lost_a_pod_is_filled(self) -> None:
        pool = a_board("....", ".x..", "xxxx")
        left = partial_gang(pool, "A0 A1 A2 A3 B0 B2 B3", 5)
        assert opened(pool, left, ONE) == "B1 C1"
        assert replace(pool, left, ONE) == "B1"

    def test_the_reference_fills_the_highest_position_in_use(self) -> None:
        pool = a_board("....", ".x..", "xxxx")
        left = partial_gang(pool, "A0 A1 A2 A3 B0 B2 B3", 5)
        assert opened(pool, left, ONE._replace(differs=REFERENCE)) == "C3"
        assert replace(pool, left, ONE._replace(differs=REFERENCE)) == "C3"

    def test_several_pods_go_to_different_positions(self) -> None:
        pool = a_board("....", "xxxx")
        assert replace(pool, partial_gang(pool, "A0 A3", 1, 2), ONE) == "B1 B2"

    def test_a_leaf_that_another_job_crosses_is_closed(self) -> None:
        pool = a_board(".x..", "x...", ".x..", bits=(0, 0, CROSS))
        assert opened(pool, partial_gang(pool, "A0 A2 A3", 1), ONE) == "A1"

    def test_own_leaves_come_first(self) -> None:
        pool = a_board("xxxx", "...x")
        assert replace(pool, partial_gang(pool, "B0 B1 B2", 3), ONE) == "B3"

    def test_a_padding_job_is_placed_only_as_a_whole(self) -> None:
        pool = a_board(".xxx")
        left = partial_gang(pool, "A0", 1)
        assert open_places(pool, Demand(1, 2, LARGE), ONE, left).rule == "whole-gang"
        assert replace(pool, left, ONE) == "open-places"
        assert replace(pool, left, ONE, NORMAL) == "A1"

    def test_no_place_at_a_position_that_is_lacking(self) -> None:
        pool = a_board("....", "x...")
        assert replace(pool, partial_gang(pool, "A0 A1 A2", 3), ONE) == "open-places"

    def test_no_position_gets_more_pods_than_the_whole_gang_would_have_there(self) -> None:
        pool = a_board("....", "..x.", "..x.")
        assert replace(pool, partial_gang(pool, "A0 A1 A3", 3), ONE) == "B2"
        assert replace(pool, partial_gang(pool, "A0 A1", 2, 3), ONE) == "open-places"


class TestTwo:
    def test_a_gang_below_one_leaf_stays_there(self) -> None:
        pool = a_board("..x.", "xxxx")
        left = partial_gang(pool, "A0 A1", 2, is_single=True)
        assert opened(pool, left, TWO, NORMAL) == "A2"
        found = plan_partial(pool, Demand(1, 3, NORMAL), TWO, left, nodes_of(pool))
        assert isinstance(found, Plan)
        assert (found.states, found.after, found.rule) == (bytes(1), {0: EXCLUSIVE}, "replacement")

    def test_leaves_of_others_are_closed_when_exclusive_or_when_the_limit_is_reached(self) -> None:
        pool = a_board("...x", "..xx", "xxxx", "xxxx", "xxxx", bits=(EXCLUSIVE, SHARED, EXCLUSIVE, SHARED, 0))
        left = partial_gang(pool, "A0 A1 A2 B0", 4)
        assert opened(pool, left, TWO).split()[:3] == ["A3", "B2", "B3"]
        assert opened(pool, left, TWO).split()[3:] == [f"{leaf}{place}" for leaf in "DE" for place in range(4)]
        assert opened(pool, left, SwitchRules("2.0", 1)).split()[3:] == [f"E{place}" for place in range(4)]

    def test_own_exclusive_leaves_go_before_own_shared_ones_and_new_ones(self) -> None:
        pool = a_board("..xx", "...x", "xxxx", bits=(SHARED, EXCLUSIVE, 0))
        left = partial_gang(pool, "A0 A1 B0 B1", 4, 5)
        assert replace(pool, left, TWO) == "B3 A2"

    def test_a_free_leaf_of_its_own_becomes_shared_if_there_is_room_for_others(self) -> None:
        pool = a_board(".xxx", ".x..", bits=(0, 0))
        left = partial_gang(pool, "A0 B0", 2)
        found = plan_partial(pool, Demand(1, 4, LARGE), TWO, left, nodes_of(pool))
        assert isinstance(found, Plan)
        assert (found.after, found.states) == ({0: SHARED, 1: EXCLUSIVE}, bytes([EXCLUSIVE]))

    def test_new_leaves_are_emptied_the_fullest_first(self) -> None:
        pool = a_board("...x", "xxx.", "xx..", bits=(EXCLUSIVE, 0, 0))
        left = partial_gang(pool, "A0 A1 A2", 3, 4, 5)
        found = plan_partial(pool, Demand(3, 6, LARGE), TWO, left, nodes_of(pool))
        assert isinstance(found, Plan)
        assert [nodes_of(pool)[cell] for cell in found.cells] == ["A3", "C0", "C1"]
        assert found.after == {2: EXCLUSIVE}

    def test_the_rest_goes_on_a_shared_leaf_or_opens_a_free_one(self) -> None:
        left = partial_gang(a_board("...."), "A0 A1 A2 A3", 4, 5)
        shared = a_board("....", "xxxx", "xx..", bits=(EXCLUSIVE, 0, SHARED))
        assert replace(shared, left, TWO) == "C0 C1"
        free = a_board("....", "xxxx", "x...", bits=(EXCLUSIVE, 0, SHARED))
        found = plan_partial(free, Demand(2, 6, LARGE), TWO, left, nodes_of(free))
        assert isinstance(found, Plan)
        assert (found.after, found.states) == ({1: SHARED}, bytes([SHARED, SHARED]))
        full = plan_partial(free, Demand(2, 6, LARGE), SwitchRules("2.0", 0), left, nodes_of(free))
        assert isinstance(full, Plan)
        assert full.after == {1: EXCLUSIVE}

    def test_what_is_missing(self) -> None:
        pool = a_board("..x.", "....", "xxx.", bits=(SHARED, SHARED | UNHEALTHY, 0))
        left = partial_gang(pool, "A0 A1 B0", 3)
        assert replace(pool, left, SwitchRules("2.0", 1)) == "shared-limit"
        assert replace(pool, left, TWO) == "A2"
        pool = a_board("..x.", "x...", bits=(EXCLUSIVE, 0))
        assert replace(pool, partial_gang(pool, "A0", 1, 2), TWO) == "own-leaves"
        found = plan_partial(pool, Demand(3, 5, LARGE), TWO, partial_gang(pool, "A0 A1", 2, 3, 4), nodes_of(pool))
        assert isinstance(found, NoPlan)
        assert (found.lack.rule, found.lack.need, found.lack.have) == ("idle-and-shared", 3, 2)
        pool = a_board("....", "xxxx", bits=(EXCLUSIVE, EXCLUSIVE))
        assert replace(pool, partial_gang(pool, "A0 A1 A2 A3", 4), TWO) == "open-places"

    def test_the_reference_takes_the_node_that_is_numbered_like_the_rank(self) -> None:
        pool = a_board(".x.x", bits=(EXCLUSIVE,))
        left = partial_gang(pool, "A0 A2", 3)
        assert replace(pool, left, TWO._replace(differs=REFERENCE), NORMAL) == "A3"
        assert replace(pool, left, TWO, NORMAL) == "A1"


class TestSingle:
    def test_lost_pods_stay_below_the_leaf_of_the_others(self) -> None:
        pool = a_board("x...", "xx.x")
        left = partial_gang(pool, "B2", 1)
        assert replace(pool, left, SINGLE) == "B0"
        assert replace(pool, left, SINGLE._replace(differs=REFERENCE)) == "A0"
        assert replace(a_board("x...", "...."), left, SINGLE) == "open-places"

    def test_survivors_whose_leaf_is_not_known_close_nothing(self) -> None:
        pool = a_board("x...", "xx.x")
        assert replace(pool, PartialGang([-1], [1]), SINGLE) == "A0"


def test_ranks_and_replicas_must_agree() -> None:
    pool = a_board("xx")
    with pytest.raises(ValueError, match="replicas is 2: expected 1"):
        plan_partial(pool, Demand(2, 3, NORMAL), ONE, PartialGang([], [1]), nodes_of(pool))
    with pytest.raises(ValueError, match="replicas is 0: expected 0"):
        plan_partial(pool, Demand(0, 3, NORMAL), ONE, PartialGang([], []), nodes_of(pool))


def test_each_policy_has_its_decision() -> None:
    found = [replacement_decisions(Demand(1, 4, LARGE), rules) for rules in (ONE, TWO, SINGLE)]
    assert replacement_decisions(Demand(1, 3, LARGE), ONE) == ()
    assert replacement_decisions(Demand(1, 3, NORMAL), ONE) == found[0]
    assert found == [("slice-of-lost-pod",), ("deterministic-scores",), ("survivors-leaf",)]


def states_after(pool: LeafPool, left: PartialGang, rules: SwitchRules, pods: int) -> dict[int, int]:
    """States that the replacement sets."""
    found = plan_partial(pool, Demand(len(left.ranks), pods, LARGE), rules, left, nodes_of(pool))
    assert isinstance(found, Plan)
    return dict(found.after)


class TestKeptStates:
    """A free leaf of the gang becomes shared when others find room below it beside the gang's pods."""

    @pytest.mark.parametrize(("leaf", "state"), [(".xxx", SHARED), (".xx.", EXCLUSIVE), (".x..", EXCLUSIVE)])
    def test_room_for_two_more_than_the_gang_has_makes_a_leaf_shared(self, leaf: str, state: int) -> None:
        pool = a_board(leaf)
        assert states_after(pool, partial_gang(pool, "A0", 1), TWO, 2) == {0: state}

    def test_no_more_leaves_become_shared_than_the_gang_may_have(self) -> None:
        pool = a_board(".xxx", ".xxx", ".xxx")
        left = partial_gang(pool, "A0 B0 C0", 3)
        assert states_after(pool, left, TWO, 4) == {0: SHARED, 1: SHARED, 2: EXCLUSIVE}
        assert states_after(pool, left, SwitchRules("2.0", 1), 4) == {0: SHARED, 1: EXCLUSIVE, 2: EXCLUSIVE}


class TestOwnLeaves:
    """At one position, and of positions alike, a node below a leaf of the gang comes first, whatever the names."""

    def test_at_one_position(self) -> None:
        pool = a_board("..x.", "..x.", "....")
        assert replace(pool, partial_gang(pool, "B0 B1 B3", 3), ONE) == "B2"

    def test_of_positions_alike(self) -> None:
        pool = a_board("..x.", "...x")
        assert replace(pool, partial_gang(pool, "B0 B1", 3), ONE, pods=4) == "B3"
