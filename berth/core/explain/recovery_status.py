"""The newest recovery of a job: its part of the status, and sentences about it."""

from typing import Final

from berth.core.explain.refusal_text import sentence
from berth.core.explain.text import pluralize, ranges
from berth.core.state.cell import State
from berth.core.state.holdings.pod_phases import ENDED, rows_of
from berth.core.state.ledger import GangRecord, Holding
from berth.schemas.recovery import RecoveryStatus
from berth.schemas.refusal import Refusal

_MS: Final = 1000


def recovery_of(
    state: State, gang: GangRecord, holding: Holding | None, unplaced: Refusal | None = None
) -> RecoveryStatus | None:
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
    is_here = holding is not None and holding.attempt == found.attempt
    waiting = list(holding.unplaced) if holding is not None and is_here else []
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
        refusal=sentence(unplaced) if waiting and unplaced is not None else "",
    )


def _has_places(holding: Holding) -> bool:
    """Whether every rank that leaves or left has a place, taken or reserved."""
    return not holding.unplaced and {rank for move in holding.moves for rank in move.placed} >= holding.leaving().keys()


def _open_ranks(state: State, holding: Holding) -> list[int]:
    """Ranks that still leave, or lack a place, or a pod at it."""
    seen = state.pods_seen(holding)
    pods = dict(rows_of(holding, seen)) if seen is not None else {}
    if holding.ending:
        gone = {*holding.gone, *(rank for rank, phase in pods.items() if phase in ENDED)}
        return [rank for rank in range(holding.placement.pods()) if rank not in gone]
    unbound = holding.steps.keys() - pods.keys() - set(holding.gone)
    return sorted({*holding.leaving(), *holding.unplaced, *unbound})


def ending_words(gang: GangRecord) -> str:
    """Why the pods of a gang are being deleted."""
    recovery = gang.recovery
    if recovery is None or recovery.attempt != gang.attempt or recovery.scope != "job" or recovery.how == "mark":
        return "its pods are being deleted"
    return f"its pods are being deleted because of a fault: {recovery.cause}"


def waiting_words(gang: GangRecord) -> str:
    """Why a gang waits again, if its attempt before ended because of a fault; empty otherwise."""
    recovery = gang.recovery
    if recovery is None or recovery.scope != "job" or recovery.how == "mark" or recovery.attempt != gang.attempt - 1:
        return ""
    return f"it is placed again after a fault: {recovery.cause}"


def open_words(recovery: RecoveryStatus | None) -> str:
    """What a job that runs is recovering from; empty if it is not."""
    if recovery is None or not recovery.open:
        return ""
    what = "rank" if len(recovery.open) == 1 else "ranks"
    verb = "recovers" if len(recovery.open) == 1 else "recover"
    why = f"; {unplaced_words(recovery)}" if recovery.refusal else ""
    return f"{what} {ranges(recovery.open)} {verb} from a fault: {recovery.cause}{why}"


def unplaced_words(recovery: RecoveryStatus) -> str:
    """That new pods of a job wait for places, and why."""
    one = len(recovery.unplaced) == 1
    what = "the new pod of rank" if one else "the new pods of ranks"
    verb = "waits for a place" if one else "wait for places"
    return f"{what} {ranges(recovery.unplaced)} {verb}: {recovery.refusal or recovery.cause}"


def recovery_words(recovery: RecoveryStatus, pods: int) -> str:
    """The newest recovery of a job of so many pods, as one line."""
    kept = pods - len(recovery.ranks)
    if recovery.how == "mark":
        return f"{recovery.cause}; {pluralize(len(recovery.ranks), 'pod')} marked, nothing deleted"
    if recovery.how == "backup":
        return f"{recovery.cause}; the pod of rank {ranges(recovery.ranks)} runs on until it is marked"
    if recovery.scope == "job":
        done = f"attempt {recovery.attempt} ended, all pods are replaced"
    else:
        done = f"step {recovery.step} replaces ranks {ranges(recovery.ranks)} and keeps {pluralize(kept, 'pod')}"
    return f"{recovery.cause}; {done}; {duration_words(recovery.since_ms, recovery.placed_ms)}"


def duration_words(since_ms: int, placed_ms: int) -> str:
    """How long it took until every rank had its place."""
    if not placed_ms:
        return "not every rank is at its place yet"
    return f"every rank was at its place after {(placed_ms - since_ms) / _MS:.1f} s"
