"""Walk through the ledger, message by message: what stops its readers, and which snapshots are not of its history.

The ledger is folded as its readers do it, from the beginning or from the oldest snapshot that it reaches. Where
something stops them the walk goes on behind it, so that all is found. Each snapshot is compared with what the ledger
folds to at its record; facts do not matter for what is compared. A cell may keep many snapshots, so of each only
digests are in memory; the walk says when it needs a whole one to go on from, and is begun anew with it.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from berth.core.errors import LedgerBrokenError
from berth.core.state.ledger import FOLD_VERSION, LedgerDump, LedgerFold, dump_of
from berth.core.verification.findings import REPAIR, RESTORE, Finding, Findings
from berth.schemas.chain import FIRST, OTHER_KIND, UNCHAINED, UNREADABLE, UNSIGNED, follows
from berth.schemas.envelope import DecodeError, encode, open_envelope
from berth.schemas.ledger import Epoch, Round
from berth.schemas.status import Skip, SnapshotBody

LEDGER: Final = "LEDGER"
SNAPSHOT: Final = "SNAPSHOT"
_COMPARED: Final = (
    "epoch",
    "holder",
    "settings",
    "facts_seq",
    "at_ms",
    "rounds",
    "epoch_ms",
    "chain",
    "holdings",
    "held",
)
"""Fields of a folded ledger that follow from its records alone."""
_RECORDS: Final = frozenset({Epoch.KIND, Round.KIND})
_STOPS: Final = frozenset({"deleted-record", "broken-record"})
_STOP_THERE: Final = "; services that read it stop there"
_START_BEHIND: Final = "; services start from a snapshot behind it"
_FOREIGN: Final = frozenset({UNREADABLE, OTHER_KIND, UNCHAINED, UNSIGNED})
"""Reasons to be void that say that nobody who led wrote it."""


class Snapshot(NamedTuple):
    """A snapshot that is whole, without its content.

    Attributes:
        ledger_seq: Its record.
        facts_seq: Its fact.
        fold_version: Version of the rules by which it was folded.
        chain: Digest of the chain there.
        fields: Digests of what is compared of its folded ledger.
    """

    ledger_seq: int
    facts_seq: int
    fold_version: int
    chain: bytes
    fields: tuple[bytes, ...]


class SnapshotNeededError(Exception):
    """The walk goes on from a snapshot whose folded ledger it was not given.

    Attributes:
        ledger_seq: Its record.
    """

    def __init__(self, ledger_seq: int) -> None:
        super().__init__(f"the walk needs the snapshot at record {ledger_seq}")
        self.ledger_seq = ledger_seq


def _fields_of(dump: LedgerDump) -> tuple[bytes, ...]:
    """Digests of the fields that are compared, in the order of their names in the table."""
    encoded = (msgspec.msgpack.encode(getattr(dump, name), order="deterministic") for name in _COMPARED)
    return tuple(hashlib.blake2b(data, digest_size=16).digest() for data in encoded)


def snapshot_of(body: SnapshotBody) -> Snapshot:
    """A snapshot for comparison.

    Raises:
        DecodeError: Its folded ledger does not decode.
    """
    dump = dump_of(body.ledger)
    return Snapshot(body.ledger_seq, body.facts_seq, body.fold_version, dump.chain, _fields_of(dump))


class Evidence:
    """Which snapshots the chain confirms: the ledger has the record whose digest they contain, or the one after it.

    Args:
        snapshots: All that are whole.

    Attributes:
        confirmed: Records of those.
    """

    def __init__(self, snapshots: Iterable[Snapshot]) -> None:
        self._waiting = {one.ledger_seq: one.chain for one in snapshots}
        self.confirmed = {ledger_seq for ledger_seq, chain in self._waiting.items() if chain == FIRST}
        self._at: dict[bytes, list[int]] = {}
        for ledger_seq, chain in self._waiting.items():
            self._at.setdefault(chain, []).append(ledger_seq)

    def read(self, sequence: int, data: bytes) -> None:
        """Read the next message of the ledger."""
        try:
            envelope = open_envelope(data)
        except DecodeError:
            return
        for at in self._at.get(envelope.chain, ()) if envelope.kind in _RECORDS else ():
            if sequence <= at:
                self.confirmed.add(at)
        passed = [at for at in self._waiting if at < sequence] if envelope.kind in _RECORDS else []
        for at in passed:
            if follows(self._waiting.pop(at), sequence, envelope):
                self.confirmed.add(at)


class LedgerWalk:
    """Folds the ledger and notes what is wrong.

    Args:
        snapshots: All that are whole, ascending.
        confirmed: Records of the snapshots that the chain confirms; see :class:`Evidence`.
        first_seq: First message that the ledger has; 1 also if those before it are all skipped.
        last_seq: Last one.
        facts_seq: Last fact that there is.
        dumps: Folded ledgers of snapshots from which the walk may go on, by record.

    Raises:
        SnapshotNeededError: It begins with another one.

    Attributes:
        counted: Records that count.
        voided: Messages that do not.
        skipped: Messages that are skipped.
        compared: Snapshots that were compared.
        foreign: Records of the snapshots that are of another history.
        removable: The same at the end, if the ledger is whole without them, from its start to its end.
        stops: Messages at which readers stop that start from the newest snapshot.
    """

    def __init__(
        self,
        snapshots: Sequence[Snapshot],
        confirmed: set[int],
        *,
        first_seq: int,
        last_seq: int,
        facts_seq: int,
        dumps: Mapping[int, LedgerDump],
    ) -> None:
        self.counted = self.voided = self.skipped = self.compared = 0
        self.foreign: list[int] = []
        self.removable: list[int] = []
        self.stops: list[int] = []
        self._findings = Findings()
        self._fold = LedgerFold()
        self._confirmed = confirmed
        self._dumps = dumps
        self._last_seq, self._facts_seq = last_seq, facts_seq
        self._snapshots = {one.ledger_seq: one for one in snapshots}
        self._is_whole = True
        self._unfollowed: list[int] = []
        """Records whose chain value is not right, since the last that counts."""
        self._base = 0
        self.has_start = self._begin(snapshots, first_seq)
        """Whether there is anything from which the ledger can be folded."""

    @property
    def head(self) -> int:
        """Last message that was read."""
        return self._fold.head

    def _begin(self, snapshots: Sequence[Snapshot], first_seq: int) -> bool:
        for one in snapshots:
            if one.ledger_seq > self._last_seq or one.facts_seq > self._facts_seq:
                self._say(
                    "snapshot-ahead", SNAPSHOT, one.ledger_seq,
                    f"it is at record {one.ledger_seq} and fact {one.facts_seq}, but LEDGER ends at {self._last_seq} and"
                    f" FACTS at {self._facts_seq}: their newest messages were lost, and no service starts",
                    RESTORE,
                )  # fmt: skip
        if first_seq <= 1:
            return True
        reached = [one for one in snapshots if first_seq - 1 <= one.ledger_seq <= self._last_seq]
        fits = [one for one in reached if one.ledger_seq in self._confirmed]
        for one in reached:
            if one not in fits and (not fits or one.ledger_seq < fits[0].ledger_seq):
                self._say_foreign(one)
        if not fits:
            self._say(
                "no-start", LEDGER, 1,
                f"messages 1 to {first_seq - 1} are not there any more, and no snapshot of this ledger begins after"
                " them: no service starts",
                RESTORE,
            )  # fmt: skip
            return False
        self._load(fits[0])
        self.compared += 1
        return True

    def read(self, sequence: int, data: bytes | None, skip: bytes | None) -> None:
        """Read the next message.

        Args:
            sequence: Its sequence; those up to :attr:`head` are left out.
            data: The message; None if it was deleted.
            skip: Its skip, if there is one.

        Raises:
            VersionError: Only another release reads it.
            SnapshotNeededError: The walk goes on from a snapshot that it does not have.
        """
        if not self.has_start or sequence <= self._fold.head:
            return
        if skip is not None:
            self._fold.apply(sequence, skip)
            self.skipped += 1
        elif data is None:
            self._stop(sequence, "deleted-record", f"it was deleted{_STOP_THERE}")
        else:
            self._apply(sequence, data)
        self._meet(sequence)

    def _apply(self, sequence: int, data: bytes) -> None:
        try:
            link = self._fold.link(sequence, data)
            folded = self._fold.apply_link(link)
        except LedgerBrokenError as error:
            self._stop(sequence, "broken-record", f"{error.what}{_STOP_THERE}")
            return
        if not folded.void:
            self.counted += 1
            self._settle_unfollowed()
            if self._fold.facts_seq > self._facts_seq:
                self._say(
                    "record-ahead", LEDGER, sequence,
                    f"it was decided on fact {self._fold.facts_seq}, but FACTS ends at {self._facts_seq}: the newest facts"
                    " were lost",
                    RESTORE,
                )  # fmt: skip
            return
        if link.envelope is not None and link.envelope.kind == Skip.KIND and folded.void != UNSIGNED:
            self.skipped += 1  # a restore put it in the place of what it skips
            return
        self.voided += 1
        if folded.void == UNCHAINED and link.envelope is not None and link.envelope.kind in _RECORDS:
            self._unfollowed.append(sequence)
        elif folded.void in _FOREIGN:
            self._say("foreign-message", LEDGER, sequence, f"{folded.void}; readers pass over it")

    def _stop(self, sequence: int, code: str, text: str) -> None:
        self._say(code, LEDGER, sequence, text, REPAIR)
        self.stops.append(sequence)
        self._is_whole = False
        self._fold.apply(sequence, encode(Skip(sequence, sequence)))

    def _settle_unfollowed(self) -> None:
        """Note records without a right chain value that others have followed without them."""
        for sequence in self._unfollowed:
            self._say("foreign-message", LEDGER, sequence, f"{UNCHAINED}; readers pass over it")
        self._unfollowed.clear()

    def _meet(self, sequence: int) -> None:
        """Compare the snapshot at a record, if there is one."""
        one = self._snapshots.get(sequence)
        if one is None:
            return
        self.compared += 1
        differs = self._differences(one)
        if not differs:
            return
        is_confirmed = sequence in self._confirmed
        if self._is_whole and not self._unfollowed and not is_confirmed:
            self._say_foreign(one, f"its {differs[0]} is another")
            return
        if not is_confirmed:
            self._say_foreign(one)
            return
        if self._is_whole:  # its chain is right, and what the records fold to is not
            self._say(
                "changed-records", LEDGER, self._base + 1,
                f"they do not fold to the snapshot at record {sequence}, which the chain confirms: some were changed."
                " Services start from the snapshot; what was before it cannot be explained or replayed",
                last_seq=sequence,
            )  # fmt: skip
        self._unfollowed.clear()
        self._forgive()
        self._load(one)

    def _differences(self, one: Snapshot) -> list[str]:
        """Fields in which a snapshot is not what the ledger folds to."""
        if one.fold_version != FOLD_VERSION:
            return []  # by other rules
        own = _fields_of(self._fold.dump())
        fields = zip(_COMPARED, own, one.fields, strict=True)
        return [name for name, mine, its in fields if mine != its]

    def _say_foreign(
        self, one: Snapshot, why: str = "the ledger does not have the record whose digest it contains"
    ) -> None:
        self.foreign.append(one.ledger_seq)
        self._say(
            "foreign-snapshot", SNAPSHOT, one.ledger_seq,
            f"it is not of the history of this ledger: {why}; a service that starts from it has other owners of chips",
            REPAIR,
        )  # fmt: skip

    def _load(self, one: Snapshot) -> None:
        dump = self._dumps.get(one.ledger_seq)
        if dump is None:
            raise SnapshotNeededError(one.ledger_seq)
        self._fold = LedgerFold()
        self._fold.load(dump)
        self._base = one.ledger_seq
        self._is_whole = True

    def _forgive(self) -> None:
        """Note that readers do not meet what was found so far: they start from a snapshot behind it."""
        self.stops.clear()
        before = self._findings.all()
        self._findings = Findings()
        for one in before:
            if one.code in _STOPS:
                what = one.text.removesuffix(_STOP_THERE)
                self._findings.add(msgspec.structs.replace(one, repair="", text=f"{what}{_START_BEHIND}"))
            else:
                self._findings.add(one)

    def end(self) -> list[Finding]:
        """All findings, after the last message."""
        if self._unfollowed:
            first, last = self._unfollowed[0], self._unfollowed[-1]
            self._say(
                "unchained-records", LEDGER, first,
                "their chain values are not right, and no record follows: a record before them was changed or lost, or"
                " another program wrote them. Services pass over them, and may give chips again that they gave",
                RESTORE, last_seq=last,
            )  # fmt: skip
        found = self._findings.all()
        self.removable = list(self.foreign)
        if not (self._is_whole and self.has_start) or self._unfollowed:
            self.removable.clear()  # what remains without them is not whole
            found = [
                msgspec.structs.replace(one, repair=RESTORE) if one.code == "foreign-snapshot" else one for one in found
            ]
        return found

    def _say(self, code: str, where: str, sequence: int, text: str, repair: str = "", *, last_seq: int = 0) -> None:
        self._findings.add(Finding(code, where, sequence, last_seq, "", text, repair))
