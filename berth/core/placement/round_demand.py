"""What a round asks of the shards: candidates for each shape, and no more gangs than one offer has room for."""

from collections.abc import Sequence
from typing import Final

from berth.core.requests.gangs import ClassKey, Gang
from berth.schemas.offers import Shape

MARKS_BYTES_MAX: Final = 4_000_000
"""Bytes of node marks in one offer: half of the largest message that the server accepts."""


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


def candidate_counts(gangs: Sequence[Gang], *, full: int = 0) -> dict[Shape, int]:
    """Candidates that a round of ``gangs`` may need of each shape; 0 for a shape that is answered with marks.

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
        for shape, _ in request_class:
            # Some shapes are answered with one mark for each node, not with candidates.
            counts[shape] = 0 if shape.needs_marks else max(count, counts.get(shape, 0))
    return counts


def gangs_of_one_offer(gangs: Sequence[Gang], *, nodes: int, bytes_max: int = MARKS_BYTES_MAX) -> Sequence[Gang]:
    """The first gangs, at least one, whose shapes fit into one offer.

    For gangs that are planned together, or have constraints, a shard answers one bit for each node and shape, and one
    shard may own all nodes.

    Args:
        gangs: Gangs in queue order.
        nodes: Nodes of the cell.
        bytes_max: Upper bound of the marks in one offer, in bytes.
    """
    classes: set[ClassKey] = set()
    shapes: set[Shape] = set()
    for index, gang in enumerate(gangs):
        if gang.request_class in classes:
            continue
        classes.add(gang.request_class)
        shapes.update(shape for shape, _ in gang.request_class if shape.needs_marks)
        if index and len(shapes) * ((nodes + 7) // 8) > bytes_max:
            return gangs[:index]
    return gangs
