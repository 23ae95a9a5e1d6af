"""Steps of recoveries: what a record makes of a holding whose ranks leave, get a place, or are released.

Each function changes the holding that it is given.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from berth.core.errors import InvariantError
from berth.core.pod_shares import pods_of
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.moves import Move, merged_placement
from berth.schemas.placement import Placement
from berth.schemas.recovery import Recovery

RECORD_LOST: Final = "RecordLost"
"""Kind of a step that is known from its pods alone."""


def take_step(holding: Holding, recovery: Recovery) -> None:
    """Begin a step of a recovery; one of the whole job ends the attempt, and reserves new places for the next one.

    Ranks without a pod get their new places at once. Ranks that leave get theirs when they are released.

    Raises:
        InvariantError: The step does not follow from the holding.
    """
    _check(holding, recovery)
    holding.step = recovery.step
    if recovery.how == "mark":
        return
    if recovery.scope == "job":
        end_attempt(holding, "fault")
        _reserve_for_restart(holding, recovery)
        return
    ranks, gone = set(recovery.ranks), set(holding.gone)
    gives_only = recovery.how in {"place", "backup"}
    has_places = recovery.placement is not None
    left = [rank for rank in recovery.ranks if rank not in gone]
    move = Move(
        recovery.step,
        recovery.scope,
        recovery.how,
        recovery.ranks,
        recovery.until_ms,
        recovery.placement,
        leaving=[] if gives_only else left,
        placed=left if has_places else [],
        backups=recovery.backups,
        kind=recovery.kind,
        cause=recovery.cause,
        saves=recovery.saves,
    )
    is_backup = recovery.how == "backup"
    moves = [
        one if one.how == "backup" and not is_backup else one.without(ranks, placed_only=gives_only)
        for one in holding.moves
    ]
    holding.moves = [one for one in [*moves, move] if not one.is_over]
    podless = sorted(ranks & gone)
    if has_places:
        _give(holding, dict.fromkeys(podless, move))
    else:
        holding.unplaced = sorted({*holding.unplaced, *podless}.difference(holding.given_up))


def release_ranks(holding: Holding, ranks: Iterable[int], *, by_fault: bool) -> None:
    """Release ranks, each of which has an owner: their reserved places become their places; others are gone.

    Those that left, and all if they are released because of a fault, wait for a place if they have none, unless the
    attempt ends. Those that left for another gang are given up. What is reserved for the next attempt stays so.
    """
    freed = set(ranks)
    given_up = freed.intersection(holding.giving_up())
    waiting = freed if by_fault and not holding.ending else freed & holding.leaving().keys()
    places = {rank: move for move in holding.moves if not move.is_restart for rank in move.placed if rank in freed}
    moves = [move if move.is_restart else move.without(freed) for move in holding.moves]
    holding.moves = [move for move in moves if not move.is_over]
    holding.gone = sorted(freed.union(holding.gone))
    holding.unplaced = sorted(waiting.difference(given_up).union(holding.unplaced))
    holding.given_up = sorted(given_up.union(holding.given_up))
    _give(holding, places)


def release_backups(holding: Holding, ranks: Iterable[int]) -> None:
    """Free the places that are reserved for backup pods of ranks: these pods are gone.

    Raises:
        InvariantError: None is reserved for some of them.
    """
    freed = set(ranks)
    if not freed <= holding.backups().keys():
        raise InvariantError(
            "frees places of backup pods that it does not have", subject=f"gang {holding.uid} attempt {holding.attempt}"
        )
    moves = [move.without(freed, placed_only=True) if move.how == "backup" else move for move in holding.moves]
    holding.moves = [move for move in moves if not move.is_over]


def end_attempt(holding: Holding, reason: str) -> None:
    """End an attempt: its pods are deleted. Reserved places are free, and no rank waits for one.

    Those of backup pods are free with the attempt: these may run.
    """
    holding.ending = reason
    holding.moves = [move for move in holding.moves if move.how == "backup"]
    holding.unplaced = []
    holding.given_up = []


def _reserve_for_restart(holding: Holding, recovery: Recovery) -> None:
    """Reserve the places of a step of the whole job; those to which ranks return stay so after their release."""
    if recovery.placement is not None:
        ranks, places = recovery.ranks, recovery.placement
        move = Move(recovery.step, recovery.scope, recovery.how, ranks, placement=places, placed=ranks)
        holding.moves = [*holding.moves, move]


def _give(holding: Holding, places: dict[int, Move]) -> None:
    """Give ranks without an owner the places that moves have for them."""
    new: dict[int, tuple[Placement, int]] = {}
    for rank, move in places.items():
        if move.placement is not None:
            new[rank] = (move.placement, move.ranks.index(rank))
    if not new:
        return
    holding.placement = merged_placement(holding.placement, new)
    holding.gone = [rank for rank in holding.gone if rank not in new]
    holding.unplaced = [rank for rank in holding.unplaced if rank not in new]
    holding.given_up = [rank for rank in holding.given_up if rank not in new]
    holding.steps = dict(sorted({**holding.steps, **{rank: places[rank].step for rank in new}}.items()))
    taken = {rank: move.backup_of(rank) for rank, move in places.items() if move.how == "backup"}
    holding.switched = dict(sorted({**holding.switched, **taken}.items()))


def _check(holding: Holding, recovery: Recovery) -> None:
    """Check that a step follows from its holding.

    Raises:
        InvariantError: The step does not follow from its holding.
    """
    subject = f"gang {holding.uid} attempt {holding.attempt}"
    if holding.ending or holding.foreign:
        raise InvariantError(f"recovers while it {'ends' if holding.ending else 'is not its own'}", subject=subject)
    if recovery.step <= holding.step:  # between them may be others whose records are lost
        raise InvariantError(f"takes step {recovery.step} after step {holding.step}", subject=subject)
    if recovery.ranks[-1] >= holding.placement.pods():
        raise InvariantError("recovers ranks that it does not have", subject=subject)
    if recovery.how == "place":
        known = {*holding.gone, *holding.leaving()}
        if recovery.placement is None or not known.issuperset(recovery.ranks):
            raise InvariantError("gets places for ranks that neither leave nor are gone", subject=subject)
    _check_backups(holding, recovery, subject)
    if recovery.placement is not None:
        _check_places(holding, recovery, recovery.placement, subject)


def _check_backups(holding: Holding, recovery: Recovery, subject: str) -> None:
    """Check that a backup pod gets a place beside one that stays, and that no rank with one gets another place.

    The backup pod itself may get another one in place of that which it has.

    Raises:
        InvariantError: One of these is not so.
    """
    ranks = set(recovery.ranks)
    stay = ranks.isdisjoint({*holding.gone, *holding.leaving()})
    if recovery.how == "backup" and (recovery.placement is None or not stay):
        raise InvariantError("has no place for backup pods of ranks that stay", subject=subject)
    backups = holding.backups()
    own = {
        rank for rank, uid in zip(recovery.ranks, recovery.backups, strict=False) if _backup_of(backups, rank) == uid
    }
    if recovery.placement is not None and not (ranks - own).isdisjoint(backups):
        raise InvariantError("gets places for ranks whose backup pods have some", subject=subject)


def _backup_of(backups: Mapping[int, Move], rank: int) -> str:
    """Backup pod (uid) of a rank that has a place; empty for none."""
    return backups[rank].backup_of(rank) if rank in backups else ""


def _check_places(holding: Holding, recovery: Recovery, placement: Placement, subject: str) -> None:
    base, places = pods_of(holding.placement), pods_of(placement)
    if (placement.resource, placement.share) != (holding.placement.resource, holding.placement.share):
        raise InvariantError("gets places of another resource or quota", subject=subject)
    for rank, place in zip(recovery.ranks, places, strict=True):
        pod = base[rank]
        # What is known from pods alone lacks the chips that others own; a later step gives all that the rank asks for.
        is_smaller = len(place.chips) < len(pod.chips) and recovery.kind != RECORD_LOST
        if is_smaller or (place.cpu_milli, place.memory_mib) != (pod.cpu_milli, pod.memory_mib):
            raise InvariantError(f"gets a place of another size for rank {rank}", subject=subject)
