"""Sentences about the newest recovery of a job."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from berth.core.text import numbered, pluralize, ranges
from berth.schemas.recovery import DISPLACED, BackupWaiting, RecoveryStatus

if TYPE_CHECKING:  # the command line has these words without what the fold needs
    from berth.core.state.ledger import GangRecord

POD_FAILED: Final = "a pod failed"
PODS_GONE: Final = "its pods are gone"
OF_PODS: Final = frozenset({POD_FAILED, PODS_GONE})
"""Sentences about jobs that ended by what their pods did."""
_MS: Final = 1000


def ending_words(gang: "GangRecord") -> str:
    """Why the pods of a gang are being deleted."""
    recovery = gang.recovery
    if recovery is None or recovery.attempt != gang.attempt or recovery.scope != "job" or recovery.how == "mark":
        return "its pods are being deleted"
    if recovery.kind in DISPLACED:
        return f"its pods are being deleted: {recovery.cause}"
    return f"its pods are being deleted because of a fault: {recovery.cause}"


def waiting_words(gang: "GangRecord") -> str:
    """Why a gang waits again, if its attempt before ended because of a fault or for another gang; empty otherwise."""
    recovery = gang.recovery
    if recovery is None or recovery.scope != "job" or recovery.how == "mark" or recovery.attempt != gang.attempt - 1:
        return ""
    if recovery.kind in DISPLACED:
        return f"it waits again: {recovery.cause}"
    return f"it is placed again after a fault: {recovery.cause}"


def open_words(recovery: RecoveryStatus | None) -> str:
    """What a job that runs is recovering from, or which ranks it gives up for others; empty for neither."""
    given_up = recovery.given_up if recovery is not None else ()
    ranks = [rank for rank in recovery.open if rank not in given_up] if recovery is not None else []
    if recovery is None or not ranks:
        return given_up_words(recovery) if recovery is not None and given_up else ""
    if recovery.kind in DISPLACED:
        return recovery.cause
    what = "rank" if len(ranks) == 1 else "ranks"
    verb = "recovers" if len(ranks) == 1 else "recover"
    why = f"; {unplaced_words(recovery)}" if recovery.refusal else ""
    return f"{what} {ranges(ranks)} {verb} from a fault: {recovery.cause}{why}"


def given_up_words(recovery: RecoveryStatus) -> str:
    """Which ranks a job that runs gives up for others, or has given up."""
    has_left = set(recovery.given_up) <= set(recovery.unplaced)
    why = f": {recovery.cause}" if recovery.kind in DISPLACED and recovery.how != "place" else ""
    return f"{'gave' if has_left else 'gives'} up {numbered('rank', recovery.given_up)}{why}"


def unplaced_words(recovery: RecoveryStatus) -> str:
    """That new pods of a job wait for places, and why."""
    one = len(recovery.unplaced) == 1
    what = "the new pod of rank" if one else "the new pods of ranks"
    verb = "waits for a place" if one else "wait for places"
    return f"{what} {ranges(recovery.unplaced)} {verb}: {recovery.refusal or recovery.cause}"


def backup_words(backups: Sequence[BackupWaiting]) -> str:
    """That backup pods of a job wait for places, and why; empty if none does."""
    if not backups:
        return ""
    one = len(backups) == 1
    what = "the backup pod of rank" if one else "the backup pods of ranks"
    verb = "waits for a place" if one else "wait for places"
    why = next((f": {found.refusal}" for found in backups if found.refusal), "")
    return f"{what} {ranges([found.rank for found in backups])} {verb}{why}"


def recovery_words(recovery: RecoveryStatus, pods: int) -> str:
    """The newest recovery of a job of so many pods, as one line."""
    kept = pods - len(recovery.ranks)
    if recovery.how == "mark":
        return f"{recovery.cause}; {pluralize(len(recovery.ranks), 'pod')} marked, nothing deleted"
    if recovery.how == "backup":
        return f"{recovery.cause}; the pod of rank {ranges(recovery.ranks)} runs on until it is marked"
    if recovery.kind in DISPLACED and recovery.how == "grace" and recovery.scope != "job":
        return f"{recovery.cause}; {numbered('rank', recovery.ranks)} given up, {pluralize(kept, 'pod')} kept"
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
