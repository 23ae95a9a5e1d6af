"""Nodes that can take a pod of a shape during a round: the offered ones, updated for the touched ones."""

from collections.abc import Callable

from berth.core.cluster.bitmaps import Marks
from berth.core.placement.round_nodes import RoundNodes
from berth.schemas.offers import Shape


class TouchedMarks:
    """Marks of each shape, updated on demand.

    Args:
        nodes: Nodes as the round leaves them.
        index_of: Index of the mark of a row; negative for a row without a mark.
    """

    def __init__(self, nodes: RoundNodes, index_of: Callable[[int], int]) -> None:
        self._nodes = nodes
        self._index_of = index_of
        self._marks: dict[Shape, tuple[Marks, int]] = {}
        """Marks of a shape, and how many entries of the log of touched rows they include."""

    def now(self, shape: Shape, offered: Marks) -> Marks:
        """Current marks of a shape.

        Args:
            shape: Shape of the pod.
            offered: Marks before the round; not changed.
        """
        marks, seen = self._marks.get(shape) or (offered.copy(), 0)
        nodes, scorer = self._nodes, self._nodes.scorer
        rule = scorer.rule(shape)
        for row in dict.fromkeys(nodes.log[seen:]):
            index = self._index_of(row)
            if index >= 0:
                state = nodes.states[row]
                is_short = rule is not None and state.idle < rule.chips  # true for most rows: plans take whole nodes
                marks[index] = not (is_short or scorer.evaluate_one(shape, row, state)[0])
        self._marks[shape] = (marks, len(nodes.log))
        return marks
