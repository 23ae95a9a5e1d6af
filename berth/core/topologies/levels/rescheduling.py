"""Recovery of a gang with levels: the smallest part of it that has to move, and its new place.

A lost pod goes below the same group of level 1 as its neighbours. If a whole part is lost, it goes below the same group
as its sibling parts. If there is no room, the part above moves as a whole, as far as the caller allows. A pod with a
healthy node moves only with such a part, and the result names it, so that it can be ended first.

Source: docs/reference/levels.md, "After a fault of levels".
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.node_groups import Rows
from berth.core.topologies.levels.model import NoLevels, Tree
from berth.core.topologies.levels.planner import Found, find, plan_levels
from berth.core.topologies.levels.request import LEVELS_MAX, Sizes

SESSIONS_A_STEP: Final = 6
"""Number of attempts after which the next larger part of a gang moves."""
SESSIONS_WHOLE: Final = 12
"""Number of attempts after which parts may grow to the whole gang."""
STEPS_MAX: Final = LEVELS_MAX + 1
"""Most steps from a pod to the whole gang."""
_NOWHERE: Final = -1


class LevelRecovery(NamedTuple):
    """Place of each rank after a loss.

    Attributes:
        tree: Index of the tree.
        rows: ``int64[replicas]``, row of each rank.
        moved: Ranks whose node changes, ascending.
        given_up: Those of them whose previous node is healthy: their pods have to end first.
    """

    tree: int
    rows: Rows
    moved: Rows
    given_up: Rows


class Part(NamedTuple):
    """Pods that share a group, none of which has a place.

    Attributes:
        depth: 0 for the gang, then the highest level, down to single pods.
        number: Number of the part among those of its depth.
        steps: Number of steps by which it has grown.
    """

    depth: int
    number: int
    steps: int


def steps_of(sessions: int, *, only_pods: bool, by_pods: bool, master_lost: bool) -> int:
    """Number of steps by which a lost part may grow.

    Args:
        sessions: Number of attempts since the loss.
        only_pods: The job's ``huawei.com/recover_policy_path`` is ``pod``, or the history has no job with a loss.
        by_pods: Pods or processes are replaced one by one; otherwise the whole job is.
        master_lost: Rank 0 is lost.
    """
    if only_pods:
        return 0
    if not by_pods or master_lost or sessions >= SESSIONS_WHOLE:
        return STEPS_MAX
    return max(sessions, 0) // SESSIONS_A_STEP


def neighbours(tree: Tree, row: int) -> Rows:
    """Rows of the other nodes in the group of level 1 of a node, for a backup of its pod; empty for an unknown node."""
    at = np.flatnonzero(tree.rows == row)
    if not len(at):
        return np.empty(0, np.int64)
    rows: Rows = tree.rows[(tree.paths[-1] == tree.paths[-1][at[0]]) & (tree.rows != row)]
    return rows


def recover_levels(trees: Sequence[Tree], sizes: Sizes, held: Rows, steps: int) -> LevelRecovery | NoLevels:
    """New places for a gang that had places before.

    A gang whose job names level 1 only and that is in one group of level 2 stays there if there is room.

    Args:
        trees: Trees with the candidates and the nodes that the gang still holds; any other node of ``held`` is lost.
        sizes: Number of pods that share a group, level 1 first.
        held: ``int64[replicas]``, row of the previous node of each rank; -1 if it is not known.
        steps: Most steps by which a lost part may grow; see :func:`steps_of`.
    """
    home = next((number for number, tree in enumerate(trees) if np.isin(held, tree.rows).any()), _NOWHERE)
    if home != _NOWHERE and len(trees[home].paths) < len(sizes):
        return NoLevels(gap="levels", need=len(sizes), have=len(trees[home].paths), tree=trees[home].name)
    if home != _NOWHERE and len(sizes) == 1 and len(trees[home].paths) > 1:
        tree = trees[home]
        if len(np.unique(tree.paths[-2][np.isin(tree.rows, held)])) == 1:
            found = _Recovery(trees, home, (*sizes, len(held)), held).run(steps)
            if isinstance(found, LevelRecovery):
                return found
    return _Recovery(trees, home, sizes, held).run(steps)


class _Recovery:
    """One search for places.

    Args:
        trees: Trees with the candidates and the nodes that the gang still holds.
        home: Tree of the gang; -1 if all of it is lost.
        sizes: Number of pods that share a group, level 1 first.
        held: ``int64[replicas]``, row of the previous node of each rank.
    """

    def __init__(self, trees: Sequence[Tree], home: int, sizes: Sizes, held: Rows) -> None:
        self._trees = trees
        self._home = home
        self._tree = trees[home] if home != _NOWHERE else None
        self._sizes = sizes
        self._held = held
        self._spans = (len(held), *reversed(sizes), 1)
        """Number of pods of a part, depth by depth."""
        known = np.concatenate([tree.rows for tree in trees]) if trees else np.empty(0, np.int64)
        self._sound: Marks = np.isin(held, known)
        self._unplaced: Marks = ~self._sound
        """Ranks without a place. Shape (replicas,)."""
        self._at = self._places()

    def _places(self) -> Rows:
        """Index of each rank's node in the tree; -1 if the node is not in it."""
        at = np.full(len(self._held), _NOWHERE, np.int64)
        if self._tree is not None:
            order = np.argsort(self._tree.rows, kind="stable")
            place = np.searchsorted(self._tree.rows[order], self._held).clip(max=len(order) - 1)
            here = self._tree.rows[order[place]] == self._held
            at[here] = order[place[here]]
        return at

    def run(self, steps: int) -> LevelRecovery | NoLevels:
        """Try the smallest parts first, and larger ones if those find no place."""
        parts = self._grown({Part(len(self._spans) - 1, rank, 0) for rank in np.flatnonzero(self._unplaced).tolist()})
        while True:
            rows, failed, lack = self._tried(parts)
            if failed is None:
                moved = rows != self._held
                return LevelRecovery(
                    self._home_of(rows), rows, np.flatnonzero(moved), np.flatnonzero(moved & self._sound)
                )
            if failed.steps >= steps or not failed.depth:
                return lack
            above = self._above(failed)
            self._unplaced[self._ranks(above)] = True
            parts = self._grown({*parts, above._replace(steps=failed.steps + 1)})

    def _above(self, part: Part) -> Part:
        """The next larger part that contains a part."""
        number = part.number * self._spans[part.depth] // self._spans[part.depth - 1]
        return Part(part.depth - 1, number, part.steps)

    def _ranks(self, part: Part) -> slice:
        span = self._spans[part.depth]
        return slice(part.number * span, (part.number + 1) * span)

    def _grown(self, parts: set[Part]) -> list[Part]:
        """The largest parts without a place, sorted by falling size, then by rank."""
        steps: dict[tuple[int, int], int] = {}
        for part in sorted(parts):
            largest = part
            while largest.depth and self._unplaced[self._ranks(self._above(largest))].all():
                largest = self._above(largest)
            key = largest.depth, largest.number
            steps[key] = max(steps.get(key, 0), largest.steps)
        return [Part(*key, steps[key]) for key in sorted(steps)]

    def _tried(self, parts: Sequence[Part]) -> tuple[Rows, Part | None, NoLevels]:
        """Places for all parts; or the first part without a place, and what it lacks."""
        rows = self._held.copy()
        pinned = self._held[~self._unplaced]
        lack = NoLevels(gap="nodes", need=0, have=0)
        if parts and not parts[0].depth:
            trees = [tree.only(~np.isin(tree.rows, pinned)) for tree in self._trees]
            plan = plan_levels(trees, self._sizes, len(rows))
            if isinstance(plan, NoLevels):
                return rows, parts[0], plan
            return self._at_previous_nodes(plan.rows, parts[0]), None, lack
        free = np.ones(0, np.bool_) if self._tree is None else ~np.isin(self._tree.rows, pinned)
        for part in parts:
            found = self._found(part, free)
            if isinstance(found, NoLevels):
                return rows, part, found
            rows[self._ranks(part)] = self._at_previous_nodes(found, part)
        return rows, None, lack

    def _found(self, part: Part, free: Marks) -> Rows | NoLevels:
        """Nodes for a part below the group of the part above it; these are removed from ``free``."""
        start, stop = self._group(self._above(part))
        indexes = start + np.flatnonzero(free[start:stop])
        tree, span, levels = self._tree, self._spans[part.depth], len(self._sizes)
        ranks = self._ranks(part)
        lack = NoLevels(
            gap="groups",
            need=1,
            have=0,
            tree=tree.name if tree is not None else "",
            level=levels - part.depth + 1,
            ranks=(ranks.start, ranks.stop - 1),
        )
        if tree is None or len(indexes) < span:
            return lack
        columns = tree.paths[len(tree.paths) - levels + part.depth - 1 :, indexes]
        found = find(columns, len(indexes), (span, *self._spans[part.depth :]), tree.reserved)
        if not isinstance(found, Found):
            return lack
        free[indexes[found.nodes]] = False
        return tree.rows[indexes[found.nodes]]

    def _group(self, part: Part) -> tuple[int, int]:
        """Range of indexes of the nodes of the group in which a part is."""
        at = self._at[self._ranks(part)]
        at = at[(at != _NOWHERE) & ~self._unplaced[self._ranks(part)]]
        if self._tree is None or not len(at):
            return 0, 0
        if not part.depth:
            return 0, len(self._tree.rows)
        path = self._tree.paths[len(self._tree.paths) - len(self._sizes) + part.depth - 1]
        start, stop = np.searchsorted(path, [path[at[0]], path[at[0]] + 1]).tolist()
        return start, stop

    def _at_previous_nodes(self, rows: Rows, part: Part) -> Rows:
        """The same nodes, with each part and pod at its previous node if possible."""
        return _keep_positions(rows, self._held[self._ranks(part)], self._spans[part.depth :])

    def _home_of(self, rows: Rows) -> int:
        """Tree of the first rank."""
        return next(
            (number for number, tree in enumerate(self._trees) if rows[:1].tolist()[0] in tree.rows), self._home
        )


def _keep_positions(rows: Rows, held: Rows, spans: Sequence[int]) -> Rows:
    """Parts in the order that keeps the most nodes at their previous positions; parts are never mixed.

    Args:
        rows: ``int64[pods]``, new nodes of a part.
        held: ``int64[pods]``, previous nodes of its ranks.
        spans: Number of pods of the part, of the parts inside it, and so on down to 1.
    """
    if len(spans) == 1:
        return rows
    span = spans[1]
    count = len(rows) // span
    parts = rows.reshape(count, span)
    order = np.argsort(held, kind="stable")
    place = np.searchsorted(held[order], rows).clip(max=len(held) - 1)
    stood = held[order[place]] == rows
    pairs = np.arange(len(rows))[stood] // span * count + order[place[stood]] // span
    pair, shared = np.unique(pairs, return_counts=True)
    target = np.full(count, _NOWHERE)
    taken = np.zeros(count, np.bool_)
    for number in np.lexsort((pair, -shared)).tolist():
        new, old = divmod(int(pair[number]), count)
        if target[new] == _NOWHERE and not taken[old]:
            target[new], taken[old] = old, True
    target[target == _NOWHERE] = np.flatnonzero(~taken)
    settled = np.empty_like(parts)
    for new, old in enumerate(target.tolist()):
        settled[old] = _keep_positions(parts[new], held[old * span : (old + 1) * span], spans[1:])
    return settled.reshape(-1)
