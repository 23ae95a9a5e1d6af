"""Parts of a round from which new places for pods of placed gangs are chosen."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from berth.core.placement.constrained_pods import ConstrainedPods
from berth.core.placement.planned_pods import PlannedPods
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.round_refusals import RoundRefusals
from berth.core.placement.scoring import Candidates
from berth.core.placement.single_pods import SinglePods
from berth.core.requests.gangs import Gang
from berth.schemas.offers import Shape
from berth.schemas.refusal import Refusal


class RoundParts(NamedTuple):
    """What new places for pods of placed gangs are chosen from.

    Attributes:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        counts: How many candidates were asked for, by shape.
        single: Best node for one more pod, all nodes considered.
        refusals: Refusals of pods that find no room.
        planned: Plans of gangs with affinity.
        constrained: Pods with constraints; None where there are none.
        begin_gang: Begins with the next gang: what was placed before it stays placed.
        roll_back: Returns everything that the current gang has taken.
        returned: As ``roll_back``, because of an error; gives the refusal.
    """

    nodes: RoundNodes
    views: Mapping[Shape, Candidates]
    counts: Mapping[Shape, int]
    single: SinglePods
    refusals: RoundRefusals
    planned: PlannedPods
    constrained: ConstrainedPods | None
    begin_gang: Callable[[], None]
    roll_back: Callable[[], None]
    returned: Callable[[Gang, Exception], Refusal]
