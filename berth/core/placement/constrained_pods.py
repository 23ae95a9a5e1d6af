"""Best node for one more pod of a shape with constraints, among all nodes that take it.

Constraints such as topology spread exclude most nodes, and a name all but one. So the shards answer with one mark for
each node instead of their best nodes, whatever the constraints and names are. The scores of marked nodes follow from
the dispatcher's own columns, which are those of the shards.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from berth.core.cluster.bitmaps import Fits
from berth.core.cluster.least_allocated import POINT
from berth.core.cluster.node_names import rows_by_name
from berth.core.constraints.constraint_round import ConstraintRound
from berth.core.constraints.topology import Ints
from berth.core.gangs import Gang, placing_order
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.scoring import Candidates
from berth.schemas.offers import Shape
from berth.schemas.refusal import ConstraintCount, NodeReason

HOMES_MAX: Final = 32
"""Groups of nodes that are tried for a gang with affinity to itself."""
_RANK_BITS: Final = 32
_LAST: Final = np.iinfo(np.int64).max
_MANY: Final = 1 << 20
"""Room of a node for pods that ask it for nothing."""


class Home(NamedTuple):
    """Nodes with the same topology values, as the only ones for the pods of a shape."""

    shape: Shape
    rows: Fits
    """Shape (rows,)."""


class _Column:
    """Nodes that take a pod of one shape, whatever constraints and names are, and their order."""

    __slots__ = ("fits", "keys", "seen")

    def __init__(self, fits: Fits, keys: Ints) -> None:
        self.fits = fits
        self.keys = keys
        """Smaller is better: negative score, then the rank of the name. Shape (rows,)."""
        self.seen = 0
        """Entries of the log of touched rows that are included."""


class ConstrainedPods:
    """Chooses nodes for pods with constraints, pod by pod.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        constraints: Constraints, the pods of the round included.
    """

    def __init__(self, nodes: RoundNodes, views: Mapping[Shape, Candidates], constraints: ConstraintRound) -> None:
        self._nodes = nodes
        self._scorer = nodes.scorer
        self._views = views
        self.round = constraints
        self._ranks = nodes.scorer.table.ranks().astype(np.int64)
        self._columns: dict[Shape, _Column] = {}
        self._by_name: dict[Shape, Fits] = {}
        """Rows that names leave to the shape that was read last."""

    def best(
        self,
        shape: Shape,
        home: Home | None = None,
        first: Sequence[Sequence[int]] = (),
        *,
        without: Collection[int] = (),
    ) -> int | None:
        """Row of the best node for one more pod, by score, preferences and name; None when no node fits.

        Args:
            shape: Shape of the pod.
            home: Rows to choose from, if it is for this shape; None for all.
            first: Groups of rows from which to choose before all others, in this order.
            without: Rows to leave out.
        """
        fits, keys = self._now(shape)
        chosen = fits & self.round.allowed(shape)
        if home is not None and home.shape == shape:
            chosen &= home.rows
        chosen[list(without)] = False
        if not chosen.any():
            return None
        for group in first:
            near = np.zeros_like(chosen)
            near[list(group)] = True
            if (chosen & near).any():
                chosen &= near
                break
        preferred = self.round.preferred(shape, chosen)
        if preferred is not None:
            scores = -(keys >> _RANK_BITS)
            if shape.chips or shape.share is not None:
                chosen &= scores == scores[chosen].max()
                scores = preferred
            else:
                scores = scores + POINT * preferred
            chosen &= scores == scores[chosen].max()
        rows = np.flatnonzero(chosen)
        return int(rows[keys[rows].argmin()])

    def allowed(self, shapes: Sequence[Shape]) -> Fits | None:
        """Rows on which constraints allow one more pod of each of some shapes, shape (rows,); None for all."""
        found = [self.round.allowed(shape) for shape in shapes if self.round.limits(shape)]
        return np.logical_and.reduce(found) if found else None

    def forbidden(self, shape: Shape) -> dict[int, int]:
        """Nodes that would take a pod of a shape and that constraints forbid, by reason."""
        if shape.profile is not None:
            reasons = np.where(self._now(shape)[0], self.round.reasons(shape), np.uint8(NodeReason.FITS))
            counts = np.bincount(reasons).tolist()
            return {reason: nodes for reason, nodes in enumerate(counts) if nodes and reason}
        scorer, states = self._scorer, self._nodes.states
        full = (
            row
            for row in self.round.full_rows()
            if not scorer.evaluate_one(shape, row, states.get(row) or scorer.row_state(row))[0]
        )
        nodes = sum(1 for _ in full)
        return {int(NodeReason.PODS): nodes} if nodes else {}

    def constraint_counts(self, shape: Shape) -> list[ConstraintCount]:
        """The same nodes by constraint, for those that name something."""
        return [] if shape.profile is None else self.round.counts(shape, self._now(shape)[0])

    def homes(self, gang: Gang) -> "list[Home | None]":
        """Where to place the first pods of a gang that has affinity to itself and of which no pod is anywhere.

        All of these pods go where the first one goes, so each group of nodes with the same topology values is tried:
        first that of the best node, those without room for all left out. A single None for any other gang.
        """
        if all(shape.profile is None for shape, _ in gang.request_class):
            return [None]
        tasks = placing_order(gang.request_class)
        shape = gang.request_class[tasks[0]][0]
        groups = self.round.homes(shape)
        if groups is None:
            return [None]
        fits, keys = self._now(shape)
        chosen = fits & self.round.allowed(shape) & (groups >= 0)
        if not chosen.any():
            return [None]
        count = int(groups.max()) + 1
        first = np.full(count, _LAST, np.int64)
        np.minimum.at(first, groups[chosen], keys[chosen])
        room = np.bincount(groups[chosen], weights=self._room(shape)[chosen], minlength=count)
        pods = sum(pods for other, pods in gang.request_class if other == shape)
        order = np.lexsort((first, -room))[:1]
        if (room >= pods).any():
            order = np.argsort(np.where(room >= pods, first, _LAST), kind="stable")[: int((room >= pods).sum())]
        return [Home(shape, groups == group) for group in order.tolist()[:HOMES_MAX]]

    def _room(self, shape: Shape) -> Ints:
        """Most pods of a shape that each node has chips, cpu and memory for, shape (rows,)."""
        table = self._nodes.columns()
        rows = table.view()
        room = np.full(len(table), _MANY, np.int64)
        for need, left in (
            (shape.chips if shape.share is None else 0, np.bitwise_count(table.free[rows])),
            (shape.cpu_milli, table.cpu_free[rows]),
            (shape.memory_mib, table.memory_free[rows]),
        ):
            if need:
                np.minimum(room, left.astype(np.int64) // need, out=room)
        return room

    def by_name(self, shape: Shape) -> Fits:
        """Rows that names leave to a shape that names nodes, shape (rows,)."""
        found = self._by_name.get(shape)
        if found is None:
            found = rows_by_name(self._scorer.table, shape)
            self._by_name = {shape: found}
        return found

    def _now(self, shape: Shape) -> tuple[Fits, Ints]:
        """Rows that take a pod of a shape, as the round has left them, and their order; each of shape (rows,)."""
        column = self._column(shape.offered)
        return column.fits & self.by_name(shape) if shape.names_nodes else column.fits, column.keys

    def _column(self, shape: Shape) -> _Column:
        column = self._columns.get(shape)
        if column is None:
            column = self._columns[shape] = self._made(shape)
        nodes = self._nodes
        rows = dict.fromkeys(nodes.log[column.seen :])
        column.seen = len(nodes.log)
        if nodes.are_many(rows, shape):
            reasons, scores = nodes.now().evaluate(shape)
            many = np.fromiter(rows, np.int64)
            column.fits[many] = reasons[many] == NodeReason.FITS
            column.keys[many] = (-scores[many].astype(np.int64) << _RANK_BITS) | self._ranks[many]
            return column
        for row in rows:
            reason, score = self._scorer.evaluate_one(shape, row, nodes.states[row], nodes.base(row))
            column.fits[row] = not reason
            column.keys[row] = (-score << _RANK_BITS) | int(self._ranks[row])
        return column

    def _made(self, shape: Shape) -> _Column:
        _, scores = self._scorer.evaluate(shape)
        offered = self._views[shape].fits
        fits = offered.copy() if offered is not None else np.zeros(len(scores), np.bool_)
        return _Column(fits, (-scores.astype(np.int64) << _RANK_BITS) | self._ranks)
