"""What counts in a chained ledger, and what every reader passes over."""

from collections.abc import Callable

import msgspec
import pytest

from berth.core.errors import LedgerBrokenError
from berth.core.state.ledger import LedgerDump, LedgerFold
from berth.schemas.chain import (
    FIRST,
    OTHER_BASE,
    OTHER_KIND,
    PAST_EPOCH,
    UNCHAINED,
    UNREADABLE,
    ChainReader,
    Position,
    chained,
    encode_record,
    position_of,
    state_digest,
)
from berth.schemas.envelope import NewerVersionError, encode, open_envelope, sealed
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Release, Round, Settings, Verdict
from berth.schemas.placement import Placement, Run, placement_of
from berth.schemas.status import KeptFact, SnapshotBody


def placed(*chips: int) -> Placement:
    return placement_of(["n"], [chips], [Run(1, len(chips))], resource="r")


class Ledger:
    """A fold, a reader of the chain alone, and what is appended to both."""

    def __init__(self) -> None:
        self.fold = LedgerFold()
        self.reader = ChainReader(Position())
        self.stored: list[bytes] = []
        self.append(self.written(Epoch(1, 0, 0, 10, "a", Settings())))

    @property
    def next(self) -> int:
        return self.fold.head + 1

    def written(self, record: Epoch | Round) -> bytes:
        """A record as the leader writes it."""
        return self.fold.encoded(record)

    def round(self, **parts: object) -> Round:
        fold = self.fold
        return Round(fold.epoch, fold.base_seq, 7, 20, fold.rounds + 1, **parts)  # type: ignore[arg-type]  # fields of it

    def place(self, uid: str, *chips: int) -> Round:
        return self.round(verdicts=[Verdict("ns", uid, uid, 1, placed(*chips))])

    def append(self, data: bytes) -> str:
        """Fold a message; returns why it is void."""
        folded = self.fold.apply(self.next, data)
        self.stored.append(data)
        assert self.reader.read(self.fold.head, data).void == folded.void
        assert self.reader.position == Position(self.fold.base_seq, self.fold.epoch, self.fold.chain)
        return folded.void


def test_the_first_epoch_has_a_chain_value_and_so_has_each_record_behind_it() -> None:
    ledger = Ledger()
    assert ledger.fold.chain == chained(FIRST, 1, open_envelope(ledger.stored[0]))
    first = ledger.fold.chain
    assert ledger.append(ledger.written(ledger.place("a", 0))) == ""
    envelope = open_envelope(ledger.stored[1])
    assert (envelope.version, envelope.release, envelope.chain) == (Round.VERSION, "0.5", ledger.fold.chain)
    assert ledger.fold.chain == chained(first, 2, envelope)


def garbage(_: Ledger) -> bytes:
    return b"\xff\x00garbage"


def other_kind(_: Ledger) -> bytes:
    return encode(TimerSeen(5))


def no_value(ledger: Ledger) -> bytes:
    return encode(ledger.place("b", 1))


def wrong_value(ledger: Ledger) -> bytes:
    return encode_record(ledger.place("b", 1), chain=b"x" * 16, sequence=ledger.next)


def other_sequence(ledger: Ledger) -> bytes:
    return encode_record(ledger.place("b", 1), chain=ledger.fold.chain, sequence=ledger.next + 1)


def one_bit(ledger: Ledger) -> bytes:
    data = bytearray(ledger.written(ledger.place("b", 1)))
    data[data.index(b"ns")] ^= 1
    return bytes(data)


def undecodable_body(_: Ledger) -> bytes:
    return msgspec.msgpack.encode((Round.KIND, Round.VERSION, [1], "0.5", b"x" * 16))


def version_0(ledger: Ledger) -> bytes:
    return msgspec.structs.replace(sealed(ledger.place("b", 1)), version=0).encode()


def past_epoch(ledger: Ledger) -> bytes:
    return ledger.written(msgspec.structs.replace(ledger.place("b", 1), epoch=0))


def other_base(ledger: Ledger) -> bytes:
    return ledger.written(msgspec.structs.replace(ledger.place("b", 1), base_seq=0))


def past_leader(ledger: Ledger) -> bytes:
    return ledger.written(Epoch(1, ledger.fold.base_seq, 0, 99, "zombie", Settings()))


def newer_kind(_: Ledger) -> bytes:
    return msgspec.msgpack.encode(("ledger.other", 1, [1], "9.7"))


def newer_kind_of_another(_: Ledger) -> bytes:
    return msgspec.msgpack.encode(("ledger.other", 1, [1], "9.7", b"x" * 16))


def newer_version(_: Ledger) -> bytes:
    return msgspec.msgpack.encode((Round.KIND, Round.VERSION + 1, [1], "9.7"))


def huge_version(_: Ledger) -> bytes:
    return msgspec.msgpack.encode((Round.KIND, 2**32, [1], "9.7", b"x" * 16))


def largest_version(_: Ledger) -> bytes:
    return msgspec.msgpack.encode((Epoch.KIND, 2**64 - 1, [1], "", b"x" * 16))


def unchained_leader(ledger: Ledger) -> bytes:
    return encode(Epoch(9, ledger.fold.base_seq, 0, 99, "thief", Settings()))


FOREIGN: list[tuple[Callable[[Ledger], bytes], str]] = [
    (garbage, UNREADABLE),
    (other_kind, OTHER_KIND),
    (no_value, UNCHAINED),
    (wrong_value, UNCHAINED),
    (other_sequence, UNCHAINED),
    (one_bit, UNCHAINED),
    (undecodable_body, UNCHAINED),
    (version_0, UNCHAINED),
    (past_epoch, PAST_EPOCH),
    (other_base, OTHER_BASE),
    (past_leader, PAST_EPOCH),
    (unchained_leader, UNCHAINED),
    (newer_kind, UNCHAINED),
    (newer_kind_of_another, UNCHAINED),
    (newer_version, UNCHAINED),
    (huge_version, UNCHAINED),
    (largest_version, UNCHAINED),
]


@pytest.mark.parametrize(("make", "why"), FOREIGN, ids=[make.__name__ for make, _ in FOREIGN])
def test_what_is_void_moves_the_head_is_counted_and_is_left_out_of_the_chain(
    make: Callable[[Ledger], bytes], why: str
) -> None:
    ledger = Ledger()
    ledger.append(ledger.written(ledger.place("a", 0)))
    before = ledger.fold.dump()
    link = ledger.fold.link(ledger.next, make(ledger))
    assert (link.void, link.facts_seq, link.digest) == (why, 0, before.chain)
    assert ledger.append(make(ledger)) == why
    after = ledger.fold.dump()
    assert (after.head, ledger.fold.base_seq, ledger.fold.voided) == (3, 3, 1)
    after.head = before.head
    assert after == before
    assert ledger.append(ledger.written(ledger.place("b", 1))) == ""
    assert set(ledger.fold.holdings) == {("a", 1), ("b", 1)}


@pytest.mark.parametrize(("kind", "version"), [(Round.KIND, Round.VERSION + 1), ("ledger.other", 1)])
def test_a_record_of_a_newer_release_stops_a_reader_and_is_named(kind: str, version: int) -> None:
    """With the right chain value its writer led."""
    ledger = Ledger()
    record = open_envelope(msgspec.msgpack.encode((kind, version, [1], "9.7")))
    record = msgspec.structs.replace(record, chain=chained(ledger.fold.chain, ledger.next, record))
    with pytest.raises(NewerVersionError, match=rf"record 2: {kind} of version {version} needs Berth 9\.7"):
        ledger.append(record.encode())
    assert ledger.fold.head == 1


def test_a_record_of_the_leader_that_does_not_decode_is_not_passed_over() -> None:
    """Another release may read it, and chips may be in it."""
    ledger = Ledger()
    good = open_envelope(ledger.written(ledger.place("a", 0)))
    for body in (b"\x91\x01", bytes(good.body)[:-1] + b"\xc1"):
        cut = msgspec.structs.replace(
            good, body=msgspec.Raw(msgspec.msgpack.encode([1, 1, 7, 20, 1, [[body]]])), chain=b""
        )
        cut = msgspec.structs.replace(cut, chain=chained(ledger.fold.chain, 2, cut))
        with pytest.raises(LedgerBrokenError, match=r"record 2 breaks the ledger: ledger\.round: does not decode"):
            ledger.append(cut.encode())
    headless = msgspec.structs.replace(good, body=msgspec.Raw(b"\x91\x01"))
    headless = msgspec.structs.replace(headless, chain=chained(ledger.fold.chain, 2, headless))
    with pytest.raises(LedgerBrokenError, match=r"record 2 breaks the ledger: ledger\.round: does not decode"):
        ledger.append(headless.encode())
    assert ledger.fold.head == 1


def test_chips_given_twice_break_the_ledger_for_a_reader_without_columns() -> None:
    ledger = Ledger()
    ledger.append(ledger.written(ledger.place("a", 0, 1)))
    before = ledger.fold.dump()
    with pytest.raises(LedgerBrokenError, match="record 3 of epoch 1 breaks the ledger: node n: a chip would have two"):
        ledger.append(ledger.written(ledger.place("b", 1, 2)))
    assert ledger.fold.dump() == before
    both = ledger.round(releases=[Release("a", 1, "succeeded")], verdicts=[Verdict("ns", "b", "b", 1, placed(1, 2))])
    assert ledger.append(ledger.written(both)) == "", "what a record gives back is free for what it gives"


def test_a_reader_that_starts_from_a_snapshot_knows_the_chain() -> None:
    ledger = Ledger()
    ledger.append(ledger.written(ledger.place("a", 0)))
    ledger.append(b"\xff")
    raw = msgspec.msgpack.encode(ledger.fold.dump())
    again = LedgerFold()
    again.load(msgspec.msgpack.decode(raw, type=LedgerDump))
    reader = ChainReader(position_of(SnapshotBody(3, 7, [], raw)))
    assert reader.position == ledger.reader.position
    data = ledger.written(ledger.place("b", 1))
    assert again.apply(4, data).void == reader.read(4, data).void == ""
    assert again.chain == reader.position.digest == open_envelope(data).chain


def test_the_position_in_a_snapshot_has_the_fields_of_the_folded_ledger() -> None:
    dump = LedgerDump(5, 3, "holder", Settings(), 0, 0, 0, [], [], chain=b"c" * 16)
    assert position_of(SnapshotBody(5, 0, [], msgspec.msgpack.encode(dump))) == Position(5, 3, b"c" * 16)


@pytest.mark.parametrize("make", [garbage, no_value, unchained_leader])
def test_before_the_first_epoch_too_only_what_is_chained_counts(make: Callable[[Ledger], bytes]) -> None:
    data = make(Ledger())
    fold = LedgerFold()
    assert fold.apply(1, data).void in {UNREADABLE, UNCHAINED}
    first = Epoch(1, 1, 0, 10, "a", Settings())
    assert fold.apply(2, fold.encoded(first)).void == ""


def test_the_digest_of_a_snapshot_is_over_facts_and_ledger() -> None:
    facts = [KeptFact("s", 1, b"data")]
    digest = state_digest(facts, b"ledger")
    assert digest == state_digest([KeptFact("s", 1, b"data")], b"ledger")
    assert digest not in {state_digest([], b"ledger"), state_digest(facts, b"ledges")}
