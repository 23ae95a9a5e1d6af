"""Any number of levels: configuration, trees from labels, plans, and what moves after a loss."""

from collections.abc import Mapping

import numpy as np
import pytest

from berth.core.topologies.levels.level_map import Forest
from berth.core.topologies.levels.model import LevelPlan, NoLevels, Tree
from berth.core.topologies.levels.planner import plan_levels
from berth.core.topologies.levels.request import (
    TOPOTREE,
    Config,
    Level,
    LevelError,
    check_sizes,
    read_level_config,
    read_sizes,
)
from berth.core.topologies.levels.rescheduling import (
    STEPS_MAX,
    LevelRecovery,
    neighbours,
    recover_levels,
    steps_of,
)
from tests.support.level_trees import forest_of

TWO = '{"default": {"level1": {"label": "rack", "reservedNode": 1}, "level2": {"label": "hall"}}}'
CONFIG: Config = {"default": (Level("rack"), Level("hall"))}


def grown(racks: Mapping[str, int], config: Config = CONFIG) -> Forest:
    """Nodes ``hall.rack-0`` and so on, numbered in the order given; ``racks`` says how many of each."""
    nodes = [(rack, number) for rack, count in racks.items() for number in range(count)]
    labels = [{"rack": rack, "hall": rack.split(".")[0]} for rack, _ in nodes]
    return forest_of(config, [(f"{rack}-{number:02}", row, labels[row]) for row, (rack, number) in enumerate(nodes)])


def planned(forest: Forest, sizes: tuple[int, ...], replicas: int) -> LevelPlan:
    found = plan_levels(forest.trees, sizes, replicas)
    assert isinstance(found, LevelPlan), found
    return found


def groups_of(forest: Forest, plan: LevelPlan) -> list[str]:
    names = forest.trees[plan.tree].groups[-1]
    return [names[group] for group in plan.groups.tolist()]


def with_reserve(reserved: int) -> Config:
    return {"default": (Level("rack", reserved), Level("hall"))}


def test_configuration_is_read() -> None:
    assert read_level_config(TWO) == {"default": (Level("rack", 1), Level("hall", 0))}
    assert read_level_config("") == {}
    assert list(read_level_config('{"b": {"level1": {"label": "x"}}, "a": {"level1": {"label": "y"}}}')) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("{", "resource-level-config", "'{'"),
        ("[" * 100_000, "resource-level-config", "'" + "[" * 79 + "…"),
        ("[]", "resource-level-config", "[]"),
        ('{"t": 3}', "resource-level-config.t", "3"),
        ('{"t": {}}', "resource-level-config.t.level1", "missing"),
        ('{"t": {"level2": {"label": "x"}}}', "resource-level-config.t.level1", "missing"),
        ('{"t": {"level1": {"label": "x"}, "level3": {"label": "x"}}}', "resource-level-config.t.level2", "missing"),
        ('{"t": {"level0": {"label": "x"}}}', "resource-level-config.t", "'level0'"),
        ('{"t": {"level11": {"label": "x"}}}', "resource-level-config.t", "'level11'"),
        ('{"t": {"rack": {"label": "x"}}}', "resource-level-config.t", "'rack'"),
        ('{"t": {"level1": "x"}}', "resource-level-config.t.level1", "'x'"),
        ('{"t": {"level1": {}}}', "resource-level-config.t.level1.label", "missing"),
        ('{"t": {"level1": {"label": " "}}}', "resource-level-config.t.level1.label", "' '"),
        ('{"t": {"level1": {"label": 4}}}', "resource-level-config.t.level1.label", "4"),
        (
            '{"t": {"level1": {"label": "x", "reservedNode": -1}}}',
            "resource-level-config.t.level1.reservedNode",
            "-1",
        ),
        (
            '{"t": {"level1": {"label": "x", "reservedNode": true}}}',
            "resource-level-config.t.level1.reservedNode",
            "True",
        ),
        (
            '{"t": {"level1": {"label": "x", "reservedNode": "2"}}}',
            "resource-level-config.t.level1.reservedNode",
            "'2'",
        ),
    ],
)
def test_a_configuration_that_is_none_says_where(text: str, field: str, value: str) -> None:
    with pytest.raises(LevelError) as caught:
        read_level_config(text)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert caught.value.expected
    assert field in str(caught.value)


def test_ten_levels_are_read() -> None:
    levels = ", ".join(f'"level{number}": {{"label": "l{number}"}}' for number in range(10, 0, -1))
    assert read_level_config(f'{{"t": {{{levels}}}}}')["t"][9] == Level("l10")


def test_sizes_of_a_job_are_read_in_any_order() -> None:
    assert read_sizes("level1=4,level2=16") == (4, 16)
    assert read_sizes(" level2 = 16 , level1=4") == (4, 16)
    check_sizes((4, 16), 32)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("", "huawei.com/affinity-config", "''"),
        ("level1", "huawei.com/affinity-config", "'level1'"),
        ("level1=2,", "huawei.com/affinity-config", "'level1=2,'"),
        ("level1=2,level1=2", "huawei.com/affinity-config.level1", "'level1=2'"),
        ("level2=2", "huawei.com/affinity-config.level1", "missing"),
        ("rack=2", "huawei.com/affinity-config", "'rack'"),
        ("level1=0", "huawei.com/affinity-config.level1", "'0'"),
        ("level1=-2", "huawei.com/affinity-config.level1", "'-2'"),
        ("level1=two", "huawei.com/affinity-config.level1", "'two'"),
        ("level1=99999999999", "huawei.com/affinity-config.level1", "'99999999999'"),
        ("level1=4,level2=6", "huawei.com/affinity-config.level2", "6"),
        ("level1=4,level2=2", "huawei.com/affinity-config.level2", "2"),
        (",".join(f"level{n}=1" for n in range(1, 12)), "huawei.com/affinity-config", "'level11'"),
    ],
)
def test_sizes_that_are_none_say_where(text: str, field: str, value: str) -> None:
    with pytest.raises(LevelError) as caught:
        read_sizes(text)
    assert (caught.value.field, caught.value.value) == (field, value)


@pytest.mark.parametrize("replicas", [0, 4, 9])
def test_the_highest_level_divides_the_job(replicas: int) -> None:
    with pytest.raises(LevelError) as caught:
        check_sizes((2, 8), replicas)
    assert (caught.value.field, caught.value.value) == ("huawei.com/affinity-config.level2", "8")
    assert caught.value.expected == f"a divisor of the {replicas} pods of the job"


def test_nodes_without_a_label_and_of_unknown_trees_are_counted() -> None:
    forest = forest_of(
        CONFIG,
        [
            ("a", 0, {"rack": "r", "hall": "h"}),
            ("b", 1, {"rack": "r"}),
            ("c", 2, {"hall": "h", "rack": ""}),
            ("d", 3, {"rack": "r", "hall": "h", TOPOTREE: "else"}),
        ],
    )
    assert (forest.unlabelled, forest.unknown_tree) == (2, 1)
    assert forest.trees[0].rows.tolist() == [0]


def test_a_group_below_two_parents_is_two_groups() -> None:
    nodes = [(f"n{row}", row, {"rack": "r", "hall": f"h{row // 2}"}) for row in range(4)]
    forest = forest_of(CONFIG, nodes)
    assert forest.trees[0].groups == (["h0", "h1"], ["r", "r"])
    assert isinstance(plan_levels(forest.trees, (4,), 4), NoLevels)
    assert planned(forest, (2,), 4).groups.tolist() == [0, 1]


def test_one_group_id_in_two_trees_is_two_groups() -> None:
    config: Config = {"east": (Level("rack"),), "west": (Level("rack"),)}
    nodes = [(f"n{row}", row, {"rack": "r", TOPOTREE: ("east", "west")[row % 2]}) for row in range(6)]
    forest = forest_of(config, nodes)
    assert [tree.rows.tolist() for tree in forest.trees] == [[0, 2, 4], [1, 3, 5]]
    assert isinstance(plan_levels(forest.trees, (4,), 4), NoLevels)
    assert planned(forest, (3,), 3).tree == 0


def test_groups_go_by_number_and_nodes_by_name() -> None:
    nodes = [
        (name, row, {"rack": rack, "hall": "h"})
        for row, (name, rack) in enumerate([("n10", "10"), ("n9", "9"), ("n1", "9")])
    ]
    tree = forest_of(CONFIG, nodes).trees[0]
    assert tree.groups[-1] == ["9", "10"]
    assert tree.rows.tolist() == [2, 1, 0]


def test_groups_that_leave_the_least_behind_go_first() -> None:
    forest = grown({"h.a": 5, "h.b": 4, "h.c": 2})
    assert groups_of(forest, planned(forest, (2,), 4)) == ["h.c", "h.b"]
    assert groups_of(forest, planned(forest, (2,), 6)) == ["h.c", "h.b", "h.b"]
    assert groups_of(forest, planned(forest, (2,), 8)) == ["h.c", "h.b", "h.b", "h.a"]
    assert groups_of(forest, planned(forest, (2,), 2)) == ["h.c"]
    assert planned(forest, (4,), 4).rows.tolist() == [5, 6, 7, 8]


def test_the_whole_job_stays_in_one_group_of_level_two_if_it_names_level_one_only() -> None:
    forest = grown({"g.a": 2, "g.b": 1, "h.a": 2, "h.b": 3})
    plan = planned(forest, (2,), 4)
    assert plan.sizes == (2, 4)
    assert groups_of(forest, plan) == ["h.a", "h.b"]
    wide = planned(forest, (2,), 6)
    assert wide.sizes == (2,)
    assert groups_of(forest, wide) == ["g.a", "h.a", "h.b"]


def test_a_job_with_fewer_levels_than_the_tree_uses_the_lowest() -> None:
    config: Config = {"default": (Level("rack"), Level("hall"), Level("site"))}
    nodes = [(f"n{row}", row, {"rack": f"r{row}", "hall": f"h{row // 2}", "site": f"s{row // 4}"}) for row in range(8)]
    forest = forest_of(config, nodes)
    plan = planned(forest, (1, 2), 8)
    assert plan.rows.tolist() == list(range(8))


def test_a_tree_with_fewer_levels_than_the_job_is_no_place() -> None:
    found = plan_levels(grown({"h.a": 8}).trees, (2, 4, 8), 8)
    assert found == NoLevels(gap="levels", need=3, have=2)


def test_of_several_trees_the_one_with_the_least_fragments_goes() -> None:
    config: Config = {"east": (Level("rack"),), "west": (Level("rack"),)}
    nodes = [(f"e{row}", row, {"rack": "r", TOPOTREE: "east"}) for row in range(5)]
    nodes += [(f"w{row}", 5 + row, {"rack": "r", TOPOTREE: "west"}) for row in range(4)]
    assert planned(forest_of(config, nodes), (4,), 4).tree == 1
    assert planned(forest_of(config, [*nodes, ("w4", 9, {"rack": "r", TOPOTREE: "west"})]), (4,), 4).tree == 0


def test_reserved_nodes_stay_while_others_have_room() -> None:
    forest = grown({"h.a": 3, "h.b": 4}, with_reserve(2))
    assert planned(forest, (2,), 2).rows.tolist() == [5, 6]
    assert planned(forest, (1,), 3).rows.tolist() == [2, 5, 6]


def test_a_group_with_fewer_nodes_than_are_reserved_is_left_out_at_first() -> None:
    forest = grown({"h.a": 1, "h.b": 3}, with_reserve(2))
    assert groups_of(forest, planned(forest, (1,), 1)) == ["h.b"]


def test_reserved_nodes_go_in_rounds_the_fullest_reserves_first() -> None:
    forest = grown({"h.a": 1, "h.b": 2, "h.c": 3}, with_reserve(2))
    assert groups_of(forest, planned(forest, (1,), 2)) == ["h.b", "h.c"]
    assert groups_of(forest, planned(forest, (1,), 3)) == ["h.b", "h.c", "h.c"]
    assert groups_of(forest, planned(forest, (1,), 4)) == ["h.b", "h.c", "h.c", "h.a"]
    assert planned(forest, (1,), 6).rows.tolist() == [2, 5, 4, 0, 1, 3]


def test_reserve_of_a_level_above_the_first_plays_no_part() -> None:
    config: Config = {"default": (Level("rack"), Level("hall", 9))}
    assert planned(grown({"h.a": 2}, config), (2,), 2).rows.tolist() == [0, 1]


def test_what_is_missing_is_said() -> None:
    forest = grown({"g.a": 3, "h.a": 3})
    assert plan_levels(forest.trees, (1,), 7) == NoLevels(gap="nodes", need=7, have=6)
    assert plan_levels(forest.trees, (2,), 6) == NoLevels(gap="groups", need=3, have=2, tree="default", level=1)
    assert plan_levels((), (2,), 2) == NoLevels(gap="nodes", need=2, have=0)


def without(forest: Forest, *rows: int) -> list[Tree]:
    return [tree.only(~np.isin(tree.rows, rows)) for tree in forest.trees]


def recovered(trees: list[Tree], sizes: tuple[int, ...], held: list[int], steps: int = 0) -> LevelRecovery:
    found = recover_levels(trees, sizes, np.array(held), steps)
    assert isinstance(found, LevelRecovery), found
    return found


def test_nothing_lost_moves_nothing() -> None:
    found = recovered(list(grown({"h.a": 4}).trees), (2,), [3, 1, 0, 2])
    assert (found.rows.tolist(), found.moved.tolist()) == ([3, 1, 0, 2], [])


def test_a_lost_pod_goes_beside_its_neighbours() -> None:
    forest = grown({"h.a": 4, "h.b": 4})
    found = recovered(without(forest, 1), (2,), [0, 1, 4, 5])
    assert found.rows.tolist() == [0, 2, 4, 5]
    assert (found.moved.tolist(), found.given_up.tolist()) == ([1], [])


def test_a_lost_part_goes_below_the_same_group_of_the_next_level() -> None:
    forest = grown({"g.a": 2, "g.b": 2, "h.a": 2, "h.b": 2, "h.c": 2})
    found = recovered(without(forest, 6, 7), (2, 4), [0, 1, 2, 3, 4, 5, 6, 7])
    assert found.rows.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]


def test_without_room_the_part_above_moves_as_far_as_is_allowed() -> None:
    forest = grown({"h.a": 2, "h.b": 4})
    trees = without(forest, 1)
    assert recover_levels(trees, (2,), np.array([0, 1, 2, 3]), 0) == NoLevels(
        gap="groups", need=1, have=0, tree="default", level=0, ranks=(1, 1)
    )
    found = recovered(trees, (2,), [0, 1, 2, 3], 1)
    assert found.rows.tolist() == [4, 5, 2, 3]
    assert (found.moved.tolist(), found.given_up.tolist()) == ([0, 1], [0])


def test_growing_reaches_the_whole_gang_and_nodes_come_home() -> None:
    forest = grown({"g.a": 2, "g.b": 2, "h.a": 2, "h.b": 3})
    found = recovered(without(forest, 3), (2, 4), [0, 1, 2, 3], STEPS_MAX)
    assert found.rows.tolist() == [4, 5, 6, 7]
    again = recovered(without(grown({"h.a": 2, "h.b": 2, "h.c": 2}), 1), (2,), [0, 1, 2, 3], STEPS_MAX)
    assert again.rows.tolist() == [4, 5, 2, 3]
    assert again.given_up.tolist() == [0]


def test_all_lost_is_a_new_plan_in_any_tree() -> None:
    config: Config = {"east": (Level("rack"),), "west": (Level("rack"),)}
    nodes = [(f"w{row}", row, {"rack": "r", TOPOTREE: "west"}) for row in range(3)]
    found = recovered(list(forest_of(config, nodes).trees), (2,), [7, 8])
    assert (found.rows.tolist(), found.tree) == ([0, 1], 0)
    assert isinstance(recover_levels([], (2,), np.array([7, 8]), 3), NoLevels)


def test_a_gang_whose_tree_lost_levels_says_so() -> None:
    config: Config = {"default": (Level("rack"),)}
    found = recover_levels(grown({"h.a": 4}, config).trees, (2, 4), np.array([0, 1, 2, 9]), 0)
    assert found == NoLevels(gap="levels", need=2, have=1, tree="default")


def test_a_job_of_one_level_stays_in_its_group_of_level_two_if_it_can() -> None:
    forest = grown({"g.a": 2, "h.a": 2, "h.b": 2, "h.c": 2})
    found = recovered(without(forest, 4, 5), (2,), [2, 3, 4, 5])
    assert found.rows.tolist() == [2, 3, 6, 7]
    crowded = recovered(without(forest, 4, 5, 6), (2,), [2, 3, 4, 5])
    assert crowded.rows.tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize(("sessions", "steps"), [(0, 0), (5, 0), (6, 1), (11, 1), (12, STEPS_MAX)])
def test_steps_by_which_a_lost_part_may_grow(sessions: int, steps: int) -> None:
    assert steps_of(sessions, only_pods=False, by_pods=True, master_lost=False) == steps
    assert steps_of(sessions, only_pods=False, by_pods=True, master_lost=True) == STEPS_MAX
    assert steps_of(sessions, only_pods=False, by_pods=False, master_lost=False) == STEPS_MAX
    assert steps_of(sessions, only_pods=True, by_pods=False, master_lost=True) == 0


def test_a_backup_goes_below_the_same_group_of_level_one() -> None:
    tree = grown({"h.a": 3, "h.b": 2}).trees[0]
    assert neighbours(tree, 1).tolist() == [0, 2]
    assert neighbours(tree, 99).tolist() == []


def test_groups_that_leave_nothing_behind_go_before_smaller_ones() -> None:
    forest = grown({"h.a": 3, "h.b": 4})
    assert groups_of(forest, planned(forest, (2,), 4)) == ["h.b", "h.b"]
