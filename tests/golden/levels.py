"""Family ``multilevel``: which groups of a tree a job gets."""

from collections import Counter
from typing import Final

from berth.core.level_terms import Level, LevelPlan, check_sizes, forest_of, read_sizes
from berth.core.levels import plan_levels
from schemas.ledger import Settings
from tests.golden.harness import Answer, Line, differ

TREE: Final = "default"


def compare_levels(line: Line, _settings: Settings) -> Answer:
    """One arriving job."""
    if not line["stable"]:
        return Answer(skipped=("unstable",))
    levels = [Level(f"l{number}") for number in range(1, line["resource_levels"] + 1)]
    levels[0] = levels[0]._replace(reserved=line["reserved_node_level1"])
    nodes = [(node["name"], row, node["labels"]) for row, node in enumerate(line["nodes"]) if node["free"]]
    forest = forest_of({TREE: tuple(levels)}, nodes)
    sizes = read_sizes(",".join(f"{name}={size}" for name, size in line["affinity_config"].items()))
    check_sizes(sizes, line["tasks"])
    found = plan_levels(forest.trees, sizes, line["tasks"])
    expected = line["result"]["ok"]
    differences = [*differ("ok", expected, isinstance(found, LevelPlan))]
    if isinstance(found, LevelPlan) and expected:
        tree = forest.trees[found.tree]
        group_of = dict(zip(tree.rows.tolist(), tree.paths[-1].tolist(), strict=True))
        free = Counter(group_of.values())
        taken = Counter(group_of[row] for row in found.rows.tolist())
        got = [[free[group], count] for group, count in taken.items()]
        wanted = line["canonical"]["level1_free_taken"]
        differences += differ("level1_free_taken", sorted(wanted, key=str), sorted(got, key=str))
    return Answer(tuple(differences))
