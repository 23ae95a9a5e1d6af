"""Phases of the pods of an attempt, without those of pods at places that their ranks have left."""

from typing import Final

from berth.core.state.holdings.holding import Holding
from berth.schemas.columns import unpack
from berth.schemas.facts import OutcomeSeen, PodPhase, PodsSeen

ENDED: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED, PodPhase.GONE})

STEP_MAX: Final = 1_000_000
"""Highest step of lost records that pods are believed: anybody may write annotations of pods."""


def steps_of(seen: PodsSeen) -> list[int]:
    """Step of a recovery for which each pod of a fact was bound, in its order; 0 for the verdict."""
    return unpack(seen.steps, 4) or [0] * len(seen.phase)


def next_step(holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None) -> int:
    """Number of the next step of a recovery: above all that its pods and the binder know, of lost records too.

    Args:
        holding: The attempt.
        seen: Its pods in the cluster.
        outcome: What the binder achieved.
    """
    bound = unpack(seen.steps, 4) if seen is not None else []
    taken_up = outcome.step if outcome is not None else 0
    return max([holding.step, *(step for step in (*bound, taken_up) if step <= STEP_MAX)]) + 1


def rows_of(holding: Holding, seen: PodsSeen) -> list[tuple[int, int]]:
    """Rank and phase of each pod at the newest place of its rank, in the order of the fact.

    A rank whose newest place came with a step of a recovery has only pods of that step or a later one.

    Args:
        holding: The attempt.
        seen: Its pods in the cluster.
    """
    ranks = unpack(seen.rank, 4)
    if not holding.steps:
        return list(zip(ranks, seen.phase, strict=True))
    rows = zip(ranks, seen.phase, steps_of(seen), strict=True)
    return [(rank, phase) for rank, phase, step in rows if step >= holding.step_of(rank)]
