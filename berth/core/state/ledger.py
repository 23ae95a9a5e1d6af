"""Fold of the ledger: what owns each chip, and what was decided for each gang.

A record counts only if its chain value is right, its epoch is not past and its ``base_seq`` names the message just
before it; any other message is void, for every reader in the same way (``berth.schemas.chain``). So a former leader
cannot add to history, whatever it still sends, and nor can anything that is no record.

A round is checked against the whole ledger first, chips included, and then folded: one that breaks a rule changes
nothing, and stops every reader in the same way.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from berth.core.copies import copied
from berth.core.errors import HistoryError, InvariantError, LedgerBrokenError
from berth.core.pod_shares import PodShare, pods_of
from berth.core.state.holdings.chip_owners import ChipOwners
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.holding import Holding, chips_in, owned_by
from berth.core.state.lost_nodes import LostNode
from berth.core.state.records.entries import Entries, Folded, GangRecord
from berth.core.state.records.record_checks import check_round, draft_of
from berth.core.state.records.round_steps import fold_round
from berth.core.state.run_times import RunTime, StemTimes
from berth.core.state.waiting_dump import WaitingDump
from berth.schemas.chain import FIRST, Link, Position, encode_record, link_of
from berth.schemas.envelope import DecodeError, body_of
from berth.schemas.ledger import Admission, Epoch, Round, Settings
from berth.schemas.rules import StatedRule, check_rules
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


FOLD_VERSION: Final = 2
"""Version of the rules by which records are folded, for the digests of snapshots. It rises when the fold of the same
records has another result."""


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
    """None in one of a service that does not decide."""
    run_times: list[RunTime] = []
    held: list[Held] = []
    epoch_ms: int = 0
    lost: list[LostNode] = []
    """Nodes that are gone, not ready, or to be left, of the facts."""
    chain: bytes = FIRST
    """Digest of the chain."""
    rules: list[StatedRule] = []
    stem_times: list[StemTimes] = []
    admissions: list[Admission] = []
    admissions_leaving: dict[str, int] = {}


def dump_of(data: bytes) -> LedgerDump:
    """Folded form out of a snapshot.

    Raises:
        DecodeError: It does not decode.
        UnknownRuleError: Its epoch has a rule that this release lacks.
    """
    try:
        dump = msgspec.msgpack.decode(data, type=LedgerDump)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(f"the folded ledger does not decode: {error}", kind=SnapshotBody.KIND) from error
    check_rules(dump.rules)
    return dump


def _words(error: DecodeError) -> tuple[str, str]:
    """Rule that a message breaks that does not decode, and subject."""
    return f"does not decode: {error.reason}", error.kind or "the message"


class LedgerFold:
    """Ownership and verdicts at ``head``."""

    def __init__(self) -> None:
        self.head = 0
        """Sequence of the last record, void ones included."""
        self._position = Position()
        self.holder = ""
        self.settings = Settings()
        self.rules: Sequence[StatedRule] = ()
        """Rules of the epoch."""
        self.facts_seq = 0
        """Facts that the last record knew."""
        self.at_ms = 0
        self.rounds = 0
        self.voided = 0
        self.epoch_ms = 0
        """When the epoch began."""
        self._become(Entries(), ChipOwners())
        self._leaving: dict[str, int] = {}
        """Gangs (uid) to be forgotten once they hold nothing, and the fact that freed their names."""
        self._admissions_leaving: dict[str, int] = {}
        """PodGroups (uid) of which the decision is to be forgotten, and the fact for which it is."""

    def _become(self, entries: Entries, owners: ChipOwners) -> None:
        self._entries = entries
        self._owners = owners
        self.holdings = entries.holdings
        self.gangs = entries.gangs
        self.held = entries.held
        self.run_times = entries.run_times
        self.admissions = entries.admissions

    @property
    def epoch(self) -> int:
        """The leading epoch."""
        return self._position.epoch

    @property
    def base_seq(self) -> int:
        """Sequence of the last message that was read; the next record names it."""
        return self._position.base_seq

    @property
    def chain(self) -> bytes:
        """Digest of the chain."""
        return self._position.digest

    def encoded(self, record: Epoch | Round) -> bytes:
        """A record as the leader stores it next: with the chain value of the sequence after ``head``."""
        return encode_record(record, chain=self._position.digest, sequence=self.head + 1)

    @property
    def owners(self) -> ChipOwners:
        """Owners of chips; callers do not change them."""
        return self._owners

    def fork(self) -> "LedgerFold":
        """A copy with holdings and held places that are changed alone; it folds nothing."""
        return copied(self, holdings=self.holdings.copy(), held=self.held.copy())

    def pods_of(self, holding: Holding) -> list[PodShare]:
        """All that an attempt owns: what its ranks own, in rank order, and then the places reserved for them.

        Callers do not change the list.
        """
        return self._owners.pods_of(holding)

    def link(self, sequence: int, data: bytes) -> Link:
        """Find out whether the message stored at ``sequence`` counts; nothing is folded.

        Raises:
            HistoryError: Records are missing between ``head`` and ``sequence``.
            VersionError: Only another release reads it.
            LedgerBrokenError: It does not decode, and may not be passed.
        """
        if sequence != self.head + 1:
            raise HistoryError(wanted=self.head + 1, got=sequence)
        try:
            return link_of(self._position, sequence, data)
        except DecodeError as error:
            raise LedgerBrokenError(*_words(error), sequence=sequence) from error

    def apply(self, sequence: int, data: bytes) -> Folded:
        """Fold the message stored at ``sequence``.

        Raises:
            HistoryError: See :meth:`link`.
            VersionError: See :meth:`link`. Nothing was folded.
            LedgerBrokenError: It breaks a rule of the ledger, or does not decode. Nothing was folded.
        """
        return self.apply_link(self.link(sequence, data))

    def round_of(self, link: Link) -> Round | None:
        """The round that a message is; None for an epoch, and for a message that is void.

        Raises:
            LedgerBrokenError: It does not decode.
        """
        if link.void or link.envelope is None or link.epoch is not None:
            return None
        try:
            return body_of(link.envelope, Round)
        except DecodeError as error:
            raise LedgerBrokenError(*_words(error), sequence=link.sequence) from error

    def apply_link(self, link: Link, record: Round | None = None) -> Folded:
        """Fold the message of the last :meth:`link`.

        Args:
            link: The message.
            record: What :meth:`round_of` gave of it, if that was called.

        Raises:
            LedgerBrokenError: See :meth:`apply`.
        """
        record = self.round_of(link) if record is None else record
        if record is not None:
            folded = self._round(link.sequence, record)
        elif link.epoch is not None and not link.void:
            folded = self._begin(link.epoch)
        else:
            folded = Folded(void=link.void)
            self.voided += 1
        self.head = link.sequence
        self._position = self._position.after(link)
        return folded

    def _begin(self, record: Epoch) -> Folded:
        resumes = record.resumes and self.epoch > 0 and self.has_terms(record.settings, record.rules)
        self.holder, self.settings, self.rules = record.holder, record.settings, tuple(record.rules)
        self.facts_seq, self.at_ms = record.facts_seq, record.at_ms
        self.epoch_ms = record.at_ms
        self._let_go()
        return Folded(epoch=True, resumes=resumes)

    def has_terms(self, settings: Settings, rules: Iterable[StatedRule]) -> bool:
        """Whether an epoch with these settings and rules decides as this one."""
        return settings == self.settings and tuple(rules) == tuple(self.rules)

    def _round(self, sequence: int, record: Round) -> Folded:
        try:
            owners = check_round(self._entries, self._owners, sequence, record)
        except InvariantError as error:
            raise LedgerBrokenError(error.rule, error.subject, sequence=sequence, epoch=record.epoch) from error
        self.facts_seq, self.at_ms = record.facts_seq, record.at_ms
        self.rounds = record.number
        self._let_go()
        folded = fold_round(self._entries, sequence, record)
        self._owners.install(owners)
        for gang in folded.gangs:
            if gang.is_over and self._leaving.pop(gang.uid, None) is not None:
                del self.gangs[gang.uid]
        return folded

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

    def forget_admission(self, uid: str, facts_seq: int) -> None:
        """Drop the decision on a PodGroup that is told of no more since a fact, once a record knew the fact."""
        self._admissions_leaving.pop(uid, None)
        self._admissions_leaving[uid] = facts_seq
        self._let_go()

    def forgets_admission(self, uid: str) -> bool:
        """Whether the decision on a PodGroup counts no longer, although a record that knows so is still to come."""
        return uid in self._admissions_leaving

    def _let_go(self) -> None:
        for uid, facts_seq in list(self._admissions_leaving.items()):  # ascending by fact
            if facts_seq > self.facts_seq:
                break
            del self._admissions_leaving[uid]
            self.admissions.pop(uid, None)
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
            chain=self.chain,
            rules=list(self.rules),
            stem_times=self.run_times.dump_stems(),
            admissions=[self.admissions[uid] for uid in sorted(self.admissions)],
            admissions_leaving=dict(self._admissions_leaving),
        )

    def load(self, dump: LedgerDump) -> None:
        """Become what ``dump`` holds.

        Raises:
            LedgerBrokenError: A chip has two owners in it. Nothing was loaded.
        """
        entries = Entries(
            {holding.key: holding for holding in dump.holdings},
            {gang.uid: gang for gang in dump.gangs},
            {held.uid: held for held in dump.held},
            admissions={one.uid: one for one in dump.admissions},
        )
        entries.run_times.load(dump.run_times, dump.stem_times)
        owners = ChipOwners()
        try:
            owners.install(draft_of(entries))
        except InvariantError as error:
            raise LedgerBrokenError(error.rule, error.subject, sequence=dump.head, epoch=dump.epoch) from error
        self._become(entries, owners)
        self.head, self.holder = dump.head, dump.holder
        self._position = Position(dump.head, dump.epoch, dump.chain)
        self.settings, self.facts_seq, self.at_ms, self.rounds = dump.settings, dump.facts_seq, dump.at_ms, dump.rounds
        self._leaving = dict(dump.leaving)
        self._admissions_leaving = dict(dump.admissions_leaving)
        self.epoch_ms = dump.epoch_ms
        self.rules = tuple(dump.rules)
