"""Refusals of a round: nodes by the reason why they take no pod, and gangs that are larger than the cluster."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from berth.core.constraints.constraint_round import Obstacle
from berth.core.gangs import ClassKey, Gang
from berth.core.placement.round_nodes import RoundNodes
from berth.core.placement.scoring import Candidates, Scorer
from berth.schemas.offers import Shape
from berth.schemas.refusal import ConstraintCount, Refusal, reason_counts


class RoundRefusals:
    """Refusals of gangs that find no room.

    Args:
        nodes: Nodes as the round leaves them.
        views: Merged candidates of each shape.
        forbidden: Nodes that would take a pod of a shape and that constraints forbid, by reason.
        by_constraint: The same nodes, for each constraint that names something.
        obstacle: What keeps a shape from all nodes; None without such a thing.
        counted: Nodes by reason for a shape whose offers do not have them: it names nodes, and these have those of all
            nodes, or they are not counted. None counts all nodes.
    """

    def __init__(
        self,
        nodes: RoundNodes,
        views: Mapping[Shape, Candidates],
        forbidden: Callable[[Shape], Mapping[int, int]],
        by_constraint: Callable[[Shape], list[ConstraintCount]],
        obstacle: Callable[[Shape], Obstacle | None],
        counted: Callable[[Shape], Candidates] | None,
    ) -> None:
        self._forbidden = forbidden
        self._by_constraint = by_constraint
        self._obstacle = obstacle
        self._nodes = nodes
        self._scorer = nodes.scorer
        self._views = views
        self._counted = counted or (lambda shape: nodes.scorer.candidates(shape, 0))

    def no_room(
        self,
        gang: Gang,
        index: int,
        placed: int,
        missing: Sequence[int],
        *,
        by_gang: Sequence[ConstraintCount] = (),
    ) -> Refusal:
        """Refusal of a gang, with the nodes by reason as they are without it.

        Args:
            gang: The gang.
            index: Index of its task that found no room.
            placed: How many of its pods had found a node before.
            missing: Shards that did not answer. While any is missing, no gang is called larger than the cluster.
            by_gang: Nodes that constraints excluded when ``placed`` pods of the gang had their nodes. Those of reasons
                that exclude nodes without these pods are left out.
        """
        shape, _ = gang.request_class[index]
        found = self._views[shape.offered]
        if shape.names_nodes or not found.is_counted:
            found = self._counted(shape)
        scorer = self._scorer
        counts = dict(found.counts)
        fit = found.fit
        for row, state in self._nodes.states.items():
            before, _ = scorer.evaluate_one(shape, row, scorer.row_state(row))
            now, _ = scorer.evaluate_one(shape, row, state)
            fit += (not now) - (not before)
            if before:
                counts[before] = counts.get(before, 0) - 1
            if now:
                counts[now] = counts.get(now, 0) + 1
        for reason, nodes in self._forbidden(shape).items():
            fit -= nodes
            counts[reason] = counts.get(reason, 0) + nodes
        refusal = Refusal(
            code="no-room",
            task=gang.tasks[index],
            pods_need=gang.pods,
            pods_have=placed,
            chips=shape.chips,
            form=gang.form,
            form_because=gang.form_because,
            nodes_total=found.total,
            nodes_fit=fit,
            counts=reason_counts(counts),
            missing_shards=list(missing),
            constraints=[
                *self._by_constraint(shape),
                *(one for one in by_gang if not counts.get(one.reason)),
            ],
        )
        if not missing:
            refusal = self._larger_than_cluster(gang, index, refusal)
        obstacle = self._obstacle(shape) if refusal.code == "no-room" else None
        if obstacle is None:
            return refusal
        return msgspec.structs.replace(
            refusal, code=obstacle.code, field=obstacle.field, value=obstacle.value, expected=obstacle.expected
        )

    def _larger_than_cluster(self, gang: Gang, index: int, refusal: Refusal) -> Refusal:
        """The refusal, with the chips that a gang needs beyond all that there are, if it needs more."""
        scorer, request_class = self._scorer, gang.request_class
        order = index, *range(len(request_class))
        larger = next((task for task in order if _is_larger(scorer, request_class, request_class[task][0])), None)
        if larger is None:
            return refusal
        shape, pods = request_class[larger]
        need, (nodes, chips) = _chips_needed(request_class, shape), scorer.chips_for(shape)
        return msgspec.structs.replace(
            refusal,
            code="larger-than-cluster",
            field=f"tasks[{larger}].replicas",
            value=str(pods),
            expected=f"the job asks for {need:,} chips of {gang.resource}, and there are {chips:,} in all, on {nodes:,} nodes"
            " that it may use",
        )


def with_reservation(no_room: Refusal, reserved: Refusal) -> Refusal:
    """Refusal by a rule of a gang that found nodes, such as those which are reserved for another gang.

    Args:
        no_room: Nodes by reason, as for a gang without room.
        reserved: The refusal of the rule: the gang that holds the reservation, and when it starts.
    """
    return msgspec.structs.replace(
        no_room,
        code=reserved.code,
        field="",
        value="",
        expected="",
        ahead=reserved.ahead,
        start_ms=reserved.start_ms,
        rule=reserved.rule,
        template=reserved.template,
        numbers=reserved.numbers,
    )


def is_larger_than_cluster(scorer: Scorer, request_class: ClassKey) -> bool:
    """Whether the pods of a class need more chips than there are on all nodes that they may use, free or not."""
    return any(_is_larger(scorer, request_class, shape) for shape, _ in request_class)


def _is_larger(scorer: Scorer, request_class: ClassKey, shape: Shape) -> bool:
    """Whether a class needs more chips than there are on the nodes that one of its shapes may use."""
    need = _chips_needed(request_class, shape)
    return need > 0 and need > scorer.chips_for(shape)[1]


def _chips_needed(request_class: ClassKey, shape: Shape) -> int:
    """Chips that a class needs of the nodes that one of its shapes may use."""
    return sum(part.chips * count for part, count in request_class if _uses_same_nodes(part, shape))


def _uses_same_nodes(part: Shape, shape: Shape) -> bool:
    """Whether two shapes with whole chips may use the same nodes, by resource, selector and affinity."""
    if part.share is not None or not part.chips:
        return False
    return (part.resource, part.selector, part.affinity) == (shape.resource, shape.selector, shape.affinity)
