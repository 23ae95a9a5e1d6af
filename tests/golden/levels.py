"""Family ``multilevel``: which groups of a tree a job gets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from berth.core.topologies.levels.model import LevelPlan
from berth.core.topologies.levels.planner import plan_levels
from berth.core.topologies.levels.request import Level, Sizes, check_sizes, read_sizes
from berth.schemas.ledger import Settings
from tests.golden.harness import Answer, Differences, Line, differ
from tests.support.level_trees import forest_of

TREE: Final = "default"


def compare_levels(line: Line, _settings: Settings) -> Answer:
    """One arriving job."""
    levels = [Level(f"l{number}") for number in range(1, line["resource_levels"] + 1)]
    levels[0] = levels[0]._replace(reserved=line["reserved_node_level1"])
    nodes = [(node["name"], row, node["labels"]) for row, node in enumerate(line["nodes"]) if node["free"]]
    forest = forest_of({TREE: tuple(levels)}, nodes)
    sizes = read_sizes(",".join(f"{name}={size}" for name, size in line["affinity_config"].items()))
    check_sizes(sizes, line["tasks"])
    found = plan_levels(forest.trees, sizes, line["tasks"])
    expected = line["result"]["ok"]
    skipped = () if line["stable"] else ("unstable",)
    differences = differ("ok", expected, isinstance(found, LevelPlan)) if expected or line["stable"] else ()
    if not isinstance(found, LevelPlan):
        return Answer(differences, skipped)
    tree = forest.trees[found.tree]
    paths = dict(zip(tree.rows.tolist(), tree.paths.T.tolist(), strict=True))
    faults = plan_faults(found.rows.tolist(), paths, sizes, line["tasks"])
    if not expected or not line["stable"]:
        return Answer(differences + faults, skipped)
    free = Counter(path[-1] for path in paths.values())
    taken = Counter(paths[row][-1] for row in found.rows.tolist())
    got = [[free[group], count] for group, count in taken.items()]
    wanted = line["canonical"]["level1_free_taken"]
    differences += differ("level1_free_taken", sorted(wanted, key=str), sorted(got, key=str))
    return Answer(differences + faults)


def plan_faults(rows: Sequence[int], paths: Mapping[int, Sequence[int]], sizes: Sizes, pods: int) -> Differences:
    """Every pod has a node of its own, and every group of a level has whole parts of the job.

    Source: docs/reference/levels.md, "Configuration of levels" and "Selection of groups".

    Args:
        rows: Node of each pod.
        paths: Group on every level, the highest first, of each candidate.
        sizes: Pods that share a group, level 1 first.
        pods: Pods of the job.
    """
    faults = differ("plan", pods, len(set(rows)), "different nodes")
    faults += differ("plan", [], sorted(set(rows).difference(paths)), "nodes that are no candidates")
    for level, size in enumerate(sizes, start=1):
        groups = Counter(paths[row][-level] for row in rows if row in paths)
        torn = {group: nodes for group, nodes in groups.items() if nodes % size}
        faults += differ("plan", {}, torn, f"groups of level {level} without whole parts of {size}")
    return faults
