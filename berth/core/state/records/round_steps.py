"""Steps of a round: what each of its entries does to the folded ledger, in the order in which they count."""

import msgspec

from berth.core.errors import InvariantError
from berth.core.state.holdings.held_places import held_of, reserved_of
from berth.core.state.holdings.holding import Holding, chips_in
from berth.core.state.holdings.mounted_chips import correct_chips
from berth.core.state.holdings.steps import end_attempt, release_backups, release_ranks, take_step
from berth.core.state.records.entries import Entries, Folded, GangRecord
from berth.schemas.ledger import (
    Adoption,
    Correction,
    Eviction,
    HeldPlaces,
    Recovery,
    Release,
    Reservation,
    Round,
    Verdict,
)
from berth.schemas.recovery import DISPLACED, RECLAIMED
from berth.schemas.refusal import Refusal


def fold_round(entries: Entries, sequence: int, record: Round) -> Folded:
    """Fold a round into tables; returns what it changed.

    Args:
        entries: The tables. After an error they are in part those after the round.
        sequence: Sequence of the record.
        record: The round.

    Raises:
        InvariantError: An entry does not follow from what was before it.
        ValueError: Places do not agree with those that they are merged into.
        LookupError: As before.
    """
    return _Steps(entries, sequence, record).take()


class _Steps:
    """Steps of one round."""

    def __init__(self, entries: Entries, sequence: int, record: Round) -> None:
        self.folded = Folded()
        self._holdings = entries.holdings
        self._gangs = entries.gangs
        self._held = entries.held
        self._run_times = entries.run_times
        self._admissions = entries.admissions
        self._sequence = sequence
        self._record = record
        self._at_ms = record.at_ms
        self._when = (sequence, record.at_ms)

    def take(self) -> Folded:
        """Take all steps."""
        record = self._record
        self.folded.silent = bool(record.missing)
        for verdict in record.verdicts:
            self._verdict(verdict)
        for correction in record.corrections:
            self._correct(correction)
        for recovery in record.recoveries:
            self._recover(recovery)
        for eviction in record.evictions:
            self._evict(eviction)
        for held in record.held:
            self._hold(held)
        for reservation in record.reserved:
            self._reserve(reservation)
        for release in record.releases:
            self._release(release)
        self._give_awaited()
        for adoption in record.adoptions:
            self._adopt(adoption)
        for gang in self.folded.gangs:
            self._record_recovered(gang)
        self._admissions.update((one.uid, one) for one in record.admissions)
        self.folded.admissions = record.admissions
        return self.folded

    def _verdict(self, verdict: Verdict) -> None:
        gang = self._gangs.get(verdict.uid)
        if gang is None:
            gang = self._gangs[verdict.uid] = GangRecord(verdict.namespace, verdict.name, verdict.uid)
        if gang.phase in {"placed", "ending"}:  # no more: readers without facts forget gangs that own nothing
            raise InvariantError(f"gets a verdict while it is {gang.phase}", subject=f"gang {verdict.uid}")
        if verdict.attempt < 1 or (verdict.uid, verdict.attempt) in self._holdings:
            raise InvariantError(f"gets a verdict on attempt {verdict.attempt}", subject=f"gang {verdict.uid}")
        gang.attempt = verdict.attempt
        gang.ledger_seq, gang.facts_seq, gang.at_ms = self._sequence, self._record.facts_seq, self._at_ms
        # A pause from before is over, also for a clock that is set back.
        gang.refusal, gang.retry_ms = verdict.refusal, verdict.refusal.retry_ms if verdict.refusal is not None else 0
        if verdict.placement is not None:
            gang.phase = "placed"
            self._unhold(verdict.uid)
            holding = Holding(
                verdict.namespace, verdict.name, verdict.uid, verdict.attempt, verdict.placement, *self._when
            )
            holding.queue = verdict.queue
            self._take(holding)
        elif verdict.final:
            gang.phase = "failed"
        self.folded.gangs.append(gang)

    def _take(self, holding: Holding) -> None:
        if holding.key in self._holdings:
            raise InvariantError("is placed twice", subject=f"gang {holding.uid} attempt {holding.attempt}")
        self._holdings[holding.key] = holding
        self.folded.taken.append(holding)

    def _correct(self, correction: Correction) -> None:
        holding = self._owned(correction.uid, correction.attempt, "has other chips where it holds nothing")
        correct_chips(holding, dict(zip(correction.ranks, map(tuple, correction.chips), strict=True)))
        self.folded.moved.append(holding)
        gang = self._gangs.get(correction.uid)
        if gang is not None and gang.attempt == correction.attempt:
            self.folded.gangs.append(gang)

    def _recover(self, recovery: Recovery) -> None:
        holding = self._owned(recovery.uid, recovery.attempt, "recovers where it holds nothing")
        take_step(holding, recovery)
        if recovery.how in {"grace", "force"}:
            holding.step_ms = self._at_ms
        if holding.ending:
            self.folded.ending.append(holding)
        if recovery.how != "mark":
            self.folded.moved.append(holding)
        gang = self._gangs.get(recovery.uid)
        if gang is None or gang.attempt != recovery.attempt:
            return
        gang.placed_ms = 0
        gang.recovery = msgspec.structs.replace(recovery, placement=None)
        if recovery.retries_left >= 0:
            gang.retries_left = recovery.retries_left
        if holding.ending:
            gang.phase, gang.ledger_seq, gang.at_ms = "ending", *self._when
            gang.restarts += 1
        if recovery.kind in DISPLACED and recovery.how != "place":
            gang.record_displacement(self._at_ms, is_reclaimed=recovery.kind == RECLAIMED)
        self.folded.gangs.append(gang)

    def _record_recovered(self, gang: GangRecord) -> None:
        """Note since when every rank of a gang is at its place again."""
        if gang.recovery is None or gang.placed_ms:
            return
        holding = self._holdings.get((gang.uid, gang.attempt))
        if holding is not None and not holding.ending and not holding.recovers:
            gang.placed_ms = self._at_ms

    def _evict(self, eviction: Eviction) -> None:
        holding = self._owned(eviction.uid, eviction.attempt)
        if holding.recovers or holding.moves:
            self.folded.moved.append(holding)
        end_attempt(holding, eviction.reason)
        gang = self._gangs.get(eviction.uid)
        if gang is not None and gang.attempt == eviction.attempt:
            gang.phase, gang.ledger_seq, gang.at_ms = "ending", *self._when
            self.folded.gangs.append(gang)
        self.folded.ending.append(holding)

    def _hold(self, entry: HeldPlaces) -> None:
        if not entry.ranks:
            self._unhold(entry.uid)
            return
        subject = f"gang {entry.uid} attempt {entry.attempt}"
        if entry.uid in self._held:
            raise InvariantError("holds places twice", subject=subject)
        held = self._held[entry.uid] = held_of(self._owned(entry.uid, entry.attempt), entry)
        self.folded.held.append(held)

    def _reserve(self, entry: Reservation) -> None:
        gang = self._gangs.get(entry.uid)
        subject = f"gang {entry.uid} attempt {entry.attempt}"
        if gang is None or gang.phase != "waiting" or gang.attempt != entry.attempt:
            raise InvariantError("gets a place reserved and does not wait for it", subject=subject)
        if entry.uid in self._held:
            raise InvariantError("holds places twice", subject=subject)
        held = self._held[entry.uid] = reserved_of(entry, self._holdings, at_ms=self._at_ms)
        self.folded.held.append(held)

    def _give_awaited(self) -> None:
        """Give reserved places what attempts have left, or ranks of them, that they await."""
        gone = {holding.key for holding in self.folded.given_back}
        changed = gone.union(holding.key for holding, _ in self.folded.freed)
        awaiting = [held for held in self._held.values() if not changed.isdisjoint(held.awaited)]
        for held in sorted(awaiting, key=lambda one: one.uid) if changed else ():
            new = [one for one in self.folded.held if one is not held]
            if len(new) == len(self.folded.held):  # else this record reserves it, and it was not held before
                self.folded.unheld.append(held)
            now = self._held[held.uid] = held.without(gone, self._holdings, at_ms=self._at_ms)
            self.folded.held = [*new, now]

    def _unhold(self, uid: str) -> None:
        held = self._held.pop(uid, None)
        if held is not None:
            self.folded.unheld.append(held)

    def _release(self, release: Release) -> None:
        holding = self._owned(release.uid, release.attempt)
        if release.reason == "backup":
            release_backups(holding, release.ranks)
            self.folded.moved.append(holding)
        elif release.ranks:
            self._free(holding, release)
        if release.ranks:
            gang = self._gangs.get(release.uid)
            if holding.step:
                holding.freed_ms = self._at_ms
                if gang is not None and gang.attempt == release.attempt:
                    self.folded.gangs.append(gang)
            return
        del self._holdings[holding.key]
        self.folded.given_back.append(holding)
        if release.reason == "succeeded" and not holding.foreign:
            chips = chips_in(holding.placement.runs)
            self._run_times.note(holding.namespace, holding.name, chips, self._at_ms - holding.at_ms)
        gang = self._gangs.get(release.uid)
        if gang is None or gang.attempt != release.attempt:
            return
        gang.ledger_seq, gang.at_ms = self._when
        gang.given_back += release.reason == "given-back"
        if release.again:
            gang.phase, gang.attempt = "waiting", gang.attempt + 1
            gang.record_retry(release.reason, self._at_ms, has_claims=any(True for _ in holding.claims()))
        else:
            gang.phase = "failed" if release.reason in {"bind-failed", "given-back", "fault"} else release.reason
            if release.reason == "bind-failed":
                gang.refusal = Refusal(code="bind-failed", value=str(release.attempt))
        self.folded.gangs.append(gang)

    def _free(self, holding: Holding, release: Release) -> None:
        ranks = release.ranks
        freed = set(ranks)
        subject = f"gang {holding.uid} attempt {holding.attempt}"
        if len(freed) != len(ranks) or not 0 <= min(freed) <= max(freed) < holding.placement.pods():
            raise InvariantError("gives back ranks that it does not have", subject=subject)
        if not freed.isdisjoint(holding.gone):
            raise InvariantError("gives a rank back twice", subject=subject)
        if holding.moves:
            self.folded.moved.append(holding)
        release_ranks(holding, ranks, by_fault=release.reason == "fault")
        self.folded.freed.append((holding, ranks))

    def _adopt(self, adoption: Adoption) -> None:
        placement = adoption.placement
        holding = Holding(adoption.namespace, adoption.gang, adoption.uid, 0, placement, *self._when, foreign=True)
        holding.queue = adoption.queue
        self._take(holding)

    def _owned(self, uid: str, attempt: int, what: str = "gives back what it does not hold") -> Holding:
        holding = self._holdings.get((uid, attempt))
        if holding is None:
            raise InvariantError(what, subject=f"gang {uid} attempt {attempt}")
        return holding
