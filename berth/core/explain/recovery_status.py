"""The newest recovery of a job, and its backup pods that wait: their part of the status."""

from collections.abc import Mapping

from berth.core.state.cell import State
from berth.core.state.holdings.pod_phases import ENDED, rows_of
from berth.core.state.ledger import GangRecord, Holding
from berth.schemas.recovery import BackupWaiting, RecoveryStatus


def recovery_of(state: State, gang: GangRecord, holding: Holding | None, unplaced: str = "") -> RecoveryStatus | None:
    """Newest recovery of a gang; None if it never had one.

    Args:
        state: The cell.
        gang: The gang.
        holding: Its attempt; None while it has no place.
        unplaced: Why its ranks have no place, as far as it is known.
    """
    found = gang.recovery
    if found is None:
        return None
    held = state.fold.held.get(gang.uid)
    held = held if held is not None and not held.is_reserved else None
    is_here = holding is not None and holding.attempt == found.attempt
    waiting = sorted({*holding.unplaced, *holding.given_up}) if holding is not None and is_here else []
    return RecoveryStatus(
        step=found.step,
        scope=found.scope,
        how=found.how,
        kind=found.kind,
        cause=found.cause,
        ranks=found.ranks,
        faulty=found.faulty,
        since_ms=found.since_ms,
        until_ms=found.until_ms,
        retries_left=gang.retries_left,
        nodes=found.nodes,
        attempt=found.attempt,
        placed=holding is not None and not holding.ending and _has_places(holding),
        open=_open_ranks(state, holding) if holding is not None and is_here else [],
        placed_ms=gang.placed_ms,
        held=list(held.ranks) if held is not None else [],
        held_until_ms=held.until_ms if held is not None else 0,
        unplaced=waiting,
        refusal=unplaced if waiting else "",
        for_job=found.for_job,
        given_up=sorted({*holding.given_up, *holding.giving_up()}) if holding is not None and is_here else [],
    )


def waiting_backups(state: State, holding: Holding | None, unplaced: Mapping[str, str]) -> list[BackupWaiting]:
    """Backup pods of an attempt that wait for a place beside the pods of their ranks, ascending by rank.

    One that has taken its rank without a place waits like any other new pod.

    Args:
        state: The cell.
        holding: The attempt; None while the gang has no place.
        unplaced: Why pods (uid) have no place, as far as it is known.
    """
    if holding is None or holding.ending:
        return []
    known = state.faults.backups((holding.namespace, holding.name), holding.uid)
    if not known:
        return []
    placed = {rank: move.backup_of(rank) for rank, move in holding.backups().items()}
    others = {*holding.gone, *holding.leaving()}
    return [
        BackupWaiting(rank, uid, unplaced.get(uid, ""))
        for rank, uid in sorted(known.items())
        if rank < holding.placement.pods()
        and rank not in others
        and uid not in {placed.get(rank), holding.switched.get(rank)}
    ]


def _has_places(holding: Holding) -> bool:
    """Whether every rank that leaves or left has a place, taken or reserved."""
    if holding.unplaced or holding.given_up:
        return False
    return {rank for move in holding.moves for rank in move.placed} >= holding.leaving().keys()


def _open_ranks(state: State, holding: Holding) -> list[int]:
    """Ranks that still leave, or lack a place, or a pod at it."""
    seen = state.pods_seen(holding)
    pods = dict(rows_of(holding, seen)) if seen is not None else {}
    if holding.ending:
        gone = {*holding.gone, *(rank for rank, phase in pods.items() if phase in ENDED)}
        return [rank for rank in range(holding.placement.pods()) if rank not in gone]
    unbound = holding.steps.keys() - pods.keys() - set(holding.gone)
    return sorted({*holding.leaving(), *holding.unplaced, *holding.given_up, *unbound})
