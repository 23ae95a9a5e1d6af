"""Fold of the ledger: what owns each chip, and what was decided for each gang.

A record counts only if its epoch is not past and its ``base_seq`` is the sequence just before its own; any other record
is void, for every reader in the same way. So a former leader cannot add to history, whatever it still
sends.

A round is checked against the whole ledger first, chips included, and then folded: one that breaks a rule changes
nothing, and stops every reader in the same way.
"""

import msgspec

from berth.core.errors import HistoryError, InvariantError, LedgerBrokenError
from berth.core.state.holdings.held_places import Held
from berth.core.state.holdings.holding import Holding, PodShare, chips_in, owned_by, pods_of
from berth.core.state.lost_nodes import LostNode
from berth.core.state.records.chip_owners import ChipOwners
from berth.core.state.records.entries import Entries, Folded, GangRecord
from berth.core.state.records.record_checks import check_round, draft_of
from berth.core.state.records.round_steps import fold_round
from berth.core.state.run_times import RunTime
from berth.core.state.waiting_dump import WaitingDump
from berth.schemas.envelope import DecodeError, Envelope, body_of
from berth.schemas.ledger import Epoch, Round, Settings, see_readable
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
        self._become(Entries(), ChipOwners())
        self._leaving: dict[str, int] = {}
        """Gangs (uid) to be forgotten once they hold nothing, and the fact that freed their names."""

    def _become(self, entries: Entries, owners: ChipOwners) -> None:
        self._entries = entries
        self._owners = owners
        self.holdings = entries.holdings
        self.gangs = entries.gangs
        self.held = entries.held
        self.run_times = entries.run_times

    def apply(self, sequence: int, envelope: Envelope) -> Folded:
        """Fold the record stored at ``sequence``.

        Raises:
            HistoryError: Records are missing between ``head`` and ``sequence``.
            NewerVersionError: Only a newer release reads the record. Nothing was folded.
            DecodeError: The body does not decode.
            LedgerBrokenError: It breaks a rule of the ledger. Nothing was folded.
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
            LedgerBrokenError: See :meth:`apply`.
        """
        self._check_order(sequence)
        return self._counted(sequence, self._round(sequence, record))

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

    def _round(self, sequence: int, record: Round) -> Folded:
        if record.epoch != self.epoch or record.base_seq != sequence - 1:
            return Folded(void=True)
        try:
            owners = check_round(self._entries, self._owners, sequence, record)
        except InvariantError as error:
            raise LedgerBrokenError(error.rule, subject=error.subject, sequence=sequence, epoch=record.epoch) from error
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
        """Become what ``dump`` holds.

        Raises:
            InvariantError: A chip has two owners in it. Nothing was loaded.
        """
        entries = Entries(
            {holding.key: holding for holding in dump.holdings},
            {gang.uid: gang for gang in dump.gangs},
            {held.uid: held for held in dump.held},
        )
        entries.run_times.load(dump.run_times)
        owners = ChipOwners()
        owners.install(draft_of(entries))
        self._become(entries, owners)
        self.head, self.epoch, self.holder = dump.head, dump.epoch, dump.holder
        self.settings, self.facts_seq, self.at_ms, self.rounds = dump.settings, dump.facts_seq, dump.at_ms, dump.rounds
        self._leaving = dict(dump.leaving)
        self.epoch_ms = dump.epoch_ms
