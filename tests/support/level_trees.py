"""Trees of levels for tests."""

from collections.abc import Iterable, Mapping

import numpy as np

from berth.core.topologies.levels.level_map import Forest, forest, node_path
from berth.core.topologies.levels.request import Config


def forest_of(config: Config, nodes: Iterable[tuple[str, int, Mapping[str, str]]]) -> Forest:
    """Trees of nodes with labels.

    Args:
        config: Levels of each tree.
        nodes: Name, row and labels of each candidate, in any order.
    """
    ordered = sorted(nodes, key=lambda node: node[:2])
    node_paths = [node_path(config, labels) for _, _, labels in ordered]
    return forest(config, node_paths, np.arange(len(ordered)), np.array([row for _, row, _ in ordered], np.int64))
