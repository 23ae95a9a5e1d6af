"""Plans of switch affinity, rule by rule, and the numbers that say why there is none."""

import numpy as np
import pytest

from berth.core.parity import OWN, REFERENCE
from berth.core.topologies.switches.occupancy.leaf_bits import (
    CROSS,
    EXCLUSIVE,
    LARGE_CROSS,
    NOT_NORMAL,
    SHARED,
    UNHEALTHY,
)
from berth.core.topologies.switches.occupancy.leaf_states import JobPhase, LeafJob, LeafOccupancy
from berth.core.topologies.switches.occupancy.leaf_table import LeafTable
from berth.core.topologies.switches.planner import (
    LARGE,
    NORMAL,
    Demand,
    LeafPool,
    NoPlan,
    Plan,
    Policy,
    SwitchRules,
    is_annotated,
    plan,
    switch_decisions,
    switch_rules,
)
from berth.schemas.facts import Leaf
from berth.schemas.ledger import Settings
from berth.schemas.refusal import SwitchLack

ONE = SwitchRules("1.0")
TWO = SwitchRules("2.0")
SINGLE = SwitchRules("single-layer")


def a_board(*leaves: str, bits: tuple[int, ...] = (), slices: tuple[tuple[int, ...], ...] = ()) -> LeafPool:
    """A leaf a text: ``x`` is a usable place, ``.`` another. Leaf 0 is ``A``."""
    usable = np.array([[place == "x" for place in leaf] for leaf in leaves], np.bool_).reshape(len(leaves), -1)
    width = usable.shape[1]
    return LeafPool(
        [chr(65 + index) for index in range(len(leaves))],
        usable,
        np.array(slices or [range(width)] * len(leaves), np.int32).reshape(len(leaves), -1),
        np.array(bits or [0] * len(leaves), np.uint8),
        width,
    )


def the_plan(pool: LeafPool, demand: Demand, rules: SwitchRules) -> Plan:
    found = plan(pool, demand, rules)
    assert isinstance(found, Plan), found
    return found


def the_lack(pool: LeafPool, demand: Demand, rules: SwitchRules) -> SwitchLack:
    found = plan(pool, demand, rules)
    assert isinstance(found, NoPlan), found
    return found.lack


def spots(pool: LeafPool, found: Plan) -> str:
    """Leaf and place of each rank."""
    width = pool.usable.shape[1]
    return " ".join(f"{pool.names[cell // width]}{cell % width}" for cell in found.cells)


def large(replicas: int) -> Demand:
    return Demand(replicas, max(replicas, 4), LARGE)


def padding(replicas: int) -> Demand:
    return Demand(replicas, replicas, LARGE)


def common(replicas: int) -> Demand:
    return Demand(replicas, replicas, NORMAL)


class TestOne:
    def test_a_small_job_goes_below_the_fullest_leaf_that_holds_it_and_of_those_alike_below_the_last(self) -> None:
        pool = a_board("xxxx", "xx..", ".xx.", "x...")
        found = the_plan(pool, common(2), ONE)
        assert (spots(pool, found), found.rule, found.states) == ("C1 C2", "best-fit", bytes(2))

    def test_ranks_follow_positions_and_not_places(self) -> None:
        pool = a_board("xxx.", slices=((2, 0, 1, 3),))
        assert spots(pool, the_plan(pool, padding(3), ONE)) == "A1 A2 A0"

    def test_whole_leaves_come_before_rows(self) -> None:
        pool = a_board("xx", "xx", "x.", "xx")
        found = the_plan(pool, large(5), ONE)
        assert (spots(pool, found), found.rule) == ("A0 A1 B0 B1 D0", "complete-leaves")

    def test_rows_take_the_longest_columns_first(self) -> None:
        pool = a_board("xx.x", ".xx.", "xx..")
        found = the_plan(pool, large(5), ONE)
        assert (spots(pool, found), found.rule) == ("A0 A1 B2 A3 B1", "logical-switches")

    def test_a_small_job_that_fits_below_no_leaf_gets_the_last_row_that_holds_it(self) -> None:
        pool = a_board("xx.....", "xx.....", "..xx...", "....x..")
        found = the_plan(pool, large(4), ONE)
        assert (spots(pool, found), found.rule) == ("A0 A1 C2 C3", "logical-switches")

    def test_a_leaf_that_another_job_crosses_is_open_only_to_what_is_wholly_below_it(self) -> None:
        pool = a_board("xxx.", "x.x.", "..x.", bits=(CROSS | NOT_NORMAL, 0, 0))
        assert spots(pool, the_plan(pool, padding(3), ONE)) == "A0 A1 A2"
        lack = the_lack(pool, large(4), ONE)
        assert (lack.rule, lack.barred, lack.have) == ("logical-switches", 1, 3)

    def test_a_common_job_shares_a_leaf_that_only_common_jobs_use(self) -> None:
        pool = a_board("xx..", "..xx", bits=(CROSS, 0))
        assert spots(pool, the_plan(pool, common(4), ONE)) == "A0 A1 B2 B3"
        assert the_lack(pool, large(4), ONE).barred == 1

    def test_a_common_job_takes_what_there_is_when_no_rule_serves(self) -> None:
        pool = a_board("x.x.", "xx..", "x...")
        found = the_plan(pool, common(5), ONE)
        assert (spots(pool, found), found.rule) == ("A0 A2 B0 B1 C0", "fallback")
        assert found.missed is not None
        assert found.missed.rule == "logical-switches"

    def test_numbers_of_rows(self) -> None:
        lack = the_lack(a_board("xxxx", "xx..", "x..."), large(10), ONE)
        assert (lack.rows, lack.rest, lack.rows_have, lack.have, lack.need) == (2, 2, 1, 7, 10)
        assert (lack.full, lack.leaves, lack.places, lack.leaf, lack.leaf_have) == (1, 3, 4, "A", 4)

    def test_a_common_job_says_which_rule_failed_first(self) -> None:
        found = plan(a_board("x.x.", "x..."), common(4), ONE)
        assert isinstance(found, NoPlan)
        assert (found.first, found.lack.rule, found.lack.have) == ("logical-switches", "any-leaf", 3)

    def test_leaves_of_more_than_128_places_have_no_rows(self) -> None:
        pool = a_board("x" * 100 + "." * 29, "." * 100 + "x" * 29)
        assert the_lack(pool, large(129), ONE).rule == "logical-switches"
        assert the_plan(pool, common(129), ONE).rule == "fallback"


class TestTwo:
    @pytest.mark.parametrize(
        ("bits", "leaf"),
        [
            ((0, SHARED, SHARED | UNHEALTHY, EXCLUSIVE), "D"),
            ((0, SHARED, SHARED | UNHEALTHY, SHARED), "C"),
            ((0, SHARED, 0, SHARED), "B"),
            ((0, 0, 0, 0), "A"),
        ],
    )
    def test_classes_go_before_what_fits_best(self, bits: tuple[int, ...], leaf: str) -> None:
        pool = a_board("xx..", "xxx.", "xxx.", "xxx.", bits=bits)
        found = the_plan(pool, padding(2), TWO)
        assert spots(pool, found) == f"{leaf}0 {leaf}1"
        assert (found.rule, found.states, found.after) == ("best-fit", bytes(2), {})

    def test_inside_a_class_the_fullest_leaf_that_holds_all(self) -> None:
        pool = a_board("xxxx", "xxx.", "xxx.", "x...")
        assert spots(pool, the_plan(pool, common(2), TWO)) == "B0 B1"

    def test_free_leaves_are_emptied_and_become_exclusive(self) -> None:
        pool = a_board("x..", "xxx", "xx.")
        found = the_plan(pool, large(6), TWO)
        assert (spots(pool, found), found.rule) == ("B0 B1 B2 C0 C1 A0", "drained")
        assert (found.after, found.states) == ({0: EXCLUSIVE, 1: EXCLUSIVE, 2: EXCLUSIVE}, bytes([EXCLUSIVE] * 6))

    def test_a_job_that_empties_one_leaf_says_nothing_of_it(self) -> None:
        found = the_plan(a_board("xxxx", "xxxx"), large(4), TWO)
        assert (found.states, found.after) == (bytes(4), {0: EXCLUSIVE})

    def test_the_rest_goes_on_one_shared_leaf(self) -> None:
        pool = a_board("xxxx", "xx..", "xxx.", bits=(0, SHARED, SHARED))
        found = the_plan(pool, large(6), SwitchRules("2.0", 1))
        assert (spots(pool, found), found.rule) == ("A0 A1 A2 A3 B0 B1", "drained-and-shared")
        assert found.states == bytes([EXCLUSIVE] * 4 + [SHARED] * 2)
        assert found.after == {0: EXCLUSIVE}

    def test_the_rest_goes_on_two_shared_leaves(self) -> None:
        pool = a_board("xxxx", "x...", "xx..", "xxx.", bits=(0, SHARED, SHARED, SHARED))
        assert spots(pool, the_plan(pool, large(8), TWO)) == "A0 A1 A2 A3 C0 C1 D0 D1"

    def test_of_the_first_of_two_shared_leaves_the_lowest_positions_serve(self) -> None:
        pool = a_board(
            "xxxx", "xxx.", "xxxx", bits=(0, SHARED, SHARED), slices=((0, 1, 2, 3), (3, 2, 1, 0), (0, 1, 2, 3))
        )
        assert spots(pool, the_plan(pool, large(5), TWO)) == "A0 A1 A2 A3 B2"

    def test_the_rest_opens_a_free_leaf_when_shared_ones_do_not_hold_it(self) -> None:
        pool = a_board("xxxx", "xxxx", "x...", bits=(0, 0, SHARED))
        found = the_plan(pool, large(6), TWO)
        assert (spots(pool, found), found.rule) == ("A0 A1 A2 A3 B0 B1", "drained-and-opened")
        assert found.after == {0: EXCLUSIVE, 1: SHARED}
        assert found.states == bytes([EXCLUSIVE] * 4 + [SHARED] * 2)

    def test_numbers_of_free_and_shared_leaves(self) -> None:
        pool = a_board("xx..", "xx..", "xxx.", "xxxx", bits=(0, SHARED, SHARED, EXCLUSIVE))
        lack = the_lack(pool, large(8), TWO)
        assert (lack.rule, lack.idle, lack.shared, lack.have, lack.need) == ("idle-and-shared", 2, 5, 7, 8)
        assert the_lack(pool, large(8), SwitchRules("2.0", 1)).shared == 3

    def test_a_padding_job_says_what_the_best_leaf_has(self) -> None:
        lack = the_lack(a_board("x...", ".xx."), padding(3), TWO)
        assert (lack.rule, lack.have, lack.leaf, lack.leaf_have) == ("one-leaf", 2, "B", 2)

    def test_a_common_job_goes_beside_the_limit_and_makes_leaves_unhealthy(self) -> None:
        pool = a_board("xx", "x.", "xx", "x.", bits=(0, SHARED | UNHEALTHY, EXCLUSIVE, SHARED))
        found = the_plan(pool, common(5), TWO)
        assert (spots(pool, found), found.rule) == ("A0 A1 B0 D0 C0", "fallback")
        assert found.after == {0: EXCLUSIVE, 1: SHARED | UNHEALTHY, 2: SHARED | UNHEALTHY, 3: SHARED | UNHEALTHY}
        assert found.missed is not None
        assert found.missed.rule == "idle-and-shared"

    def test_a_common_job_keeps_off_leaves_that_a_foundation_model_job_crosses(self) -> None:
        pool = a_board("xx", "xx", bits=(0, EXCLUSIVE | LARGE_CROSS))
        found = plan(pool, common(4), TWO)
        assert isinstance(found, NoPlan)
        assert (found.first, found.lack.rule, found.lack.have) == ("idle-and-shared", "any-leaf", 2)

    def test_an_unhealthy_leaf_that_nobody_calls_shared_is_lost_in_the_reference_only(self) -> None:
        table = LeafTable([Leaf("A", "", ["a0", "a1", "a2"])])
        job = LeafJob(NORMAL, 1, ["a0"], bytes([UNHEALTHY]), phase=JobPhase.RUNNING)
        bits = []
        for parity in (True, False):
            occupancy = LeafOccupancy(table, REFERENCE if parity else OWN)
            occupancy.put(("job", 1), job)
            bits.append(int(occupancy.bits()[0]))
        assert bits == [UNHEALTHY, SHARED | UNHEALTHY]
        assert isinstance(plan(a_board(".xx", bits=(bits[0],)), common(2), TWO), NoPlan)
        assert isinstance(plan(a_board(".xx", bits=(bits[1],)), common(2), TWO), Plan)


class TestSingle:
    def test_all_below_the_fullest_leaf_that_holds_them(self) -> None:
        pool = a_board("xxxx", "xx..", ".xx.", bits=(0, 0, CROSS | NOT_NORMAL))
        found = the_plan(pool, large(2), SINGLE)
        assert (spots(pool, found), found.states, found.after) == ("C1 C2", bytes(2), {})

    def test_more_pods_than_a_leaf_has_places(self) -> None:
        lack = the_lack(a_board("xxxx", "xxxx"), common(5), SINGLE)
        assert (lack.rule, lack.need, lack.places) == ("leaf-size", 5, 4)
        late = the_lack(a_board("xxxx", "xxxx"), Demand(1, 5, "normal-schema"), SINGLE)
        assert (late.rule, late.need, late.places) == ("leaf-size", 5, 4), "the others of the gang run already"
        assert the_lack(a_board("xx..", ".x.."), common(3), SINGLE).rule == "one-leaf"


@pytest.mark.parametrize("policy", ["1.0", "2.0"])
class TestPaddingOfAWholeLeaf:
    def test_the_reference_lets_it_cross_leaves(self, policy: Policy) -> None:
        pool = a_board("xx", "xx")
        assert spots(pool, the_plan(pool, padding(3), SwitchRules(policy, differs=REFERENCE))) == "A0 A1 B0"
        assert the_lack(pool, padding(3), SwitchRules(policy)).rule == "one-leaf"

    def test_as_many_pods_as_places_take_a_whole_leaf(self, policy: Policy) -> None:
        pool = a_board("xx.", "xxx", "xxx")
        for parity in (True, False):
            assert (
                spots(pool, the_plan(pool, padding(3), SwitchRules(policy, differs=REFERENCE if parity else OWN)))
                == "B0 B1 B2"
            )


@pytest.mark.parametrize("rules", [ONE, TWO, SINGLE])
class TestAllPolicies:
    def test_without_leaves_there_is_no_plan(self, rules: SwitchRules) -> None:
        pool = LeafPool([], np.zeros((0, 0), np.bool_), np.zeros((0, 0), np.int32), np.zeros(0, np.uint8), 0)
        for demand in (large(4), padding(1), common(1)):
            assert the_lack(pool, demand, rules).leaves == 0

    def test_nobody_asks_for_nothing(self, rules: SwitchRules) -> None:
        with pytest.raises(ValueError, match="replicas is 0: expected 1 or more"):
            plan(a_board("xx"), common(0), rules)

    def test_one_pod_below_a_leaf_of_one_place(self, rules: SwitchRules) -> None:
        pool = a_board(".", "x")
        for demand in (common(1), padding(1)):
            assert spots(pool, the_plan(pool, demand, rules)) == "B0"


def test_rules_of_an_epoch() -> None:
    settings = Settings(nslb_version="2.0", shared_tor_num=1, reference_parity=True)
    assert switch_rules(settings, is_single_layer=False) == SwitchRules("2.0", 1, differs=REFERENCE)
    assert switch_rules(settings, is_single_layer=True).policy == "single-layer"
    assert switch_rules(Settings(), is_single_layer=False) == SwitchRules("1.0", 2, differs=OWN)


def test_who_writes_states_to_pods() -> None:
    assert [is_annotated(rules) for rules in (ONE, TWO, SINGLE)] == [True, True, False]
    assert [is_annotated(rules._replace(differs=REFERENCE)) for rules in (ONE, TWO, SINGLE)] == [False, True, False]


def test_decisions_that_may_matter() -> None:
    pool = a_board("xx", "xx")
    assert switch_decisions(pool, padding(2), ONE) == ("annotations-in-1.0", "fill-crosses-leaf")
    assert switch_decisions(pool, padding(1), TWO) == ()
    assert switch_decisions(pool, padding(2), SINGLE) == ()


def test_two_shared_leaves_that_have_exactly_what_is_needed_serve() -> None:
    pool = a_board("x...", "xx..", "xx..", bits=(SHARED, SHARED, SHARED))
    assert spots(pool, the_plan(pool, Demand(4, 4, LARGE), TWO)) == "B0 B1 C0 C1"
