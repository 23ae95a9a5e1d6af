"""Fold of the ledger: what owns each chip, and what was decided for each gang.

A record counts only if its epoch is not past and its ``base_seq`` is the sequence just before its own; any other record
is void, for every reader in the same way. So a former leader cannot add to history, whatever it still
sends.

Longer than 400 lines because each kind of entry of a record has its step here.
"""

import msgspec

from berth.core.changes import NO_CHANGES, Changes
from berth.core.errors import HistoryError, InvariantError
from berth.core.state.holdings.held_places import Held, held_of
from berth.core.state.holdings.holding import Holding, PodShare, chips_in, owned_by, pods_of
from berth.core.state.holdings.steps import end_attempt, release_backups, release_ranks, take_step
from berth.core.state.lost_nodes import LostNode
from berth.core.state.run_times import RunTime, RunTimes
from berth.core.state.waiting_dump import WaitingDump
from berth.schemas.envelope import DecodeError, Envelope, body_of
from berth.schemas.ledger import Adoption, Epoch, Eviction, Release, Round, Settings, Verdict, see_readable
from berth.schemas.recovery import HeldPlaces, Recovery
from berth.schemas.refusal import Refusal
from berth.schemas.status import SnapshotBody

__all__ = [
    "Folded",
    "GangRecord",
    "Holding",
    "LedgerDump",
    "LedgerFold",
    "PodShare",
    "chips_in",
    "dump_of",
    "owned_by",
    "pods_of",
]


class GangRecord(msgspec.Struct, gc=False, omit_defaults=True):
    """State of a gang in the ledger."""

    namespace: str
    name: str
    uid: str
    attempt: int = 1
    """Attempt that is placed, or the next one while it waits."""
    phase: str = "waiting"
    """waiting, placed, ending, succeeded, failed, cancelled, vanished or refused for good."""
    refusal: Refusal | None = None
    ledger_seq: int = 0
    facts_seq: int = 0
    at_ms: int = 0
    recovery: Recovery | None = None
    """Newest step of a recovery, of this attempt or one before, without its places: holdings have these."""
    retries_left: int = -1
    """How often failed pods may still restart it; -1: no failed pod has."""
    restarts: int = 0
    """How often it was restarted as a whole because of a fault."""
    placed_ms: int = 0
    """Time of the record since which every rank is at its place again; 0 during a recovery."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be decided for it."""
        return self.phase not in {"waiting", "placed", "ending"}


class Folded(msgspec.Struct, gc=False):
    """What one record changed."""

    taken: list[Holding] = []
    given_back: list[Holding] = []
    freed: list[tuple[Holding, list[int]]] = []
    """Ranks that gave back what they owned, while others of their attempt hold on."""
    moved: list[Holding] = []
    """Whose ranks leave, have left, or have got places, in place of what ``freed`` says of them."""
    held: list[Held] = []
    """Places of attempts in ``given_back`` that stay held."""
    unheld: list[Held] = []
    """Places that are held no longer."""
    ending: list[Holding] = []
    gangs: list[GangRecord] = []
    epoch: bool = False
    resumes: bool = False
    """It is an epoch in which gangs wait as they did before."""
    void: bool = False
    silent: bool = False
    """Shards were missing when it was decided."""
    changes: Changes = NO_CHANGES
    """What it changed in the columns; the scheduler must be given it, where there is one."""


class LedgerDump(msgspec.Struct, array_like=True, gc=False):
    """Folded form for snapshots."""

    head: int
    epoch: int
    holder: str
    settings: Settings
    facts_seq: int
    at_ms: int
    rounds: int
    holdings: list[Holding]
    gangs: list[GangRecord]
    intake_seq: int = 0
    nodes_seq: int = 0
    leaving: dict[str, int] = {}
    waiting: WaitingDump | None = None
    """None in snapshots of releases before 0.4, which do not contain it."""
    run_times: list[RunTime] = []
    held: list[Held] = []
    epoch_ms: int = 0
    lost: list[LostNode] = []
    """Nodes that are gone, not ready, or to be left, of the facts."""


def dump_of(data: bytes) -> LedgerDump:
    """Folded form out of a snapshot.

    Raises:
        DecodeError: It does not decode.
    """
    try:
        return msgspec.msgpack.decode(data, type=LedgerDump)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the folded ledger does not decode: {error}", kind=SnapshotBody.KIND) from error


class LedgerFold:
    """Ownership and verdicts at ``head``."""

    def __init__(self) -> None:
        self.head = 0
        """Sequence of the last record, void ones included."""
        self.epoch = 0
        self.holder = ""
        self.settings = Settings()
        self.facts_seq = 0
        """Facts that the last record knew."""
        self.at_ms = 0
        self.rounds = 0
        self.voided = 0
        self.epoch_ms = 0
        """When the epoch began."""
        self.holdings: dict[tuple[str, int], Holding] = {}
        self.gangs: dict[str, GangRecord] = {}
        self.held: dict[str, Held] = {}
        """Places that stay held for a gang (uid) that starts anew."""
        self.run_times = RunTimes()
        self._leaving: dict[str, int] = {}
        """Gangs (uid) to be forgotten once they hold nothing, and the fact that freed their names."""

    def apply(self, sequence: int, envelope: Envelope) -> Folded:
        """Fold the record stored at ``sequence``.

        Raises:
            HistoryError: Records are missing between ``head`` and ``sequence``.
            NewerVersionError: Only a newer release reads the record. Nothing was folded.
            DecodeError: The body does not decode.
            InvariantError: The record gives what is not there to give; never for records that Berth wrote.
        """
        see_readable(envelope)
        if envelope.kind == Round.KIND:
            return self.apply_round(sequence, body_of(envelope, Round))
        folded = Folded()
        self._check_order(sequence)
        if envelope.kind == Epoch.KIND:
            self._begin(sequence, body_of(envelope, Epoch), folded)
        else:
            folded.void = True
        return self._counted(sequence, folded)

    def apply_round(self, sequence: int, record: Round) -> Folded:
        """Fold the round stored at ``sequence``.

        Raises:
            HistoryError: Records are missing between ``head`` and ``sequence``.
            InvariantError: See :meth:`apply`.
        """
        folded = Folded()
        self._check_order(sequence)
        self._round(sequence, record, folded)
        return self._counted(sequence, folded)

    def _check_order(self, sequence: int) -> None:
        if sequence != self.head + 1:
            raise HistoryError(wanted=self.head + 1, got=sequence)

    def _counted(self, sequence: int, folded: Folded) -> Folded:
        self.head = sequence
        self.voided += folded.void
        return folded

    def _begin(self, sequence: int, record: Epoch, folded: Folded) -> None:
        if record.epoch <= self.epoch or record.base_seq != sequence - 1:
            folded.void = True
            return
        folded.resumes = record.resumes and self.epoch > 0 and record.settings == self.settings
        self.epoch, self.holder, self.settings = record.epoch, record.holder, record.settings
        self.facts_seq, self.at_ms = record.facts_seq, record.at_ms
        self.epoch_ms = record.at_ms
        self._let_go()
        folded.epoch = True

    def _round(self, sequence: int, record: Round, folded: Folded) -> None:
        if record.epoch != self.epoch or record.base_seq != sequence - 1:
            folded.void = True
            return
        self.facts_seq, self.at_ms = record.facts_seq, record.at_ms
        self.rounds = record.number
        folded.silent = bool(record.missing)
        self._let_go()
        for verdict in record.verdicts:
            self._verdict(sequence, record, verdict, folded)
        for recovery in record.recoveries:
            self._recover(sequence, record, recovery, folded)
        for eviction in record.evictions:
            self._evict(sequence, record, eviction, folded)
        for held in record.held:
            self._hold(held, folded)
        for release in record.releases:
            self._release(sequence, record, release, folded)
        for adoption in record.adoptions:
            self._adopt(sequence, record, adoption, folded)
        for gang in folded.gangs:
            self._see_recovered(gang)
            if gang.is_over and self._leaving.pop(gang.uid, None) is not None:
                del self.gangs[gang.uid]

    def _verdict(self, sequence: int, record: Round, verdict: Verdict, folded: Folded) -> None:
        gang = self.gangs.get(verdict.uid)
        if gang is None:
            gang = self.gangs[verdict.uid] = GangRecord(verdict.namespace, verdict.name, verdict.uid)
        if gang.phase != "waiting":
            raise InvariantError(f"gets a verdict while it is {gang.phase}", subject=f"gang {verdict.uid}")
        gang.attempt = verdict.attempt
        gang.ledger_seq, gang.facts_seq, gang.at_ms = sequence, record.facts_seq, record.at_ms
        gang.refusal = verdict.refusal
        if verdict.placement is not None:
            gang.phase = "placed"
            self._unhold(verdict.uid, folded)
            holding = Holding(
                verdict.namespace, verdict.name, verdict.uid, verdict.attempt, verdict.placement, sequence, record.at_ms
            )
            self._take(holding, folded)
        elif verdict.final:
            gang.phase = "failed"
        folded.gangs.append(gang)

    def _take(self, holding: Holding, folded: Folded) -> None:
        if holding.key in self.holdings:
            raise InvariantError("is placed twice", subject=f"gang {holding.uid} attempt {holding.attempt}")
        self.holdings[holding.key] = holding
        folded.taken.append(holding)

    def _recover(self, sequence: int, record: Round, recovery: Recovery, folded: Folded) -> None:
        holding = self._held(recovery.uid, recovery.attempt, "recovers where it holds nothing")
        take_step(holding, recovery)
        if recovery.how in {"grace", "force"}:
            holding.step_ms = record.at_ms
        if holding.ending:
            folded.ending.append(holding)
        if recovery.how != "mark":
            folded.moved.append(holding)
        gang = self.gangs.get(recovery.uid)
        if gang is None or gang.attempt != recovery.attempt:
            return
        gang.placed_ms = 0
        gang.recovery = msgspec.structs.replace(recovery, placement=None)
        if recovery.retries_left >= 0:
            gang.retries_left = recovery.retries_left
        if holding.ending:
            gang.phase, gang.ledger_seq, gang.at_ms = "ending", sequence, record.at_ms
            gang.restarts += 1
        folded.gangs.append(gang)

    def _see_recovered(self, gang: GangRecord) -> None:
        """Note since when every rank of a gang is at its place again."""
        if gang.recovery is None or gang.placed_ms:
            return
        holding = self.holdings.get((gang.uid, gang.attempt))
        if holding is not None and not holding.ending and not holding.recovers:
            gang.placed_ms = self.at_ms

    def _evict(self, sequence: int, record: Round, eviction: Eviction, folded: Folded) -> None:
        holding = self._held(eviction.uid, eviction.attempt)
        if holding.recovers:
            folded.moved.append(holding)
        end_attempt(holding, eviction.reason)
        gang = self.gangs.get(eviction.uid)
        if gang is not None and gang.attempt == eviction.attempt:
            gang.phase, gang.ledger_seq, gang.at_ms = "ending", sequence, record.at_ms
            folded.gangs.append(gang)
        folded.ending.append(holding)

    def _hold(self, entry: HeldPlaces, folded: Folded) -> None:
        if not entry.ranks:
            self._unhold(entry.uid, folded)
            return
        subject = f"gang {entry.uid} attempt {entry.attempt}"
        if entry.uid in self.held:
            raise InvariantError("holds places twice", subject=subject)
        held = self.held[entry.uid] = held_of(self._held(entry.uid, entry.attempt), entry)
        folded.held.append(held)

    def _unhold(self, uid: str, folded: Folded) -> None:
        held = self.held.pop(uid, None)
        if held is not None:
            folded.unheld.append(held)

    def _release(self, sequence: int, record: Round, release: Release, folded: Folded) -> None:
        holding = self._held(release.uid, release.attempt)
        if release.reason == "backup":
            release_backups(holding, release.ranks)
            folded.moved.append(holding)
        elif release.ranks:
            self._free(holding, release, folded)
        if release.ranks:
            gang = self.gangs.get(release.uid)
            if holding.step:
                holding.freed_ms = record.at_ms
                if gang is not None and gang.attempt == release.attempt:
                    folded.gangs.append(gang)
            return
        del self.holdings[holding.key]
        folded.given_back.append(holding)
        if release.reason == "succeeded" and not holding.foreign:
            self.run_times.note(holding.namespace, chips_in(holding.placement.runs), record.at_ms - holding.at_ms)
        gang = self.gangs.get(release.uid)
        if gang is None or gang.attempt != release.attempt:
            return
        gang.ledger_seq, gang.at_ms = sequence, record.at_ms
        if release.again:
            gang.phase, gang.attempt = "waiting", gang.attempt + 1
        else:
            gang.phase = "failed" if release.reason in {"bind-failed", "fault"} else release.reason
            if release.reason == "bind-failed":
                gang.refusal = Refusal(code="bind-failed", value=str(release.attempt))
        folded.gangs.append(gang)

    @staticmethod
    def _free(holding: Holding, release: Release, folded: Folded) -> None:
        ranks = release.ranks
        freed = set(ranks)
        subject = f"gang {holding.uid} attempt {holding.attempt}"
        if len(freed) != len(ranks) or not 0 <= min(freed) <= max(freed) < holding.placement.pods():
            raise InvariantError("gives back ranks that it does not have", subject=subject)
        if not freed.isdisjoint(holding.gone):
            raise InvariantError("gives a rank back twice", subject=subject)
        if holding.moves:
            folded.moved.append(holding)
        release_ranks(holding, ranks, by_fault=release.reason == "fault")
        folded.freed.append((holding, ranks))

    def _adopt(self, sequence: int, record: Round, adoption: Adoption, folded: Folded) -> None:
        holding = Holding(
            adoption.namespace, adoption.gang, adoption.uid, 0, adoption.placement, sequence, record.at_ms, foreign=True
        )
        self._take(holding, folded)

    def _held(self, uid: str, attempt: int, what: str = "gives back what it does not hold") -> Holding:
        holding = self.holdings.get((uid, attempt))
        if holding is None:
            raise InvariantError(what, subject=f"gang {uid} attempt {attempt}")
        return holding

    def forget(self, uid: str, facts_seq: int) -> None:
        """Drop the state of a gang whose name is free again since a fact, now or as soon as it is over.

        Facts may run ahead of records. What is left depends on how far each went, not on their order: a gang that only
        waits goes when a record knew the fact, for no later one speaks of it.
        """
        gang = self.gangs.get(uid)
        self._leaving.pop(uid, None)
        if gang is not None and gang.is_over:
            del self.gangs[uid]
        else:
            self._leaving[uid] = facts_seq
            self._let_go()

    def _let_go(self) -> None:
        gone = []
        for uid, facts_seq in self._leaving.items():  # ascending by fact
            if facts_seq > self.facts_seq:
                break
            gang = self.gangs.get(uid)
            if gang is None or gang.phase == "waiting":
                gone.append(uid)
        for uid in gone:
            del self._leaving[uid]
            self.gangs.pop(uid, None)

    def dump(self) -> LedgerDump:
        """Folded form, in a total order."""
        return LedgerDump(
            head=self.head,
            epoch=self.epoch,
            holder=self.holder,
            settings=self.settings,
            facts_seq=self.facts_seq,
            at_ms=self.at_ms,
            rounds=self.rounds,
            holdings=[self.holdings[key] for key in sorted(self.holdings)],
            gangs=[self.gangs[uid] for uid in sorted(self.gangs)],
            leaving=dict(self._leaving),
            run_times=self.run_times.dump(),
            held=[self.held[uid] for uid in sorted(self.held)],
            epoch_ms=self.epoch_ms,
        )

    def load(self, dump: LedgerDump) -> None:
        """Become what ``dump`` holds."""
        self.head, self.epoch, self.holder = dump.head, dump.epoch, dump.holder
        self.settings, self.facts_seq, self.at_ms, self.rounds = dump.settings, dump.facts_seq, dump.at_ms, dump.rounds
        self.holdings = {holding.key: holding for holding in dump.holdings}
        self.gangs = {gang.uid: gang for gang in dump.gangs}
        self.held = {held.uid: held for held in dump.held}
        self._leaving = dict(dump.leaving)
        self.run_times.load(dump.run_times)
        self.epoch_ms = dump.epoch_ms
