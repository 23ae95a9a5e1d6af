"""Trees of levels as a topology: what a job says of them, and which nodes are in one."""

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from berth.core.cluster.node_table import NodeTable
from berth.core.topologies.blocks.demand import LEVELS, Blocks
from berth.core.topologies.blocks.placed import block_of
from berth.core.topologies.blocks.request import of_part
from berth.core.topologies.blocks.topology import BlockTopology
from berth.core.topologies.leaving import Together
from berth.core.topologies.levels.level_map import LevelMap
from berth.core.topologies.levels.model import (
    AFFINITY_CONFIG,
    LevelError,
    check_sizes,
    is_in_tree,
    levels_of,
    read_level_config,
    read_sizes,
)
from berth.core.topologies.levels.round import LevelRound
from berth.core.topologies.levels.text import LEVEL_LACKS
from berth.core.topologies.planning import Areas, Ground
from berth.core.topologies.port import Asked
from berth.products.model import Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.placement import Placement
from berth.schemas.refusal import NodeReason, Refusal


class Levels(BlockTopology[LevelMap]):
    """Groups of several levels."""

    name = index_name = LEVELS
    variants = (LEVELS,)
    lacks = LEVEL_LACKS
    keys = (AFFINITY_CONFIG,)

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

    def demand(
        self,
        asked: Asked,
        form: Form,
        settings: Settings,  # noqa: ARG002  # the port has it
    ) -> Demand | Refusal | None:
        """Groups of several levels. All pods with chips are alike, and each uses a whole node (decision D-11)."""
        if form.variant != LEVELS:
            return None
        request = asked.request
        chips = next(task.chips for task in request.tasks if task.chips)
        for index, task in enumerate(request.tasks):
            if task.chips > form.chips_max or task.chips not in {0, chips}:
                most = f"1 to {form.chips_max}" if chips > form.chips_max else f"{chips}"
                wanted = f"{most}, the chips of a node, in every pod with chips: each fills a node"
                field = f"tasks[{index}].chips"
                return of_part(
                    asked, Refusal(code="invalid-request", field=field, value=str(task.chips), expected=wanted)
                )
        try:
            sizes = read_sizes(request.annotations.get(AFFINITY_CONFIG, ""))
            check_sizes(sizes, asked.chip_pods)
        except LevelError as error:
            field = error.field if error.field.startswith(AFFINITY_CONFIG) else AFFINITY_CONFIG
            value, field = error.value.strip("'"), f"annotations.{field}"
            return of_part(asked, Refusal(code="invalid-argument", field=field, value=value, expected=error.expected))
        groups = Blocks(variant=LEVELS, size=sizes[0], number=asked.chip_pods // sizes[0], levels=sizes)
        return groups.demand(gang_pods=asked.gang_pods)

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
