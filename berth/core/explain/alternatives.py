"""Rivals: the best nodes that a pod did not get, and why they did not win."""

from collections.abc import Mapping, Sequence
from typing import Final

from berth.core.explain.evidence import Candidate, LostBy, Rival
from berth.core.explain.node_snapshot import Board, Standing
from berth.schemas.offers import Shape

CANDIDATES_MAX: Final = 5
"""Other nodes that are told of a choice, and at most as many that were taken before."""
_PARTS: Final = ("affinity", "health", "unhealthy", "free")


def candidates_of(board: Board, standing: Standing, row: int, *, ranks: Mapping[str, Sequence[int]]) -> list[Candidate]:
    """The best other nodes at the moment of a choice, the best first, then those that were better before the round.

    Args:
        board: The nodes as they stand.
        standing: Their standing for the pod.
        row: The node that it got.
        ranks: Ranks of the same job that have their chips already, by node.
    """
    mine = score_parts(board, standing.shape, row)
    found = []
    for other in standing.best_besides(row, CANDIDATES_MAX):
        parts = score_parts(board, standing.shape, other)
        score = int(standing.scores[other])
        lost_by: LostBy = "score" if score < standing.scores[row] else "name"
        if standing.key(other) < standing.key(row):
            lost_by = "better"
        found.append(
            Candidate(
                node=board.table.names[other],
                score=score,
                free=board.usable(standing.shape, other).bit_count(),
                affinity=board.affinity(standing.shape, other),
                lost_by=lost_by,
                part=_heaviest(mine, parts) if lost_by == "score" else "",
                parts=parts,
            )
        )
    return found + [_taken(board, standing, other, ranks) for other in standing.taken_from(row, CANDIDATES_MAX)]


def rival_of(candidate: Candidate) -> Rival:
    """A candidate as a runner-up."""
    return Rival(candidate.node, candidate.score, candidate.free, candidate.affinity, candidate.lost_by)


def score_parts(board: Board, shape: Shape, row: int) -> dict[str, int]:
    """What each part that differs between nodes adds to the score of a node; empty for shapes whose score has no such parts."""
    rule = board.scorer.rule(shape)
    if rule is None:
        return {}
    weights, table = rule.weights, board.table
    return {
        "affinity": -weights.affinity * board.affinity(shape, row),
        "health": weights.health * int(table.allocatable[row]),
        "unhealthy": -weights.unhealthy * int(table.unhealthy_count[row]),
        "free": -weights.free * board.usable(shape, row).bit_count(),
    }


def _heaviest(mine: Mapping[str, int], other: Mapping[str, int]) -> str:
    """Part by which the other lost most."""
    if not mine:
        return ""
    return max(_PARTS, key=lambda part: mine[part] - other[part])  # of equal ones the first


def _taken(board: Board, standing: Standing, row: int, ranks: Mapping[str, Sequence[int]]) -> Candidate:
    name = board.table.names[row]
    takers = [*board.takers.get(name, {}), *(f"rank {rank}" for rank in ranks.get(name, ()))]
    return Candidate(
        node=name,
        score=standing.score_before(row),
        free=board.usable(standing.shape, row).bit_count(),
        affinity=board.affinity(standing.shape, row),
        lost_by="taken",
        taken_by=takers,
    )
