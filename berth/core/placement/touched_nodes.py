"""Which nodes take a pod of a shape while a round goes on: what was offered, and what the round has touched since."""

from collections.abc import Callable, Sequence

from berth.core.cluster.bitmaps import Marks
from berth.core.placement.scoring import RowState, Scorer
from berth.schemas.offers import Shape


class TouchedMarks:
    """Marks of each shape, brought up to date when they are asked for.

    Args:
        scorer: Scoring on the dispatcher's own columns, unchanged while the round goes on.
        index_of: Mark of a row; negative for a row that has none.
    """

    def __init__(self, scorer: Scorer, index_of: Callable[[int], int]) -> None:
        self._scorer = scorer
        self._index_of = index_of
        self._marks: dict[Shape, tuple[Marks, int]] = {}
        """Marks of a shape, and how much of the log of touched rows is in them."""

    def now(self, shape: Shape, offered: Marks, log: Sequence[int], state_of: Callable[[int], RowState]) -> Marks:
        """Where a pod of a shape can go now.

        Args:
            shape: What is asked.
            offered: Where it could go before the round; stays as it is.
            log: Rows that the round has touched so far, in its order.
            state_of: State in which it left a row.
        """
        marks, seen = self._marks.get(shape) or (offered.copy(), 0)
        rule = self._scorer.rule(shape)
        for row in dict.fromkeys(log[seen:]):
            index = self._index_of(row)
            if index >= 0:
                state = state_of(row)
                is_short = rule is not None and state.idle < rule.chips  # most rows are: plans take whole nodes
                marks[index] = not (is_short or self._scorer.evaluate_one(shape, row, state)[0])
        self._marks[shape] = (marks, len(log))
        return marks
