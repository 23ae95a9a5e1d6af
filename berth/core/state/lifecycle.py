"""Life cycle of placements after the decision: evictions, releases, adoptions, and attempts that are found again.

Longer than 400 lines because all that may be due for a gang is asked in one order, most of it in a few lines.

A placement ends when its pods have ended. It is evicted when its job was cancelled or its pods could not be bound.

A ledger that was restored lacks its last records. The pods that these placed run on: while their job waits, its attempt
gets the places where its pods are. Chips of them that have another owner follow when that gives them back.

Adopted pods keep the states in their annotations of leaf switches, blocks and their inference service. So the states of
leaves, and the jobs of one service, are known even where the ledger does not contain them.

Source: docs/reference/switches.md, "Rebuilding leaf states"; docs/reference/superpods.md, "After a fault of blocks" and
"Inference services".
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import guarded
from berth.core.pod_shares import pods_of
from berth.core.requests.gangs import charged_queue
from berth.core.requests.job_validation import SHARE_AICORE
from berth.core.state.admission import end_of_cancelled
from berth.core.state.cell import State
from berth.core.state.due import Due
from berth.core.state.found_pods import (
    asked_by,
    claims_of,
    corrections_of,
    left_before,
    note_short,
    placement_of_pods,
    properties_of,
    restart_of,
    step_of_pods,
    with_lost_ranks,
)
from berth.core.state.holdings.holding import Holding
from berth.core.state.holdings.leaving import failed_again, left_backups, left_ranks, left_unbound, vanished_ms
from berth.core.state.holdings.mounted_chips import Claim, settle_all
from berth.core.state.holdings.pod_phases import ENDED, next_step, rows_of
from berth.core.state.internal_errors import SetAside
from berth.core.state.kept_places import (
    add_due_reservations,
    held_places,
    held_together_ms,
    is_displaced,
    no_longer_held,
)
from berth.schemas.columns import unpack
from berth.schemas.facts import OutcomeSeen, PodPhase, PodsSeen
from berth.schemas.intake import Task
from berth.schemas.ledger import Adoption, Eviction, Release, ReleaseReason, Verdict
from berth.schemas.placement import Run, Share

_UNDONE: Final[dict[str, ReleaseReason]] = {"bind-failed": "bind-failed", "fault": "fault"}
"""Reason of a release by why the attempt ends, where that counts more than how its pods ended."""
_INDEX_BYTES: Final = 2
_SIZE_MAX: Final = 20_000
"""Most adopted pods, evictions and releases of one record; a single adoption may have more."""


class Examination(NamedTuple):
    """Result of an examination of gangs."""

    due: Due
    settled: list[str]
    """Gangs (uid) for which nothing is due; they are not examined again until a fact or record changes them."""
    set_aside: list[SetAside]
    """Gangs (uid) that could not be examined because of an error; they are unchanged, and among the settled."""
    is_cut: bool
    """Whether gangs were left for the next record; there may be pods to adopt among them."""


def examine(state: State, gangs: Iterable[str], *, at_ms: int = 0) -> Examination:
    """Find the entries that are due for gangs.

    Entries beyond the size of a record are left for the next one.

    Args:
        state: The cell.
        gangs: Gangs (uid) with a new fact or record that may require an entry.
        at_ms: The moment.
    """
    found = Due(held=no_longer_held(state.fold, state.jobs, at_ms))
    found.settled = settle_all(_claims(state, {*gangs, *state.short}), state.held, state.fold.owners)
    found.corrections = corrections_of(found.settled.chips)
    corrected = {one.uid for one in found.corrections}  # what else is due for them is for the next record
    settled: list[str] = []
    set_aside: list[SetAside] = []
    size = 0
    is_cut = False
    for uid in sorted(gangs):
        if size >= _SIZE_MAX:
            is_cut = True
            break
        adopted = len(found.adoptions)
        if uid in corrected:
            size += 1
        elif not _examined(state, uid, found, set_aside, at_ms):
            settled.append(uid)
        elif len(found.adoptions) > adopted:
            size += found.adoptions[-1].placement.pods()
        else:
            size += 1
    add_due_reservations(state.fold, state.jobs, state.table, found, seen=state.pods_seen, at_ms=at_ms)
    own = {uid: None for uid in state.short if uid in state.name_of}  # whether they were examined now or not
    others = {claim.uid for claim in found.settled.short if not claim.is_part}
    found.short = sorted(own.keys() - others - corrected)
    return Examination(found, settled, set_aside, is_cut)


def _claims(state: State, uids: Iterable[str]) -> list[tuple[Claim, Share | None]]:
    """Ranks of gangs (uid) whose pods name chips that they do not own, and their quotas of one."""
    found: list[tuple[Claim, Share | None]] = []
    for uid in uids:
        gang = state.fold.gangs.get(uid)
        holding = state.fold.holdings.get((uid, gang.attempt if gang is not None else 0))
        seen = state.pods_seen(holding) if holding is not None else None
        if holding is not None and seen is not None:
            claims = claims_of(holding, state.owned(holding.key), seen)
            found += [(claim, holding.placement.share) for claim in claims if _is_asked(state, holding, claim)]
    return found


def _examined(state: State, uid: str, found: Due, set_aside: list[SetAside], at_ms: int) -> bool:
    """As :func:`_examine`; on an error the gang is unchanged and set aside, and the others are examined."""
    evictions, releases, adoptions = len(found.evictions), len(found.releases), len(found.adoptions)
    held, regained, outlived = len(found.held), len(found.regained), len(found.outlived)
    recoveries = len(found.recoveries)

    def left_out(error: Exception) -> bool:
        del found.evictions[evictions:], found.releases[releases:], found.adoptions[adoptions:], found.held[held:]
        del found.regained[regained:], found.outlived[outlived:], found.recoveries[recoveries:]
        set_aside.append(SetAside(uid, error))
        return False

    return guarded(lambda: _examine(state, uid, found, at_ms), left_out)


def _examine(state: State, uid: str, found: Due, at_ms: int) -> bool:
    """Whether something is due for a gang."""
    state.short.pop(uid, None)  # noted again where it still holds
    is_short = any(claim.uid == uid for claim in found.settled.short)
    if is_short:
        state.short[uid] = None
    gang = state.fold.gangs.get(uid)
    holding = state.fold.holdings.get((uid, gang.attempt if gang is not None else 0))
    if holding is None:
        return (gang is None and _adopt(state, uid, found)) or _regain(state, uid, found)
    seen = state.pods_seen(holding)
    outcome = state.outcome_of(holding)
    if (
        _is_over(state, holding, seen, outcome, found, at_ms)
        or _retake_step(state, holding, seen, found, at_ms)
        or _restart_found(state, holding, seen, found, at_ms)
    ):
        return True
    if at_ms < held_together_ms(state.fold, holding) and not _is_cancelled(state, holding):
        return False
    part: Release | None = None
    if not is_displaced(state.fold, holding):  # others wait for all of its places
        ended = left_ranks(holding, seen, outcome) or _part_ended(holding, seen, outcome)
        part = ended or _lost_backups(state, holding)
    if part is not None:
        found.releases.append(part)
        return True
    if holding.foreign:
        return seen is not None and not is_short and _adopt_anew(state, holding, seen, found)
    return not holding.ending and _must_end(state, holding, seen, outcome, found, at_ms)


def _is_over(
    state: State, holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None, found: Due, at_ms: int
) -> bool:
    """Whether an attempt has ended, and is released."""
    uid = holding.uid
    if seen is None and _is_outlived(state, holding):
        found.releases.append(Release(uid, holding.attempt, "vanished", again=True))
        found.outlived.append(uid)
        return True
    if not _has_ended(holding, seen, outcome):
        return False
    reason = _release_reason(state, holding, seen)
    again = reason == "fault" or (reason == "bind-failed" and _may_try_again(state, holding, at_ms))
    found.releases.append(Release(uid, holding.attempt, reason, again))
    held = held_places(state.fold, state.table, holding, at_ms=at_ms) if reason == "fault" else None
    found.held += [held] if held is not None else []
    return True


def _lost_backups(state: State, holding: Holding) -> Release | None:
    """Release of the places of backup pods that are gone; an attempt that ends keeps them until all pods are gone."""
    if not holding.moves or holding.ending:
        return None
    return left_backups(holding, state.faults.backups((holding.namespace, holding.name), holding.uid))


def _may_try_again(state: State, holding: Holding, at_ms: int) -> bool:
    """Whether an attempt that could not be bound is followed by another one.

    One that failed for a claim leaves a node or a volume out of those that follow, so it does not count as a try. Nor
    does one that a fault has ended, or that was given back. Those that fail within a minute count once.
    """
    gang, settings = state.fold.gangs.get(holding.uid), state.fold.settings
    others = gang.restarts + gang.given_back if gang is not None else 0
    by_claims = state.constraints.claims.failures_of(holding)
    is_early = gang is not None and gang.failures_at(at_ms) < settings.attempts_max
    return is_early or holding.attempt < settings.attempts_max + by_claims + others


def _must_end(
    state: State, holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None, found: Due, at_ms: int
) -> bool:
    """Whether an attempt that may run has to end: its pods could not be bound, or its job was cancelled."""
    uid = holding.uid
    if outcome is not None and outcome.state == "failed" and not failed_again(holding, outcome):
        if outcome.bound or seen is not None:
            found.evictions.append(Eviction(uid, holding.attempt, "bind-failed"))
        else:
            why: ReleaseReason = "given-back" if outcome.given_back else "bind-failed"
            reason = _release_reason(state, holding, None, otherwise=why)
            again = reason == "given-back" or (reason == "bind-failed" and _may_try_again(state, holding, at_ms))
            found.releases.append(Release(uid, holding.attempt, reason, again))
        return True
    if _is_cancelled(state, holding):
        job = state.jobs[holding.namespace, holding.name]
        found.evictions.append(Eviction(uid, holding.attempt, end_of_cancelled(job, uid)))
        return True
    due_ms = vanished_ms(holding, seen, outcome)
    if due_ms is not None and at_ms >= due_ms:
        found.evictions.append(Eviction(uid, holding.attempt, "vanished"))
        return True
    return False


def _has_ended(holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None) -> bool:
    """Whether no pod of the attempt is left; pods that were not made yet count as left.

    Pods of ranks that the attempt does not have count for nothing.

    Where no pod is seen, others may be on their way: the binder binds them in turn, and facts follow what it does. Only
    when it has ended the attempt will none come any more, and facts speak of all that are left.

    Args:
        holding: The attempt.
        seen: Its pods.
        outcome: What the binder achieved.
    """
    is_evicted = outcome is not None and outcome.state == "evicted"
    if seen is None:
        return is_evicted
    if any(phase not in ENDED for phase in seen.phase):
        return False
    if is_evicted or (holding.foreign and not seen.phase):
        return True
    over = {rank for rank, _ in rows_of(holding, seen)} | set(holding.gone) | left_unbound(holding, outcome)
    over -= {*holding.leaving(), *holding.unplaced, *holding.backups()}
    pods = holding.placement.pods()
    return sum(1 for rank in over if rank < pods) >= pods


def _part_ended(holding: Holding, seen: PodsSeen | None, outcome: OutcomeSeen | None) -> Release | None:
    """Release of the ranks whose pods have ended or were left unbound, while other ranks run."""
    pods, gone = holding.placement.pods(), set(holding.gone)
    phases = dict(rows_of(holding, seen)) if seen is not None else {}
    held = gone | holding.backups().keys()  # a backup pod takes its rank, or is gone, before the rank ends
    ended = {rank: phase for rank, phase in phases.items() if phase in ENDED and rank < pods and rank not in held}
    unbound = {rank for rank in left_unbound(holding, outcome) if rank < pods} - held - phases.keys()
    ranks = sorted(unbound.union(ended))
    if not ranks or len(gone) - len(holding.unplaced) + len(ranks) >= pods:
        return None  # nothing, or all of them: that is the end of the attempt
    reason: ReleaseReason = "succeeded"
    if PodPhase.FAILED in ended.values():
        reason = "failed"
    elif PodPhase.GONE in ended.values():
        reason = "vanished"
    elif not ended:
        reason = "bind-failed"
    return Release(holding.uid, holding.attempt, reason, ranks=ranks)


def _release_reason(
    state: State, holding: Holding, seen: PodsSeen | None, *, otherwise: ReleaseReason = "vanished"
) -> ReleaseReason:
    """Reason for the end of a placement; ``otherwise`` if its pods were not seen."""
    if _is_cancelled(state, holding):
        return "cancelled"
    if holding.ending in _UNDONE:
        return _UNDONE[holding.ending]
    if seen is None or not seen.phase:
        return otherwise
    if PodPhase.FAILED in seen.phase:
        return "failed"
    if PodPhase.GONE in seen.phase:
        return "vanished"
    return "succeeded"


def _is_cancelled(state: State, holding: Holding) -> bool:
    if holding.foreign:
        return False
    job = state.jobs.get((holding.namespace, holding.name))
    return job is not None and (job.uid != holding.uid or job.state == "cancelled")


def _is_outlived(state: State, holding: Holding) -> bool:
    """Whether pods of a later attempt run, so that this one has ended: the records about that are lost."""
    fact = state.pods.get((holding.namespace, holding.name))
    if fact is None or fact.foreign or holding.foreign:
        return False
    is_later = fact.uid == holding.uid and fact.attempt > holding.attempt
    return is_later and any(phase not in ENDED for phase in fact.phase)


def _adopt(state: State, uid: str, found: Due) -> bool:
    """Adopt pods of another scheduler that hold chips without an entry in the ledger."""
    key = state.foreign.get(uid)
    fact = state.pods.get(key) if key is not None else None
    if fact is None or fact.uid != uid or not fact.phase or all(phase in ENDED for phase in fact.phase):
        return False
    placement = placement_of_pods(state.table, state.held, fact, found.given)
    note_short(state.short, fact, pods_of(placement))
    found.adoptions.append(Adoption(fact.namespace, fact.gang, uid, placement, fact.queue))
    return True


def _regain(state: State, uid: str, found: Due) -> bool:
    """Give an attempt that the ledger does not know the places of its pods.

    The job waits, and pods run that were bound for it: the record that placed them is lost. If pods of other ranks are
    gone, the attempt owns what is left until it has ended; :func:`_restart_found` starts the job anew.
    """
    gang, key = state.fold.gangs.get(uid), state.name_of.get(uid)
    job, fact = (state.jobs.get(key), state.pods.get(key)) if key is not None else (None, None)
    if job is None or job.request is None or job.state != "accepted":
        return False
    if fact is None or fact.uid != uid or fact.foreign or all(phase in ENDED for phase in fact.phase):
        return False
    if gang is not None and (gang.phase != "waiting" or fact.attempt < gang.attempt):
        return False
    asked = asked_by(job.request)
    whole = with_lost_ranks(fact, [task.chips for task in asked])
    if whole is None or SHARE_AICORE in job.request.labels:
        return False
    fact = whole
    placement = placement_of_pods(state.table, state.held, fact, found.given)
    note_short(state.short, fact, pods_of(placement))  # until those that own the other chips give them back
    runs = [
        Run(1, 0) if phase in ENDED else Run(1, run.chips, task.cpu_milli, task.memory_mib)
        for phase, run, task in zip(fact.phase, placement.runs, asked, strict=True)
    ]
    placement = msgspec.structs.replace(placement, runs=runs, resource=job.request.resource)
    queue = charged_queue(job.request, state.fold.settings)
    found.regained.append(Verdict(job.namespace, job.name, uid, fact.attempt, placement, queue=queue))
    return True


def _restart_found(state: State, holding: Holding, seen: PodsSeen | None, found: Due, at_ms: int) -> bool:
    """Start a job anew that was found without some of its pods: new ones would get nothing of what they ask for."""
    if holding.foreign or holding.ending or not any(map(_is_empty, holding.placement.runs)):
        return False
    job = state.jobs.get((holding.namespace, holding.name))
    if job is None or job.uid != holding.uid or job.request is None:
        return False
    there = {*holding.gone, *(unpack(seen.rank, 4) if seen is not None else ())}
    given = [run for run in holding.placement.runs for _ in range(run.pods)]
    lost = [
        rank
        for rank, (task, run) in enumerate(zip(asked_by(job.request), given, strict=False))
        if _is_empty(run) and not _is_empty(task) and rank not in there
    ]
    if not lost:
        return False
    step = next_step(holding, seen, state.outcome_of(holding))
    found.recoveries.append(restart_of(holding, step, lost, at_ms=at_ms))
    return True


def _is_empty(one: Run | Task) -> bool:
    """Whether pods have nothing, or ask for nothing."""
    return not (one.chips or one.cpu_milli or one.memory_mib)


def _retake_step(state: State, holding: Holding, seen: PodsSeen | None, found: Due, at_ms: int) -> bool:
    """Give ranks the places of their pods that run for a step whose records are lost: all, or that of the release."""
    if seen is None or not seen.steps or holding.foreign or holding.ending:
        return False
    asked = _asked(state, holding)
    step = step_of_pods(state.table, state.held, holding, seen, asked, found.given, state.short, at_ms=at_ms)
    if step is not None:
        found.recoveries.append(step)
        ranks = [rank for rank in step.ranks if rank not in holding.gone]
    else:
        ranks = left_before(holding, seen)
    if ranks:
        found.releases.append(Release(holding.uid, holding.attempt, "fault", ranks=ranks))
    return step is not None or bool(ranks)


def _adopt_anew(state: State, holding: Holding, fact: PodsSeen, found: Due) -> bool:
    """Adopt pods of another scheduler again if they now hold other chips, as far as those have no other owner.

    Also if what they report about leaf switches, blocks or their inference service changed.
    """
    owned = state.owned(holding.key)
    placement = placement_of_pods(state.table, state.held, fact, found.given, owned)
    pods = pods_of(placement)
    note_short(state.short, fact, pods)
    if properties_of(pods, placement) == properties_of(owned, holding.placement):
        return False
    found.releases.append(Release(holding.uid, holding.attempt, "vanished"))
    found.adoptions.append(Adoption(fact.namespace, fact.gang, holding.uid, placement, fact.queue))
    return True


def _is_asked(state: State, holding: Holding, claim: Claim) -> bool:
    """Whether the rank of a claim asks for as many chips as its pod names: it may own fewer, and never gets more."""
    return not claim.is_part or (
        holding.placement.share is None and claim.named.bit_count() == _asked(state, holding)[claim.rank]
    )


def _asked(state: State, holding: Holding) -> list[int]:
    """How many chips each rank of an attempt asks for; as many as it owns where the job is not known."""
    job = state.jobs.get((holding.namespace, holding.name))
    if job is not None and job.uid == holding.uid and job.request is not None:
        asked = [task.chips for task in asked_by(job.request)]
        if len(asked) == holding.placement.pods():
            return asked
    return [run.chips for run in holding.placement.runs for _ in range(run.pods)]
