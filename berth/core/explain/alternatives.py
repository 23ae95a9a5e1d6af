"""Alternatives: the best nodes that were not chosen for a pod, and why."""

from collections.abc import Mapping, Sequence
from typing import Final

from berth.core.explain.evidence import Alternative, Candidate, LostBy
from berth.core.explain.node_snapshot import NodeSnapshot, ShapeEvaluation

CANDIDATES_MAX: Final = 5
"""Upper bound of the alternatives of a choice, and of the nodes that were taken before."""
_PARTS: Final = ("affinity", "health", "unhealthy", "free", "sub-health", "preferred")
"""Parts of a score that nodes may differ in."""


def alternatives_of(
    snapshot: NodeSnapshot,
    evaluation: ShapeEvaluation,
    row: int,
    *,
    ranks: Mapping[str, Sequence[int]],
    better: LostBy,
) -> list[Candidate]:
    """The best other nodes at the moment of a choice, best first, then nodes that were better before the round.

    Args:
        snapshot: The nodes at that moment.
        evaluation: Reasons and scores of the nodes for the pod.
        row: The chosen node.
        ranks: Ranks of the same job that have their chips already, by node.
        better: Why a better node was not chosen.
    """
    mine = score_parts(snapshot, evaluation, row)
    found = []
    for other in evaluation.best_besides(row, CANDIDATES_MAX):
        parts = score_parts(snapshot, evaluation, other)
        score = int(evaluation.scores[other])
        lost_by: LostBy = "score" if score < evaluation.scores[row] else "name"
        if evaluation.key(other) < evaluation.key(row):
            lost_by = better
        found.append(
            Candidate(
                node=snapshot.table.names[other],
                score=score,
                free=snapshot.usable(evaluation.shape, other).bit_count(),
                affinity=snapshot.affinity(evaluation.shape, other),
                lost_by=lost_by,
                part=_heaviest(mine, parts) if lost_by == "score" else "",
                parts=parts,
            )
        )
    return found + [_taken(snapshot, evaluation, other, ranks) for other in evaluation.taken_from(row, CANDIDATES_MAX)]


def runner_up_of(candidate: Candidate) -> Alternative:
    """A candidate as a runner-up."""
    return Alternative(candidate.node, candidate.score, candidate.free, candidate.affinity, candidate.lost_by)


def score_parts(snapshot: NodeSnapshot, evaluation: ShapeEvaluation, row: int) -> dict[str, int]:
    """Parts of the score of a node, by name, whose sum it is; empty for shapes whose score has no parts."""
    shape = evaluation.shape
    rule = snapshot.scorer.rule(shape)
    if rule is None:
        return {}
    weights, table = rule.weights, snapshot.table
    parts = {
        "base": weights.base + weights.asked * shape.chips,
        "affinity": -weights.affinity * snapshot.affinity(shape, row),
        "health": weights.health * int(table.allocatable[row]),
        "unhealthy": -weights.unhealthy * int(table.unhealthy_count[row]),
        "free": -weights.free * snapshot.usable(shape, row).bit_count(),
        "preferred": evaluation.preferred(row),
    }
    return parts | {"sub-health": int(evaluation.scores[row]) - sum(parts.values())}


def _heaviest(mine: Mapping[str, int], other: Mapping[str, int]) -> str:
    """Part of the score with the largest difference; empty if none is worse."""
    worse = [part for part in _PARTS if mine and mine[part] > other[part]]
    return max(worse, key=lambda part: mine[part] - other[part], default="")  # of equal ones the first


def _taken(
    snapshot: NodeSnapshot, evaluation: ShapeEvaluation, row: int, ranks: Mapping[str, Sequence[int]]
) -> Candidate:
    name = snapshot.table.names[row]
    takers = [*snapshot.takers.get(name, {}), *(f"rank {rank}" for rank in ranks.get(name, ()))]
    return Candidate(
        node=name,
        score=evaluation.score_before(row),
        free=snapshot.usable(evaluation.shape, row).bit_count(),
        affinity=snapshot.affinity(evaluation.shape, row),
        lost_by="taken",
        taken_by=takers,
    )
