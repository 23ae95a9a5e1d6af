"""What a round asks of the shards: candidates for each shape, and how much work that is.

Work is counted in rows: 1 is what a row of the node table costs when a shape is scored on all of them, some 36 ns. A
shape of its own, and each candidate that is sent, read and merged, cost as many rows as is measured here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from berth.core.gangs import ClassKey, Gang
from berth.schemas.offers import Shape

ROUND_WORK_MAX: Final = 4_000_000
"""Work that one round asks for, unless one gang alone needs more."""
SHAPES_LEAST: Final = 16
"""A gang with no more tasks is not heavy, however large the cell is."""
_WORK_LEAST: Final = ROUND_WORK_MAX // 8
_A_SHAPE: Final = 1_400
_A_CANDIDATE: Final = 20
_A_TOUCHED: Final = 80
"""Work to score one node again that the gang has touched."""
_CANDIDATES_MAX: Final = 262_144
_OF_A_SHAPE: Final = 256
"""Candidates that a round asks for at first: so many in all, and so many of each shape."""
_MORE: Final = 4
"""Times as many are asked for when they end early."""


class NeedMoreError(Exception):
    """The offers end before the round is decided.

    Attributes:
        shape: Shape to ask for again.
        count: Candidates to ask for.
    """

    def __init__(self, shape: Shape, count: int) -> None:
        super().__init__(f"{count} candidates of {shape.form} x {shape.chips} are needed")
        self.shape = shape
        self.count = count


def offered_of(request_class: ClassKey) -> dict[Shape, None]:
    """Shapes that are asked for, for a class: fewer than its tasks where these differ in what pods demand of others."""
    return dict.fromkeys(shape.offered for shape, _ in request_class)


def candidate_counts(gangs: Sequence[Gang], *, full: int = 0) -> dict[Shape, int]:
    """Candidates that a round of ``gangs`` may need of each shape that is offered; 0 for those answered with marks.

    A gang touches at most as many nodes as it has pods. So the pods up to the last gang with a shape are enough, and
    the nodes that are passed over: those that are full, and those that a gang leaves out while others take it.

    Args:
        gangs: The gangs, in their order.
        full: Nodes that take no further pod, whatever it is; shards do not know that.
    """
    upto: dict[ClassKey, int] = {}
    pods = full
    for gang in gangs:
        pods += gang.pods + len(gang.avoided)
        upto[gang.request_class] = pods
    counts: dict[Shape, int] = {}
    for request_class, count in upto.items():
        for shape in offered_of(request_class):
            # Some shapes are answered with one mark for each node, not with candidates.
            counts[shape] = 0 if shape.needs_marks else max(count, counts.get(shape, 0))
    return counts


def first_counts(counts: Mapping[Shape, int]) -> dict[Shape, int]:
    """Candidates to ask for at first: where there are many shapes, fewer than each of them may need."""
    most = max(_OF_A_SHAPE, _CANDIDATES_MAX // max(len(counts), 1))
    return {shape: min(count, most) for shape, count in counts.items()}


def more_counts(asked: Mapping[Shape, int], needs: Mapping[Shape, int], error: NeedMoreError) -> dict[Shape, int]:
    """Candidates to ask for when those of a shape have ended: more of all shapes that may need more.

    Args:
        asked: Candidates that were asked for.
        needs: Candidates that the round may need.
        error: What is short.
    """
    more = {shape: max(count, min(needs.get(shape, 0), _MORE * count)) for shape, count in asked.items()}
    if more[error.shape] == asked[error.shape]:
        more[error.shape] = error.count
    return more


def work_of_shape(count: int, nodes: int) -> int:
    """Work to score a shape on ``nodes`` and to answer with ``count`` candidates."""
    return _A_SHAPE + nodes + _A_CANDIDATE * min(count, nodes)


def work_of_gang(request_class: ClassKey, nodes: int) -> int:
    """Work to decide one gang of a class alone, on ``nodes``."""
    shapes, pods = len(offered_of(request_class)), sum(pods for _, pods in request_class)
    touched = _A_TOUCHED * min(pods, nodes) if shapes > 1 else 0
    return shapes * (work_of_shape(min(pods, _OF_A_SHAPE), nodes) + touched)


def is_heavy(request_class: ClassKey, nodes: int) -> bool:
    """Whether gangs of a class are heavy in a cell of ``nodes``."""
    if len(request_class) <= SHAPES_LEAST or len(offered_of(request_class)) <= SHAPES_LEAST:
        return False
    return work_of_gang(request_class, nodes) > _WORK_LEAST


def gangs_of_one_round(gangs: Sequence[Gang], *, nodes: int, work_max: int = ROUND_WORK_MAX) -> Sequence[Gang]:
    """The first gangs, at least one, whose shapes are scored with bounded work.

    Args:
        gangs: Gangs in queue order.
        nodes: Nodes of the cell; one shard may own all of them.
        work_max: Upper bound of the work.
    """
    classes: set[ClassKey] = set()
    shapes: set[Shape] = set()
    work = 0
    for index, gang in enumerate(gangs):
        if gang.request_class in classes:
            continue
        classes.add(gang.request_class)
        for shape in offered_of(gang.request_class):
            if shape not in shapes:
                shapes.add(shape)
                work += work_of_shape(0 if shape.needs_marks else min(gang.pods, _OF_A_SHAPE), nodes)
        if index and work > work_max:
            return gangs[:index]
    return gangs
