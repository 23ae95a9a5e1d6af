"""What a record of the ledger does to the queue: gangs leave, come back, sleep, or are held for a reservation."""

from berth.core.changes import Changes, JobKey
from berth.core.gangs import WaitKey
from berth.core.scheduling.drained_gangs import GangTerms
from berth.core.scheduling.queue import Queue
from berth.core.scheduling.rules.port import AfterRecord, EpochRules
from berth.core.scheduling.rules.preemption import LATER_MS
from berth.core.scheduling.turn import Opening
from berth.core.scheduling.wake_rules import NEVER, is_helped_by_any_change, may_displace_later
from berth.core.state.cell import State
from berth.core.state.internal_errors import RETRY_MS
from berth.core.state.ledger import Folded, GangRecord
from berth.schemas.ledger import Settings
from berth.schemas.refusal import INTERNAL, Refusal


def take_effect(state: State, queue: Queue, rules: EpochRules, folded: Folded, opening: Opening | None) -> Changes:
    """Bring a queue in line with a record.

    Args:
        state: The cell, after the record.
        queue: The queue.
        rules: The rules of the epoch.
        folded: What the record changed.
        opening: The turn of that round, if it was opened here.

    Returns:
        What that changes for later turns, apart from what the record changed in the columns.
    """
    unblocked = False
    settings = state.fold.settings
    again: dict[JobKey, None] = {}
    terms = rules.terms(state, state.fold.at_ms)
    is_uneven = not queue.is_strict and not terms.are_alike
    uneven: dict[WaitKey, list[GangRecord]] = {}
    for gang in folded.gangs:
        if gang.phase != "waiting":
            unblocked |= queue.remove(gang.uid)
            again.update(_freed_uid(state, gang))
        elif gang.refusal is None or gang.refusal.retry_ms:
            again[gang.namespace, gang.name] = None  # it goes back to the queue, when its pause is over
        elif (rule := rules.by_name.get(gang.refusal.rule)) is not None and rule.wakes(state, gang) != ():
            queue.seen(gang.uid)
        elif is_uneven and (wait_key := queue.class_of(gang.uid)) is not None:
            uneven.setdefault(wait_key, []).append(gang)
        else:
            unblocked |= _refused(queue, rules, gang, gang.refusal, settings)
    for wait_key, refused in uneven.items():
        unblocked |= _refused_for_now(queue, rules, terms, wait_key, refused, settings)
    kept = {held.uid for held in folded.held}
    again.update({(one.namespace, one.name): None for one in folded.unheld if one.is_reserved and one.uid not in kept})
    _hold(AfterRecord(state, queue, terms, folded.silent), rules, folded, opening)
    _hasten(state, queue, folded)
    has_left = folded.given_back or folded.freed or folded.moved or folded.unheld
    # Reservations follow from which jobs run, and until when.
    if has_left or folded.taken or folded.ending:
        unblocked |= queue.is_holding
    # Jobs that ended change how long similar ones are expected to run: they may end before a drain now.
    gained = state.table.planned_rows(state.fold.at_ms) if folded.given_back and not terms.are_alike else []
    woken = rules.woken(state, [*folded.given_back, *(holding for holding, _ in folded.freed)])
    return Changes(dict.fromkeys(gained), queue_unblocked=unblocked, jobs_changed=again, woken=woken)


def _refused(queue: Queue, rules: EpochRules, gang: GangRecord, refusal: Refusal, settings: Settings) -> bool:
    """Put the class of a refused gang to sleep, unless a rule refused the gang alone.

    Returns:
        Whether that may help gangs that are held: its reservation may take the place of the one because of which they
        are.
    """
    wait_key = queue.class_of(gang.uid)
    if wait_key is None:
        return False
    if refusal.rule:
        queued = queue.gang(gang.uid)
        may_reserve = queued is not None and rules.may_reserve(queued, behind=True)
        has_reserved = may_reserve and queue.is_fresh(gang.uid)
    else:
        has_reserved = refusal.start_ms > 0
        queue.refused(
            gang.uid,
            retry_at_ms=_retry_at_ms(gang, refusal, settings),
            never=refusal.code in NEVER or refusal.yields,
            by_any_change=is_helped_by_any_change(wait_key.request_class, refusal),
        )
    return has_reserved and queue.is_holding


def _refused_for_now(
    queue: Queue,
    rules: EpochRules,
    terms: GangTerms,
    wait_key: WaitKey,
    refused: list[GangRecord],
    settings: Settings,
) -> bool:
    """Put a class to sleep if none of its gangs may take more nodes than a refused one; else hold those that may not.

    A drain is planned: gangs that are expected to end earlier may take more nodes. Returns the same as
    :func:`_refused`.
    """
    last_ms = {gang.uid: terms.last_ms(gang) for gang in queue.of_class(wait_key)}
    least_ms = min(last_ms.values())
    longer: dict[str, GangRecord] = {}
    unblocked = False
    for gang in refused:
        if gang.refusal is not None and last_ms[gang.uid] == least_ms:
            unblocked |= _refused(queue, rules, gang, gang.refusal, settings)
        else:
            longer[gang.uid] = gang
    first_ms = min((last_ms[uid] for uid in longer), default=0)
    moments = (_retry_at_ms(gang, gang.refusal, settings) for gang in longer.values() if gang.refusal is not None)
    retry_at_ms = min(filter(None, moments), default=0)
    for uid in sorted(last_ms) if longer else ():
        if uid in longer or (last_ms[uid] >= first_ms and not queue.is_fresh(uid)):
            queue.hold(uid, retry_at_ms=retry_at_ms)
    return unblocked


def _retry_at_ms(gang: GangRecord, refusal: Refusal, settings: Settings) -> int:
    """When the class of a refused gang is tried although nothing got better; 0 for never."""
    if refusal.missing_shards:
        return gang.at_ms + settings.shard_retry_ms
    if refusal.code == INTERNAL:
        return gang.at_ms + RETRY_MS
    if may_displace_later(refusal, settings):
        return gang.at_ms + LATER_MS
    return refusal.retry_ms


def _freed_uid(state: State, gang: GangRecord) -> dict[JobKey, None]:
    """The job that has the uid of a gang by now, if the gang is over and no longer known: that job waits."""
    key = state.name_of.get(gang.uid)
    fold = state.fold
    if key is not None and gang.is_over and gang.uid not in fold.gangs:
        return {key: None}
    return {}


def _hasten(state: State, queue: Queue, folded: Folded) -> None:
    """Try classes at once that may take over a place which the record reserves for a gang of lower priority.

    That gang ends others for it, and these may be such as end for no gang of the class.
    """
    reserved = (queue.gang(held.uid) for held in folded.held if held.is_reserved)
    lowest = min((gang.priority for gang in reserved if gang is not None), default=None)
    if lowest is None:
        return
    asleep = set(queue.sleeping())
    for first in queue.representatives(one_each=True):
        key = first.wait_key
        if first.priority > lowest and key in asleep and not queue.sleep_of(key).never:
            queue.restore_sleep(key, queue.sleep_of(key)._replace(retry_at_ms=state.fold.at_ms))


def _hold(after: AfterRecord, rules: EpochRules, folded: Folded, opening: Opening | None) -> None:
    """Hold the gangs that rules keep from starting, also those of which the record has nothing new."""
    fold = after.state.fold
    if not rules.may_hold:
        return
    kept: dict[str, GangRecord] = {gang.uid: gang for gang in folded.gangs}
    if opening is not None and opening.number == fold.rounds and not folded.void:
        silent = (fold.gangs.get(gang.uid) for gang in opening.gangs)
        kept |= {gang.uid: gang for gang in silent if gang is not None}
    due_ms: dict[str, int] = {}
    for gang in kept.values():
        refusal = gang.refusal if gang.phase == "waiting" else None
        rule = rules.by_name.get(refusal.rule) if refusal is not None else None
        if refusal is None or rule is None or (keys := rule.wakes(after.state, gang)) is None:
            continue
        if rule.name not in due_ms:
            due_ms[rule.name] = rule.due_ms(after)
        start_ms = refusal.start_ms if refusal.start_ms > fold.at_ms else 0
        retry_at_ms = min(filter(None, (start_ms, due_ms[rule.name])), default=0)
        after.queue.hold(gang.uid, retry_at_ms=retry_at_ms, keys=keys)
