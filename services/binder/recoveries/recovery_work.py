"""What a recovery asks of the binder: pods that leave, and pods that are marked. Pure.

A pod leaves if the ledger says so of its rank and it was bound before the step. An ended pod of a rank that was
released at once is deleted too, so that its controller makes another one.

See decision recovery-execution.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.schemas.ledger import WITHDRAWN
from berth.schemas.recovery import DRAIN
from berth.schemas.units import UnixMs
from berth.services.binder.cluster import Leave, Manner
from berth.services.binder.work import Attempt, is_eviction

_NO_CAUSE: Final = "its job recovers from a fault"
_INFERRED: Final = frozenset({WITHDRAWN, "vanished"})
"""Why attempts end whose pods nobody wants to end: what is left of them runs on."""


class Marks(NamedTuple):
    """Ranks whose pods are marked, and the kind of their fault."""

    ranks: Sequence[int]
    kind: str


def leaves_of(attempt: Attempt, now_ms: UnixMs) -> dict[int, Leave]:
    """Pods that are to be deleted, by rank: those of steps that were not taken up, and those whose time is over.

    Args:
        attempt: The attempt; it may run.
        now_ms: The time.
    """
    holding = attempt.holding
    reason = attempt.recovery.cause if attempt.recovery is not None else _NO_CAUSE
    nodes = holding.placement.names()
    late = attempt.overdue(now_ms)
    found: dict[int, Leave] = {}
    if holding.step > attempt.taken_up:
        for rank in holding.unplaced:
            found[rank] = Leave(holding.step + 1, "", at_once=True, reason=reason)
        for rank in attempt.ranks():
            if holding.step_of(rank) > attempt.taken_up:
                found[rank] = Leave(holding.step_of(rank), "", at_once=True, reason=reason)
    unevicted = attempt.unevicted()
    backups = holding.backups()
    for move in holding.moves:
        for rank in move.leaving:
            if move.step > attempt.taken_up or rank in late or rank in unevicted:
                at_once = move.how != "grace" or 0 < move.until_ms <= now_ms
                step = backups[rank].step if rank in backups else move.step  # the backup pod stays
                why = move.cause or reason
                found[rank] = Leave(step, nodes[rank], at_once=at_once, reason=why, evicts=is_eviction(move))
    return found


def marks_of(attempt: Attempt) -> Marks | None:
    """Pods that are to be marked; None for none."""
    found = attempt.recovery
    if found is None or found.how != "mark" or found.step <= attempt.taken_up:
        return None
    return Marks(found.faulty or found.ranks, found.kind)


def manner_of_end(attempt: Attempt, now_ms: UnixMs) -> Manner:
    """How the pods of an attempt that ends are deleted."""
    found = attempt.recovery
    if attempt.evict_reason in _INFERRED:
        return "none"
    if attempt.evict_reason != "fault" or found is None:
        return "plain"
    is_late = 0 < found.until_ms <= now_ms
    if found.kind == DRAIN:
        return "evict-late" if is_late else "evict"
    return "grace" if found.how == "grace" and not is_late else "force"
