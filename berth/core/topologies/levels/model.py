"""Types of levels: configuration of trees, levels that a job requests, and the trees themselves.

A tree has groups on a number of levels above its nodes; level 1 is the nearest to the node. Labels of a node name its
tree and its group on every level. A group is identified by its chain of parents: the same id below two parents is two
groups.

Source: docs/reference/levels.md, "Configuration of levels".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import msgspec
import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_groups import Rows, group_key

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
_UNKNOWN_TREE: Final = -2
"""Index of nodes whose tree is not configured."""
_UNLABELLED: Final = -1
"""Index of nodes without the label of some level."""

Sizes = tuple[int, ...]
"""Number of pods that share a group of each level, level 1 first."""
Gap = Literal["nodes", "levels", "groups"]
"""What is missing: candidates for all pods; a tree with as many levels as the job; groups with enough candidates."""


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


class Tree(NamedTuple):
    """A tree with the candidate nodes of one gang.

    Attributes:
        name: Name of the tree.
        reserved: Nodes of each group of level 1 that jobs use only if there is no other room.
        groups: Ids of the groups of each level, the highest level first; groups of one parent are adjacent.
        paths: ``int64[levels, nodes]``: group of each node, as its index in ``groups``; rising along every level.
        rows: ``int64[nodes]``, row of each node in the caller's table; sorted by name inside a group of level 1.
    """

    name: str
    reserved: int
    groups: tuple[Sequence[str], ...]
    paths: Rows
    rows: Rows

    def only(self, kept: Marks) -> "Tree":
        """The same tree with some of its nodes.

        Args:
            kept: ``bool[nodes]``, one entry for each of :attr:`rows`.
        """
        return self._replace(paths=self.paths[:, kept], rows=self.rows[kept])


class NodePath(NamedTuple):
    """Position of a node in its tree.

    Attributes:
        tree: Its tree; empty if that is not configured.
        path: Id of its group on every level of the tree, the highest first; empty if a label is missing.
    """

    tree: str
    path: tuple[str, ...]


class Forest(NamedTuple):
    """Trees with the candidate nodes of one gang.

    Attributes:
        trees: Trees with at least one node, sorted by name.
        unknown_tree: Number of nodes whose tree is not configured.
        unlabelled: Number of nodes without the label of a level of their tree.
    """

    trees: tuple[Tree, ...]
    unknown_tree: int
    unlabelled: int


class LevelPlan(NamedTuple):
    """Place of each rank. The arrays ``rows`` and ``blocks`` have shape (replicas,).

    Attributes:
        tree: Index of the tree.
        sizes: Number of pods that share a group, level by level, as the plan uses them.
        rows: Row of each rank.
        blocks: Block of each rank: the pods that share a group of level 1.
        groups: Group of level 1 of each block, as its index in the last of :attr:`Tree.groups`.
    """

    tree: int
    sizes: Sizes
    rows: Rows
    blocks: Rows
    groups: Rows


class NoLevels(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why there is no plan.

    Attributes:
        gap: What is missing.
        need: Number of nodes, levels or parts of the gang that are needed. A part is the pods that share a group of
            ``level``.
        have: Most of them that are available.
        tree: Tree that comes closest; empty if there is none.
        level: Level of the groups, for ``groups``; 0 means single nodes.
        ranks: First and last rank of the pods without a place, for a gang that recovers; otherwise None.
    """

    gap: Gap
    need: int
    have: int
    tree: str = ""
    level: int = 0
    ranks: tuple[int, int] | None = None


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


def tree_of(name: str, reserved: int, ids: Sequence[Sequence[str]], codes: Rows, rows: Rows) -> Tree:
    """Nodes sorted into the groups of their tree.

    Args:
        name: Name of the tree.
        reserved: See :attr:`Tree.reserved`.
        ids: Ids of each level, the highest first, in their order (:func:`group_key`).
        codes: ``int64[levels, nodes]``: id of each node, as its index in ``ids``.
        rows: ``int64[nodes]``, rows of the nodes, sorted by name.
    """
    order = np.lexsort(codes[::-1])
    codes = codes[:, order]
    changes = np.logical_or.accumulate(codes[:, 1:] != codes[:, :-1], axis=0)
    paths = np.zeros(codes.shape, np.int64)
    np.cumsum(changes, axis=1, out=paths[:, 1:])
    firsts = [np.flatnonzero(np.concatenate(([True], change))) for change in changes] if len(rows) else []
    groups = tuple(
        [names[code] for code in level[first].tolist()] for names, level, first in zip(ids, codes, firsts, strict=False)
    )
    return Tree(name, reserved, groups, paths, rows[order])


def node_path(config: Config, labels: Mapping[str, str]) -> NodePath:
    """Position of a node with these labels."""
    tree = labels.get(TOPOTREE) or TREE_DEFAULT
    levels = config.get(tree)
    if levels is None:
        return NodePath("", ())
    path = tuple([labels.get(level.label, "") for level in reversed(levels)])
    return NodePath(tree, () if "" in path else path)


def forest(config: Config, node_paths: Sequence[NodePath], kinds: Rows, rows: Rows) -> Forest:
    """Trees of nodes with known positions.

    Args:
        config: Levels of each tree.
        node_paths: Positions of nodes; nodes with equal labels share an entry.
        kinds: ``int64[nodes]``, index of each node in ``node_paths``.
        rows: ``int64[nodes]``, rows of the nodes, sorted by name.
    """
    trees = sorted(config)
    number = {name: index for index, name in enumerate(trees)}
    lost = [_UNKNOWN_TREE if not spot.tree else number[spot.tree] if spot.path else _UNLABELLED for spot in node_paths]
    of_node = np.array(lost, np.int64)[kinds]
    members = [(name, of_node == index) for index, name in enumerate(trees)]
    return Forest(
        tuple(
            _tree_of_nodes(name, config[name], node_paths, kinds[own], rows[own]) for name, own in members if own.any()
        ),
        int((of_node == _UNKNOWN_TREE).sum()),
        int((of_node == _UNLABELLED).sum()),
    )


def _tree_of_nodes(
    name: str, levels: tuple[Level, ...], node_paths: Sequence[NodePath], kinds: Rows, rows: Rows
) -> Tree:
    used, of_node = np.unique(kinds, return_inverse=True)
    ids, codes = [], []
    for column in zip(*(node_paths[kind].path for kind in used.tolist()), strict=True):
        known = sorted(set(column), key=group_key)
        place = {text: number for number, text in enumerate(known)}
        ids.append(known)
        codes.append([place[text] for text in column])
    return tree_of(name, levels[0].reserved, ids, np.array(codes, np.int64)[:, of_node], rows)
