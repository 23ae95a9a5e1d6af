"""Which messages of the ledger count by signatures, while a reader starts and afterwards."""

import msgspec
import pytest

from berth.core.state.ledger import LedgerFold
from berth.runtime.bus import ledger_seal
from berth.runtime.bus.ledger_seal import LedgerSeal
from berth.runtime.bus.port import Stored
from berth.runtime.bus.signatures import Signatures, Signed
from berth.schemas.chain import UNCHAINED, UNSIGNED
from berth.schemas.envelope import encode
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings, Verdict
from berth.schemas.subjects import Subjects
from berth.schemas.versions import encode_record
from tests.support.signing_keys import Signer, signer

SUBJECTS = Subjects("default")
LEADER, NEXT, READER, FORGER = (signer(number) for number in range(1, 5))
ALL = READER.knowing(LEADER, NEXT)


class Stream:
    """A ledger, with what its leader counts in it."""

    def __init__(self) -> None:
        self.fold = LedgerFold()
        self.stored: list[Stored] = []
        self.forged: set[int] = set()

    @property
    def next(self) -> int:
        return len(self.stored) + 1

    def record(self, message: Epoch | Round) -> bytes:
        return self.fold.encoded(message)

    def epoch(self, by: Signer | None, *, epoch: int = 0) -> None:
        fold = self.fold
        self.write(self.record(Epoch(epoch or fold.epoch + 1, fold.base_seq, 0, 1, "a", Settings())), by)

    def rounds(self, count: int, by: Signer | None) -> None:
        for _ in range(count):
            self.write(self.record(self.round()), by)

    def round(self) -> Round:
        fold = self.fold
        return Round(fold.epoch, fold.base_seq, 0, 1, fold.rounds + 1)

    def write(self, data: bytes, by: Signer | None) -> None:
        """Store what the leader writes and counts."""
        headers = by.knowing().headers(SUBJECTS, SUBJECTS.ledger, data, self.next) if by is not None else None
        self.fold.apply(self.next, data)
        self.stored.append(Stored(SUBJECTS.ledger, self.next, data, 0, headers))

    def forge(self, data: bytes, headers: dict[str, str] | None = None) -> None:
        """Store what the leader passes over."""
        self.forged.add(self.next)
        self.fold.apply(self.next, b"\xff")
        self.stored.append(Stored(SUBJECTS.ledger, self.next, data, 0, headers))

    def forge_round(self, *, by: Signer | None = FORGER) -> None:
        """Store a round with the right chain value, as one who reads the ledger can make it."""
        data = self.record(self.round())
        self.forge(data, by.knowing().headers(SUBJECTS, SUBJECTS.ledger, data, self.next) if by else None)

    def judged(
        self, signatures: Signatures = ALL, *, end: int | None = None, start: int = 1, in_force: bool = False
    ) -> "Result":
        """What a reader is given that starts when the stream ends at ``end``."""
        seal = LedgerSeal(signatures, is_in_force=in_force, end=len(self.stored) if end is None else end)
        found = [one for stored in self.stored[start - 1 :] for one in seal.judge(stored)]
        return Result([one.stored.sequence for one in found], {one.stored.sequence: one.data for one in found}, seal)


class Result:
    """What a reader was given."""

    def __init__(self, order: list[int], data: dict[int, bytes], seal: LedgerSeal) -> None:
        self.order = order
        self.data = data
        self.seal = seal

    def voids(self) -> dict[int, str]:
        """Sequences that count for nothing, and why, for the fold of this reader."""
        fold = LedgerFold()
        return {at: why for at in self.order if (why := fold.apply(at, self.data[at]).void)}


def agrees(stream: Stream, result: Result) -> bool:
    """Whether a reader counts what the leader counts, and nothing else."""
    return result.order == [one.sequence for one in stream.stored] and set(result.voids()) == stream.forged


@pytest.fixture(params=[0, 3, None], ids=["late", "in the middle", "at the start"])
def end(request: pytest.FixtureRequest) -> int | None:
    """Up to where the stream reaches when the reader starts."""
    found: int | None = request.param
    return found


def test_a_forged_round_with_the_right_chain_value_is_void_for_each_reader(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(2, LEADER)
    stream.forge_round()
    stream.rounds(2, LEADER)
    stream.forge_round(by=None)
    result = stream.judged(end=end)
    assert agrees(stream, result)
    assert result.voids() == {4: UNSIGNED, 7: UNSIGNED}


def test_a_forged_epoch_deposes_nobody(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.forge(stream.record(Epoch(99, 1, 0, 1, "forger", Settings())))
    stream.rounds(1, LEADER)
    assert agrees(stream, stream.judged(end=end))
    assert stream.fold.epoch == 1


def test_a_copy_of_the_newest_record_with_its_signature_hides_nothing(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(3, LEADER)
    last = stream.stored[-1]
    stream.forge(last.data, dict(last.headers or {}))
    assert agrees(stream, stream.judged(end=end))


def test_a_message_with_the_chain_value_of_a_record_does_not_take_its_place(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(1, LEADER)
    stream.forge(stream.stored[-1].data)
    stream.rounds(1, LEADER)
    assert agrees(stream, stream.judged(end=end))


def test_what_is_of_another_kind_stays_as_it_is(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.forge(encode(TimerSeen(5)))
    stream.rounds(1, LEADER)
    result = stream.judged(end=end)
    assert agrees(stream, result)
    assert result.data[2] == encode(TimerSeen(5))


def test_bytes_without_form_are_void(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.forge(b"\xff\x00")
    stream.rounds(1, LEADER)
    assert agrees(stream, stream.judged(end=end))


def test_history_from_before_the_keys_counts() -> None:
    stream = Stream()
    stream.epoch(None)
    stream.rounds(3, None)
    assert agrees(stream, stream.judged()), "nothing is signed yet"
    stream.epoch(LEADER)
    stream.rounds(1, LEADER)
    assert agrees(stream, stream.judged())
    stream.forge_round()
    assert agrees(stream, stream.judged())


def test_after_a_change_of_keys_several_count_and_the_old_one_can_be_taken_away() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(3, LEADER)
    stream.epoch(NEXT)
    stream.rounds(2, NEXT)
    assert agrees(stream, stream.judged())
    assert agrees(stream, stream.judged(READER.knowing(NEXT), in_force=True)), "what the new one has confirmed counts"


def test_a_reader_that_lacks_a_key_ends_when_its_records_are_confirmed() -> None:
    stream = Stream()
    stream.epoch(NEXT)
    stream.rounds(1, NEXT)
    stream.rounds(1, LEADER)
    stream.epoch(NEXT)
    lacking = READER.knowing(NEXT)
    late = stream.judged(lacking, end=2)
    assert late.seal.wrong == 3
    assert agrees(stream, stream.judged(lacking)), "the next start finds it confirmed"


def test_a_late_record_and_a_forged_one_end_no_reader() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    late, chain = stream.round(), stream.fold.chain
    stream.epoch(NEXT)
    data = encode_record(late, chain=chain, sequence=stream.next)
    stream.forge(data, LEADER.knowing().headers(SUBJECTS, SUBJECTS.ledger, data, stream.next))
    stream.forge_round()
    stream.rounds(1, NEXT)
    result = stream.judged(end=0)
    assert agrees(stream, result)
    assert result.seal.wrong == 0


def test_a_message_that_was_delivered_in_place_of_a_record_ends_a_reader() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(3, LEADER)
    seal = LedgerSeal(ALL, is_in_force=False, end=0)
    for stored in stream.stored[:2]:
        seal.judge(stored)
    seal.judge(stream.stored[2]._replace(data=b"another", headers=None))
    assert seal.wrong == 0
    seal.judge(stream.stored[3])
    assert seal.wrong == 3


def test_large_records_are_not_held_back_for_long() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    seal = LedgerSeal(ALL, is_in_force=False, end=100)
    assert seal.judge(stream.stored[0]) == []
    verdict = Verdict("ns", "x" * ledger_seal._PART_BYTES, "uid", 1)
    stream.write(stream.record(msgspec.structs.replace(stream.round(), verdicts=[verdict])), LEADER)
    assert [one.stored.sequence for one in seal.judge(stream.stored[1])] == [1, 2]


def test_the_newest_records_of_an_unknown_key_are_void_while_nobody_confirms_them() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(2, FORGER)
    assert stream.judged().voids() == {2: UNSIGNED, 3: UNSIGNED}


def test_a_forged_record_behind_a_snapshot_is_void_also_if_nothing_signed_follows() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.forge_round()
    result = stream.judged(start=2, in_force=True)
    fold = LedgerFold()
    fold.apply(1, stream.stored[0].data)
    assert fold.apply(2, result.data[2]).void == UNSIGNED


def test_a_start_checks_few_signatures_of_many_records() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(1000, LEADER)
    checked: list[int] = []

    class Counting(Signatures):
        def is_record(self, stored: Signed) -> bool:
            checked.append(stored.sequence)
            return ALL.is_record(stored)

    counting = Counting({LEADER.key.public: lambda *_: True})
    assert agrees(stream, stream.judged(counting))
    assert len(checked) == -(-1001 // ledger_seal._PART)


def test_forged_messages_between_all_records_hide_none_of_them() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    for _ in range(300):
        stream.forge_round(by=None)
        stream.rounds(1, LEADER)
    stream.forge_round()
    assert agrees(stream, stream.judged())
    assert agrees(stream, stream.judged(end=200))


def test_late_records_of_a_leader_that_was_replaced_hide_none_of_its_successor(end: int | None) -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(2, LEADER)
    late = stream.round()
    chain = stream.fold.chain
    stream.epoch(NEXT)
    data = encode_record(late, chain=chain, sequence=stream.next)
    stream.forge(data, LEADER.knowing().headers(SUBJECTS, SUBJECTS.ledger, data, stream.next))
    result = stream.judged(end=end)
    assert agrees(stream, result)
    assert result.data[5] == data, "it is void for the fold, which knows why"


def test_without_keys_all_is_given_as_it_is() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.forge_round()
    stream.rounds(1, LEADER)
    result = stream.judged(Signatures())
    assert [result.data[at] for at in result.order] == [one.data for one in stream.stored]
    assert result.voids() == {3: UNCHAINED}, "the reader takes the forged one for a record"


def test_messages_of_which_the_last_were_deleted_are_judged_at_the_end() -> None:
    stream = Stream()
    stream.epoch(LEADER)
    stream.rounds(2, LEADER)
    seal = LedgerSeal(ALL, is_in_force=False, end=9)
    assert [one for stored in stream.stored for one in seal.judge(stored)] == []
    assert [one.is_void for one in seal.rest()] == [False] * 3
