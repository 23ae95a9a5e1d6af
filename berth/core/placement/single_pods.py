"""Best node for one more pod, among the offered candidates and the nodes that the round has touched.

The candidates were scored before the round, so a touched node is scored again here. The result is the same as if every
node had been scored before every pod.
"""

import heapq
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from berth.core.placement.round_demand import NeedMoreError
from berth.core.placement.round_nodes import MANY_LEAST, RoundNodes
from berth.core.placement.scoring import Candidates
from berth.schemas.offers import Shape
from berth.schemas.refusal import NodeReason


class _Cursor:
    """How far a round has read the candidates of one shape."""

    __slots__ = ("count", "found", "heap", "left", "row", "seen")

    def __init__(self, found: Candidates, count: int) -> None:
        self.found = found
        self.count = count
        self.left = iter(found.rows)
        """Candidates after the next one."""
        self.row = next(self.left, None)
        """Next candidate, which may be touched; None after the last one."""
        self.seen = 0
        """Entries of the log of touched rows that are in the heap."""
        self.heap: list[tuple[int, int, int, int]] = []
        """Touched rows that fit: negative score, rank of the name, row, revision of the row."""

    @property
    def score(self) -> int:
        """Score of the next candidate."""
        return self.found.scores[-1 - operator.length_hint(self.left)]


class SinglePods:
    """Chooses nodes pod by pod.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        counts: How many candidates were asked for, by shape.
        is_full: Whether a row takes no further pod, whatever its shape.
    """

    def __init__(
        self,
        nodes: RoundNodes,
        views: Mapping[Shape, Candidates],
        counts: Mapping[Shape, int],
        is_full: Callable[[int], bool],
    ) -> None:
        self.is_full = is_full
        self._nodes = nodes
        self._scorer = nodes.scorer
        self._ranks = nodes.scorer.table.ranks()
        self._cursors = {shape: _Cursor(found, counts[shape]) for shape, found in views.items()}

    def best(self, shape: Shape) -> int | None:
        """Row of the best node for one more pod, by score and then by name; None when no node fits.

        Raises:
            NeedMoreError: Better nodes may be among those that were not offered.
        """
        nodes, cursor = self._nodes, self._cursors[shape]
        if cursor.seen < len(nodes.log):
            self._score_touched(shape, cursor)
        heap, revisions, states = cursor.heap, nodes.revisions, nodes.states
        while heap and heap[0][3] != revisions[heap[0][2]]:
            heapq.heappop(heap)
        while cursor.row is not None and (cursor.row in states or self.is_full(cursor.row)):
            # There may be thousands of touched ones before the next.
            cursor.row = next(itertools.filterfalse(states.__contains__, cursor.left), None)
        if cursor.row is None:
            if not cursor.found.exhausted:
                # Nodes on which room is kept are touched, too: they are passed over in one step.
                raise NeedMoreError(shape, 2 * cursor.count + 1 + len(nodes.kept))
            return heap[0][2] if heap else None
        if heap and heap[0][:2] < (-cursor.score, int(self._ranks[cursor.row])):
            return heap[0][2]
        return cursor.row

    def _score_touched(self, shape: Shape, cursor: _Cursor) -> None:
        """Put the rows into the heap that were touched since the last call."""
        scorer, nodes = self._scorer, self._nodes
        states = nodes.states
        rule = scorer.rule(shape)
        rows: Collection[int]
        if len(nodes.log) - cursor.seen >= MANY_LEAST and shape.share is None:  # most often it is one
            rows = nodes.with_room(shape, rule.chips if rule is not None else 0)
        else:
            rows = dict.fromkeys(nodes.log[cursor.seen :])
        cursor.seen = len(nodes.log)
        if len(rows) >= MANY_LEAST and nodes.are_many(rows, shape):
            self._score_many(shape, cursor, rows)
            return
        for row in rows:
            if (rule is not None and states[row].idle < rule.chips) or self.is_full(row):
                continue  # it cannot fit, whatever the reason
            reason, score = scorer.evaluate_one(shape, row, states[row], nodes.base(row))
            if not reason:
                heapq.heappush(cursor.heap, (-score, int(self._ranks[row]), row, nodes.revisions[row]))

    def _score_many(self, shape: Shape, cursor: _Cursor, touched: Iterable[int]) -> None:
        """As :meth:`_score_touched`, for so many rows that all rows are scored sooner than these one by one."""
        reasons, scores = self._nodes.now().evaluate(shape)
        rows = np.fromiter(touched, np.int64)
        rows = rows[reasons[rows] == NodeReason.FITS]
        revisions = self._nodes.revisions
        found = zip((-scores[rows]).tolist(), self._ranks[rows].tolist(), rows.tolist(), strict=True)
        cursor.heap += [(score, rank, row, revisions[row]) for score, rank, row in found if not self.is_full(row)]
        heapq.heapify(cursor.heap)
