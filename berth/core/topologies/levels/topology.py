"""Trees of levels as a topology: which nodes are in one."""

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.demand import LEVELS
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.leaving import Together
from berth.core.topologies.levels.level_map import LevelMap
from berth.core.topologies.levels.request import (
    AFFINITY_CONFIG,
    LevelError,
    LevelJobs,
    is_in_tree,
    levels_of,
    read_level_config,
    read_sizes,
)
from berth.core.topologies.levels.round import LevelRound
from berth.core.topologies.levels.text import LEVEL_LACKS
from berth.core.topologies.planning import Areas, Ground
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.refusal import NodeReason, Refusal


class Levels(LevelJobs, BlockTopology[LevelMap]):
    """Groups of several levels."""

    index_name = LEVELS
    lacks = LEVEL_LACKS

    def settings_error(self, settings: Settings) -> str:
        """What is wrong with the levels of the trees."""
        try:
            read_level_config(settings.resource_levels)
        except LevelError as error:
            return f"resource_levels: {error}"
        return ""

    def for_some(self, annotations: Mapping[str, str], chips: Sequence[int]) -> dict[str, str]:
        """Levels of which no whole group waits at the same time."""
        try:
            sizes = read_sizes(annotations.get(AFFINITY_CONFIG, ""))
        except LevelError:
            return {}  # the verdict names what is wrong
        levels = (f"level{number}={gcd(size, len(chips))}" for number, size in enumerate(sizes, start=1))
        return {AFFINITY_CONFIG: ",".join(levels)}

    def index(self, table: NodeTable) -> LevelMap:
        """Trees of all nodes."""
        return LevelMap(table)

    def areas(self, table: NodeTable, index: LevelMap, demand: Demand | None, settings: Settings) -> list[Areas]:
        """The groups of all trees that have the levels of the demand, level by level from the lowest on."""
        sizes = demand.sizes if demand is not None else ()
        trees = index.trees(np.ones(len(table), np.bool_), settings.resource_levels)
        found: list[Areas] = []
        for number, size in enumerate(sizes, start=1):
            names: list[str] = []
            of_row = np.full(len(table), -1, np.int64)
            for tree in trees:
                if len(tree.paths) >= len(sizes):
                    of_row[tree.rows] = tree.paths[-number] + len(names)
                    names += tree.groups[-number]
            found.append(Areas("group", names, of_row, size))
        return found

    def begin(self, ground: Ground, index: LevelMap) -> LevelRound:
        """Trees during a round."""
        return LevelRound(ground, index)

    def together(self, demand: Demand, placement: Placement) -> Together:
        """The levels, where all pods have chips."""
        has_levels = block_of(placement) is not None and all(run.chips for run in placement.runs)
        return Together(levels=demand.sizes if has_levels else ())

    def is_helped_by_loss(self, refusal: Refusal) -> bool | None:
        """The plan takes only nodes with exactly so many chips."""
        return True if refusal.blocks is not None else None

    def class_reason(self, demand: Demand, labels: Mapping[str, str], settings: Settings) -> NodeReason:
        """A node whose labels name no group at some level has none."""
        found = is_in_tree(levels_of(settings.resource_levels), dict(labels), len(demand.sizes))
        return NodeReason.FITS if found else NodeReason.NO_LEVEL
