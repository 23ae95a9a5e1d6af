"""Places that stay held while a job starts anew as a whole: which, and for how long.

Pods end one after the other, and a new pod may wait for the chip that took the place of a broken one. Until then nobody
else gets the places to which the healthy pods can return.
"""

from collections.abc import Mapping
from typing import Final

from berth.core.changes import JobKey
from berth.core.cluster.node_table import NodeTable
from berth.core.parity import differs
from berth.core.pod_shares import pods_at
from berth.core.state.holdings.holding import Holding
from berth.core.state.ledger import LedgerFold
from berth.schemas.facts import JobSeen
from berth.schemas.recovery import HeldPlaces

PLANNED_MS: Final = 60_000
"""How long places are held without the setting, if the job ended because places were reserved for it."""


def held_together_ms(fold: LedgerFold, holding: Holding, *, after_ms: int = -1) -> int:
    """Until when no rank of an attempt that ends for a fault is released without the others.

    Returns:
        The time; 0 for any other attempt, and where it is not after ``after_ms``.
    """
    hold_ms = _hold_ms(fold, holding)
    if holding.ending != "fault" or not hold_ms:
        return 0
    record = fold.gangs.get(holding.uid)
    last = record.recovery if record is not None else None
    until_ms = last.until_ms if last is not None and last.attempt == holding.attempt else 0
    until_ms = max(holding.step_ms, until_ms) + hold_ms
    return until_ms if until_ms > after_ms else 0


def held_places(fold: LedgerFold, table: NodeTable, holding: Holding, *, at_ms: int) -> HeldPlaces | None:
    """Places that stay held when an attempt that ended for a fault is released; None if there are none.

    These are the places whose node is there and whose chips are healthy; of a rank for which the step that ended the
    attempt reserved another place, that one.
    """
    hold_ms = _hold_ms(fold, holding)
    if not hold_ms or at_ms >= held_together_ms(fold, holding):
        return None
    gone = set(holding.gone)
    shares = pods_at(holding.placement, (rank for rank in range(holding.placement.pods()) if rank not in gone))
    placed = {rank for move in holding.moves if move.is_restart for rank in move.placed}
    shares |= {rank: share for rank, share in holding.reserved().items() if rank in placed}
    ranks = [
        rank for rank, share in sorted(shares.items()) if share.chips and _is_usable(table, share.node, share.mask)
    ]
    if not ranks:
        return None
    return HeldPlaces(holding.namespace, holding.name, holding.uid, holding.attempt, ranks, at_ms + hold_ms)


def no_longer_held(fold: LedgerFold, jobs: Mapping[JobKey, JobSeen], at_ms: int) -> list[HeldPlaces]:
    """Places that are held and must not be any more: their time is over, or their job waits no longer."""
    return [
        HeldPlaces(one.namespace, one.name, uid, one.attempt)
        for uid, one in sorted(fold.held.items())
        if at_ms >= one.until_ms or not _waits(fold, jobs.get((one.namespace, one.name)), uid)
    ]


def _hold_ms(fold: LedgerFold, holding: Holding) -> int:
    """How long places of an attempt are held that ends; 0 for not at all."""
    is_planned = any(move.is_restart for move in holding.moves)
    settings = fold.settings
    hold_ms = settings.hold_places_ms if differs(settings).held_places else 0
    return hold_ms or (PLANNED_MS if is_planned else 0)


def _waits(fold: LedgerFold, job: JobSeen | None, uid: str) -> bool:
    gang = fold.gangs.get(uid)
    is_wanted = job is not None and job.uid == uid and job.state == "accepted"
    return is_wanted and gang is not None and gang.phase == "waiting"


def _is_usable(table: NodeTable, node: str, mask: int) -> bool:
    row = table.row_of.get(node)
    return row is not None and bool(table.present[row]) and table.are_usable(row, mask)
