"""Nodes that can take a pod of a shape during a round: the offered ones, updated for the touched ones."""

from collections.abc import Callable, Sequence

from berth.core.cluster.bitmaps import Marks
from berth.core.cluster.view import RowState
from berth.core.placement.scoring import Scorer
from berth.schemas.offers import Shape


class TouchedMarks:
    """Marks of each shape, updated on demand.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged during the round.
        index_of: Index of the mark of a row; negative for a row without a mark.
    """

    def __init__(self, scorer: Scorer, index_of: Callable[[int], int]) -> None:
        self._scorer = scorer
        self._index_of = index_of
        self._marks: dict[Shape, tuple[Marks, int]] = {}
        """Marks of a shape, and how many entries of the log of touched rows they include."""

    def now(self, shape: Shape, offered: Marks, log: Sequence[int], state_of: Callable[[int], RowState]) -> Marks:
        """Current marks of a shape.

        Args:
            shape: Shape of the pod.
            offered: Marks before the round; not changed.
            log: Rows that the round has touched so far, in order.
            state_of: Current state of a touched row.
        """
        marks, seen = self._marks.get(shape) or (offered.copy(), 0)
        rule = self._scorer.rule(shape)
        for row in dict.fromkeys(log[seen:]):
            index = self._index_of(row)
            if index >= 0:
                state = state_of(row)
                is_short = rule is not None and state.idle < rule.chips  # true for most rows: plans take whole nodes
                marks[index] = not (is_short or self._scorer.evaluate_one(shape, row, state)[0])
        self._marks[shape] = (marks, len(log))
        return marks
