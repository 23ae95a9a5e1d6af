"""Kept places: those of a gang that waits, which nobody else gets, and for how long.

While a job starts anew as a whole, its pods end one after the other, and a new pod may wait for the chip that took the
place of a broken one. Until then nobody else gets the places to which the healthy pods can return.

A gang for which others leave is placed on the place that is reserved for it once they have left. It loses it when it
waits no more, when a node of the place fails or takes no new work, when a chip of it fails, or when the others have not
left in time. Then what is free of the place is free for all, and the gang is tried again. Where pods are never deleted
at once, the place is reserved once more first.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from berth.core.changes import JobKey
from berth.core.chips.picking import ids_of
from berth.core.cluster.node_table import NodeTable
from berth.core.parity import differs
from berth.core.pod_shares import PodShare, pods_at, pods_of
from berth.core.state.due import Due
from berth.core.state.holdings.held_places import Held, leaves
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.pod_phases import ENDED, rows_of
from berth.core.state.ledger import LedgerFold
from berth.core.text import pluralize
from berth.schemas.facts import JobSeen, NodeHealth, PodsSeen
from berth.schemas.ledger import Verdict
from berth.schemas.recovery import DISPLACED, Awaited, HeldPlaces, Reservation
from berth.schemas.refusal import RULE, Refusal

_PERCENT: Final = 100
PREEMPTION: Final = "preemption"
"""Name of the rule."""
PLANNED_MS: Final = 60_000
"""How long places are held without the setting, if the job ended because places were reserved for it."""


def held_together_ms(fold: LedgerFold, holding: Holding, *, after_ms: int = -1) -> int:
    """Until when no rank of an attempt that ends for a fault is released without the others.

    Returns:
        The time; 0 for any other attempt, and where it is not after ``after_ms``.
    """
    hold_ms = hold_ms_of(fold, holding)
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
    hold_ms = hold_ms_of(fold, holding)
    if not hold_ms or at_ms >= held_together_ms(fold, holding):
        return None
    gone = set(holding.gone)
    shares = pods_at(holding.placement, (rank for rank in range(holding.placement.pods()) if rank not in gone))
    placed = {rank for move in holding.moves if move.is_restart for rank in move.placed}
    shares |= {rank: share for rank, share in holding.reserved().items() if rank in placed}
    for_others = _promised(fold, holding)
    ranks = [
        rank
        for rank, share in sorted(shares.items())
        if share.chips and is_usable(table, share.node, share.mask) and not share.mask & for_others.get(share.node, 0)
    ]
    if not ranks:
        return None
    return HeldPlaces(holding.namespace, holding.name, holding.uid, holding.attempt, ranks, at_ms + hold_ms)


def _promised(fold: LedgerFold, holding: Holding) -> dict[str, int]:
    """Chips of an attempt that others get once it has left (masks), by node."""
    found: dict[str, int] = {}
    for held in fold.held.values():
        if held.is_reserved and holding.key in held.awaited:
            for node, mask in held.awaited_chips():
                found[node] = found.get(node, 0) | mask
    return found


def is_displaced(fold: LedgerFold, holding: Holding) -> bool:
    """Whether an attempt ends for another gang: its places are for that one."""
    record = fold.gangs.get(holding.uid)
    last = record.recovery if record is not None else None
    if not holding.ending or last is None or last.attempt != holding.attempt:
        return False
    return last.scope == "job" and last.kind in DISPLACED


def hold_ms_of(fold: LedgerFold, holding: Holding) -> int:
    """How long places of an attempt are held that ends; 0 for not at all."""
    if is_displaced(fold, holding):
        return 0
    is_planned = any(move.is_restart for move in holding.moves)
    settings = fold.settings
    hold_ms = settings.hold_places_ms if differs(settings).held_places else 0
    return hold_ms or (PLANNED_MS if is_planned else 0)


def no_longer_held(fold: LedgerFold, jobs: Mapping[JobKey, JobSeen], at_ms: int) -> list[HeldPlaces]:
    """Places that are held and must not be any more: their time is over, or their job waits no longer."""
    return [
        HeldPlaces(one.namespace, one.name, uid, one.attempt)
        for uid, one in sorted(fold.held.items())
        if not one.is_reserved and (at_ms >= one.until_ms or not waits(fold, jobs.get((one.namespace, one.name)), uid))
    ]


def waits(fold: LedgerFold, job: JobSeen | None, uid: str) -> bool:
    """Whether a job waits, with a uid."""
    gang = fold.gangs.get(uid)
    is_wanted = job is not None and job.uid == uid and job.state == "accepted"
    return is_wanted and gang is not None and gang.phase == "waiting"


def is_usable(table: NodeTable, node: str, mask: int) -> bool:
    """Whether a node is there, and chips of it are healthy."""
    row = table.row_of.get(node)
    return row is not None and bool(table.present[row]) and table.are_usable(row, mask)


def add_due_reservations(
    fold: LedgerFold,
    jobs: Mapping[JobKey, JobSeen],
    table: NodeTable,
    found: Due,
    *,
    seen: Callable[[Holding], PodsSeen | None],
    at_ms: int,
) -> None:
    """Add the reservations that end, or go on for longer, to what is due.

    Args:
        fold: The ledger.
        jobs: The jobs.
        table: The nodes.
        found: What is due; entries are added.
        seen: Pods of an attempt, as the cluster shows them.
        at_ms: The moment.
    """
    given = {(pod.node, chip) for placement in found.given for pod in pods_of(placement) for chip in pod.chips}
    for uid, held in sorted(fold.held.items()):
        if not held.is_reserved:
            continue
        gang = fold.gangs.get(uid)
        does_wait = waits(fold, jobs.get((held.namespace, held.name)), uid)
        is_sound = _is_sound(table, held, at_ms) and _is_kept(fold, held, given)
        if not does_wait or gang is None or gang.attempt != held.attempt or not is_sound:
            found.held.append(HeldPlaces(held.namespace, held.name, uid, held.attempt))
        elif at_ms >= held.until_ms:
            found.held.append(HeldPlaces(held.namespace, held.name, uid, held.attempt))
            may_prolong = not (fold.settings.preempt_force or held.is_prolonged)
            if held.awaits and may_prolong and all(leaves(one, fold.holdings) for one in held.awaits):
                found.reserved.append(_prolonged(held, at_ms))
                found.refused.append(_waits_on(fold, held))
            elif held.awaits:
                found.refused.append(_stays(fold, held, seen, at_ms))


def _is_sound(table: NodeTable, held: Held, at_ms: int) -> bool:
    """Whether every node of a place takes pods, and its chips are healthy."""
    return all(
        is_usable(table, node, mask) and _takes_work(table, table.row_of[node], at_ms)
        for node, mask in {(share.node, share.mask): None for share in held.places().values()}
    )


def _is_kept(fold: LedgerFold, held: Held, given: Container[tuple[str, int]]) -> bool:
    """Whether chips that others leave will have room for the gang: who else shares them leaves it enough.

    Args:
        fold: The ledger.
        held: The place.
        given: Chips (by node) that pods get in the same record which run already.
    """
    share, ranks = held.placement.share, Counter(_chips_of(pods_at(held.placement, held.lacks).values()))
    for node, mask in held.awaited_chips():
        for chip in ids_of(mask):
            if (node, chip) in given:
                return False
            used = fold.owners.shared.get(node, {}).get(chip)
            own = [one for one in held.awaits for _ in range(_shares(fold, one, node, chip))]
            if used is None or len(own) == used.pods:
                continue
            quotas = (fold.holdings[one.uid, one.attempt].placement.share for one in own)
            others = used.aicore - sum(quota.aicore for quota in quotas if quota is not None)
            is_alike = share is not None and share.policy == used.policy
            if not is_alike or share is None or others + share.aicore * ranks[node, chip] > _PERCENT:
                return False
    return True


def _shares(fold: LedgerFold, one: Awaited, node: str, chip: int) -> int:
    """Pods of an attempt that leaves, or of ranks that it gives up, which share a chip."""
    holding = fold.holdings[one.uid, one.attempt]
    if holding.placement.share is None:
        return 0
    pods = fold.pods_of(holding)
    left = [pods[rank] for rank in one.ranks] if one.ranks else pods
    return sum(found == (node, chip) for found in _chips_of(left))


def _chips_of(pods: Iterable[PodShare]) -> Iterator[tuple[str, int]]:
    """Chips of pods, with their nodes."""
    return ((pod.node, chip) for pod in pods for chip in pod.chips)


def _takes_work(table: NodeTable, row: int, at_ms: int) -> bool:
    key = table.classes[table.node_class.item(row)]
    is_drained = 0 < table.drained_ms.get(row, 0) <= at_ms
    return key.ready and not key.cordoned and not is_drained and table.level.item(row) < NodeHealth.NO_NEW_WORK


def _prolonged(held: Held, at_ms: int) -> Reservation:
    """The same place for as long once more."""
    until_ms = at_ms + held.until_ms - held.since_ms
    return Reservation(
        *(held.namespace, held.name, held.uid, held.attempt, held.placement, held.awaits, until_ms, held.queue),
        is_prolonged=True,
    )


def _waits_on(fold: LedgerFold, held: Held) -> Verdict:
    """Refusal of a gang whose place is reserved once more."""
    words = "{others} did not end in time; its place is reserved once more for as long"
    return Verdict(held.namespace, held.name, held.uid, held.attempt, refusal=refused_for(fold, held.awaits, words))


def _stays(fold: LedgerFold, held: Held, seen: Callable[[Holding], PodsSeen | None], at_ms: int) -> Verdict:
    """Refusal of a gang whose place others have not left in time, with the first pod that is still there."""
    first, others = held.awaits[0], len(held.awaits) - 1
    holding = fold.holdings[first.uid, first.attempt]
    rank = _first_rank(holding, first.ranks, seen(holding))
    record = fold.gangs.get(first.uid)
    again_ms = at_ms + fold.settings.preempt_backoff_s * 1_000
    more = f", nor have pods of {pluralize(others, 'other job')}" if others else ""
    refusal = Refusal(
        RULE,
        rule=PREEMPTION,
        ahead=f"{holding.namespace}/{holding.name}",
        template=(
            f"the pod of rank {{rank}} of {{ahead}} on {{node}} was told to end at {{since_ms}} and has not{more}: the"
            " place that was reserved for this job is given up, and it is tried again at {again_ms}"
        ),
        retry_ms=again_ms,
        numbers={
            "rank": rank,
            "since_ms": holding.step_ms or (record.at_ms if record is not None else holding.at_ms),
            "again_ms": again_ms,
        },
        node=holding.placement.names()[rank],
    )
    return Verdict(held.namespace, held.name, held.uid, held.attempt, refusal=refusal)


def _first_rank(holding: Holding, ranks: Sequence[int], seen: PodsSeen | None) -> int:
    """The first of some ranks, or of all, that holds something, and whose pod has not ended if one is seen."""
    pods = ranks or range(holding.placement.pods())
    left = [rank for rank in pods if rank not in holding.gone]
    phases = dict(rows_of(holding, seen)) if seen is not None else {}
    there = [rank for rank in left if rank in phases and phases[rank] not in ENDED]
    return (there or left or [*pods])[0]


def refused_for(fold: LedgerFold, awaited: Sequence[Awaited], words: str, *, retry_ms: int = 0) -> Refusal:
    """Refusal of a gang because of attempts that hold its place.

    Args:
        fold: The ledger.
        awaited: The attempts, at least one; the first is named, so far as the reader may know it.
        words: The sentence, with ``{others}`` in place of them.
        retry_ms: When the gang is tried again; 0: it is not.
    """
    first, others = awaited[0], len(awaited) - 1
    holding = fold.holdings[first.uid, first.attempt]
    more = f" and {pluralize(others, 'other job')}" if others else ""
    return Refusal(
        RULE,
        rule=PREEMPTION,
        ahead=f"{holding.namespace}/{holding.name}",
        template=words.replace("{others}", f"{{ahead}}{more}"),
        retry_ms=retry_ms,
    )
