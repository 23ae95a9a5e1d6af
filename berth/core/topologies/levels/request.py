"""Levels of trees in texts: what a job requests, and the configuration of the trees.

Labels of a node name its tree and its group on every level; level 1 is the nearest to the node.

Source: docs/reference/levels.md, "Configuration of levels".
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec

from berth.core.topologies.blocks.demand import LEVELS, Blocks
from berth.core.topologies.blocks.request import BlockJobs, of_part
from berth.core.topologies.job_topology import Asked
from berth.products.model import Form
from berth.schemas.ledger import Settings
from berth.schemas.offers import Demand
from berth.schemas.refusal import Refusal

RESOURCE_LEVELS: Final = "resource-level-config"
"""Setting with the levels of each tree."""
AFFINITY_CONFIG: Final = "huawei.com/affinity-config"
"""Annotation of a job: how many of its pods share a group, level by level."""
TOPOTREE: Final = "huawei.com/topotree"
"""Label of a node: the name of its tree."""
TREE_DEFAULT: Final = "default"
"""Tree of a node without the label."""
LEVELS_MAX: Final = 10
"""Most levels of a tree, and of a job."""
COUNT_MAX: Final = (1 << 31) - 1
"""Most pods of a level, and most reserved nodes."""
_SHOWN_MAX: Final = 80
_FIELD_MAX: Final = 200
_LEVEL: Final = re.compile(r"level([1-9][0-9]?)")
_COUNT: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
Sizes = tuple[int, ...]
"""Number of pods that share a group of each level, level 1 first."""


class LevelError(ValueError):
    """A text with invalid levels.

    Attributes:
        field: Invalid field.
        value: Invalid value, cut to 80 characters.
        expected: Valid values.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        text = "missing" if value is None else repr(value)
        self.field = _cut(field, _FIELD_MAX)
        self.value = _cut(text, _SHOWN_MAX)
        self.expected = expected
        super().__init__(f"{self.field} is {self.value}: expected {expected}")


class Level(NamedTuple):
    """A level of a tree.

    Attributes:
        label: Label of a node whose value is the id of its group.
        reserved: Nodes of each group that jobs use only if there is no other room; read on level 1 only.
    """

    label: str
    reserved: int = 0


Config = Mapping[str, tuple[Level, ...]]
"""Levels of each tree, level 1 first; the trees are sorted by name."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def read_level_config(text: str) -> Config:
    """Levels of each tree.

    Args:
        text: JSON: ``{tree: {"level1": {"label": L, "reservedNode": k}, ...}}``; empty means no tree.

    Raises:
        LevelError: The text is invalid; the error has the field, the value and the valid values.
    """
    if not text.strip():
        return {}
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise LevelError(RESOURCE_LEVELS, text, "JSON text") from error
    trees = _mapping(raw, RESOURCE_LEVELS, "an object with the levels of each tree")
    return {name: _levels(trees[name], name) for name in sorted(trees)}


@lru_cache(maxsize=16)
def levels_of(text: str) -> Config:
    """Configuration of a valid setting ``resource_levels``; no trees if it is empty."""
    return read_level_config(text) if text else {}


def is_in_tree(config: Config, labels: Mapping[str, str], levels: int) -> bool:
    """Whether labels of a node name its group on every level of a tree that has as many levels as a job requests."""
    tree = config.get(labels.get(TOPOTREE) or TREE_DEFAULT, ())
    return len(tree) >= levels and all(labels.get(level.label) for level in tree)


def _levels(raw: object, tree: str) -> tuple[Level, ...]:
    at = f"{RESOURCE_LEVELS}.{tree}"
    levels = _mapping(raw, at, "an object with level1, level2 and so on")
    numbers = _contiguous(levels, at)
    return tuple(_level(levels[f"level{number}"], f"{at}.level{number}") for number in numbers)


def _level(raw: object, at: str) -> Level:
    level = _mapping(raw, at, "an object with label and reservedNode")
    label, reserved = level.get("label"), level.get("reservedNode", 0)
    if not isinstance(label, str) or not label.strip():
        raise LevelError(f"{at}.label", label, "the name of a node label")
    if type(reserved) is not int or not 0 <= reserved <= COUNT_MAX:
        raise LevelError(f"{at}.reservedNode", reserved, f"a whole number from 0 to {COUNT_MAX}")
    return Level(label.strip(), reserved)


def _mapping(raw: object, at: str, expected: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise LevelError(at, raw, expected)
    return raw


def _contiguous(names: Iterable[str], at: str) -> range:
    """Numbers of levels, from 1.

    Raises:
        LevelError: A name is not that of a level, or a level is missing.
    """
    numbers = []
    for name in names:
        match = _LEVEL.fullmatch(name)
        if match is None or int(match[1]) > LEVELS_MAX:
            raise LevelError(at, name, f"level1 to level{LEVELS_MAX}")
        numbers.append(int(match[1]))
    for number in range(1, max(numbers, default=1) + 1):
        if number not in numbers:
            raise LevelError(f"{at}.level{number}", None, "every level from level1 on")
    return range(1, len(numbers) + 1)


def read_sizes(text: str) -> Sizes:
    """Levels that a job requests.

    Args:
        text: ``level1=x,level2=y,...`` in any order: number of pods that share a group.

    Raises:
        LevelError: The text is invalid, a level is repeated or missing, or a level does not divide the next.
    """
    raw: dict[str, int] = {}
    for part in text.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        at = f"{AFFINITY_CONFIG}.{name}" if sign else AFFINITY_CONFIG
        if not sign or name in raw:
            raise LevelError(at, part if sign else text, "level1=x,level2=y and so on, each once")
        raw[name] = _count(value, at)
    sizes = tuple(raw[f"level{number}"] for number in _contiguous(raw, AFFINITY_CONFIG))
    for number, (lower, upper) in enumerate(pairwise(sizes), start=2):
        if upper % lower:
            raise LevelError(f"{AFFINITY_CONFIG}.level{number}", upper, f"a multiple of level{number - 1}={lower}")
    return sizes


def _count(value: str, at: str) -> int:
    if not _COUNT.fullmatch(value) or not 1 <= int(value) <= COUNT_MAX:
        raise LevelError(at, value, f"a whole number from 1 to {COUNT_MAX}")
    return int(value)


def check_sizes(sizes: Sizes, replicas: int) -> None:
    """Check that the levels of a job divide its number of pods.

    Args:
        sizes: Result of :func:`read_sizes`.
        replicas: Pods of the gang without standby pods for a hot switch.

    Raises:
        LevelError: The highest level does not divide ``replicas``.
    """
    if replicas < 1 or replicas % sizes[-1]:
        raise LevelError(
            f"{AFFINITY_CONFIG}.level{len(sizes)}", sizes[-1], f"a divisor of the {replicas} pods of the job"
        )


class LevelJobs(BlockJobs):
    """Groups of several levels."""

    name = LEVELS
    variants = (LEVELS,)
    keys = (AFFINITY_CONFIG,)

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
