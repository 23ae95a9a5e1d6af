"""Ranks that leave because of a fault, or that could not be bound, and backup pods: which of them are gone."""

from collections.abc import Mapping
from typing import Final

from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.pod_phases import ENDED, rows_of, steps_of
from berth.schemas.columns import unpack
from berth.schemas.facts import OutcomeSeen, PodsSeen
from berth.schemas.ledger import Release

_FACTS_MS: Final = 10_000
"""Within this time facts show a pod that the binder has bound."""


def left_ranks(holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None) -> Release | None:
    """Release of the ranks that a fault has made leave, and of those whose new pod could not be bound.

    A leaving rank is released when its pod has ended. Where it has none, one may be on its way: it is released once the
    binder has taken up the step, for it binds none at the old place from then on. A rank of
    which only its backup pod is left is released in any case.

    Args:
        holding: The attempt.
        seen: Its pods.
        outcome: What the binder achieved.
    """
    leaving = holding.leaving()
    phases = dict(rows_of(holding, seen)) if seen is not None and (leaving or holding.steps) else {}
    is_empty = seen is not None and not seen.phase
    ranks = switched_ranks(holding, seen) if seen is not None else set()
    taken_up = outcome.step if outcome is not None else 0
    ranks |= {
        rank
        for rank, step in leaving.items()
        if (phases[rank] in ENDED if rank in phases else is_empty or taken_up >= step)
    }
    unbound = left_unbound(holding, outcome, again=True) - phases.keys() - set(holding.gone)
    found = sorted(ranks | unbound)
    return Release(holding.uid, holding.attempt, "fault", ranks=found) if found else None


def switched_ranks(holding: Holding, seen: PodsSeen) -> set[int]:
    """Ranks that have only their backup pod: facts show it once the pod beside it is gone or has ended."""
    backups = holding.backups()
    if not backups:
        return set()
    rows = zip(unpack(seen.rank, 4), steps_of(seen), strict=True)
    return {rank for rank, step in rows if rank in backups and step >= backups[rank].step}


def left_backups(holding: Holding, existing: Mapping[int, str]) -> Release | None:
    """Release of the places that are reserved for backup pods that are gone.

    Args:
        holding: The attempt.
        existing: Backup pods (uid) that exist, by rank. A pod of another uid never gets such a place.
    """
    lost = [rank for rank, move in sorted(holding.backups().items()) if existing.get(rank) != move.backup_of(rank)]
    return Release(holding.uid, holding.attempt, "backup", ranks=lost) if lost else None


def left_unbound(holding: Holding, outcome: OutcomeSeen | None, *, again: bool = False) -> set[int]:
    """Ranks that the binder could not bind and left unbound, while the others run.

    Args:
        holding: The attempt.
        outcome: What the binder achieved.
        again: Those whose place came with a step of a recovery, or whose node does not take them any more: they get
            another one; otherwise the others.
    """
    if outcome is None or not (outcome.state == "bound" or (again and failed_again(holding, outcome))):
        return set()
    steps = {item.rank: holding.step_of(item.rank) for item in outcome.failures}
    return {rank for rank, step in steps.items() if step <= outcome.step and (step > 0 or outcome.given_back) == again}


def vanished_ms(holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None) -> int | None:
    """When an attempt counts as vanished that may run and has no pod; None if it has some, or new ones come.

    After a step the new pods are still to come until the binder has bound them, and facts follow then.

    Args:
        holding: The attempt.
        seen: Its pods.
        outcome: What the binder achieved.
    """
    if seen is None or seen.phase or holding.recovers:
        return None
    newest = max((step for rank, step in holding.steps.items() if rank not in holding.gone), default=0)
    if not newest:
        return 0
    if outcome is None or outcome.done < newest:
        return None
    return max(outcome.at_ms, seen.at_ms) + _FACTS_MS


def failed_again(holding: Holding, outcome: OutcomeSeen) -> bool:
    """Whether all pods that could not be bound are of ranks whose place came with a step of a recovery."""
    steps = [holding.step_of(item.rank) for item in outcome.failures]
    return bool(steps) and outcome.step > 0 and all(steps)
