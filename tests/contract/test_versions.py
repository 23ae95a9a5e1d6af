"""Versions of messages that every reader must know, as ``docs/messages.md`` says: who writes and who reads which."""

import msgspec
import pytest

from berth.core.state.ledger import LedgerFold, dump_of
from berth.schemas.catalogue import MESSAGES
from berth.schemas.chain import chained
from berth.schemas.envelope import (
    LEDGER,
    DecodeError,
    NewerVersionError,
    OlderVersionError,
    body_of,
    encode,
    open_envelope,
)
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings, facts_known, record_head
from berth.schemas.message import BASELINE, Message
from berth.schemas.recording import BackupHead, RecordingHead
from berth.schemas.rules import StatedRule, UnknownRuleError
from berth.schemas.status import SnapshotBody

MUST_READ = [message for message in MESSAGES if message.MUST_READ]
HEADS: list[type[Message]] = [SnapshotBody, RecordingHead, BackupHead]

each_must_read = pytest.mark.parametrize("message", MUST_READ, ids=lambda message: message.KIND)


def other(kind: str, version: int, *, release: str = "9.7") -> bytes:
    body = msgspec.Raw(msgspec.msgpack.encode([1, 0, 4, 9]))
    return msgspec.msgpack.encode((kind, version, body, release) if release else (kind, version, body))


def test_all_kinds_of_the_ledger_snapshots_recordings_and_backups_must_be_read_and_no_others() -> None:
    records = {message.KIND for message in MESSAGES if message.KIND.startswith(LEDGER)}
    assert {message.KIND for message in MUST_READ} == records | {message.KIND for message in HEADS}


def test_what_must_be_read_has_the_version_of_the_baseline_and_all_else_the_first() -> None:
    assert {message.VERSION for message in MUST_READ} == {BASELINE}
    assert {message.VERSION for message in MESSAGES if not message.MUST_READ} == {1}


@each_must_read
def test_an_older_release_says_which_one_it_needs(message: type[Message]) -> None:
    number = message.VERSION + 1
    with pytest.raises(NewerVersionError) as caught:
        body_of(open_envelope(other(message.KIND, number)), message)
    assert str(caught.value) == f"{message.KIND} of version {number} needs Berth 9.7 or later"
    assert (caught.value.kind, caught.value.version, caught.value.release) == (message.KIND, number, "9.7")
    with pytest.raises(NewerVersionError, match="needs a newer release of Berth"):
        body_of(open_envelope(other(message.KIND, number, release="")), message)


@pytest.mark.parametrize(
    ("kind", "version"), [(Epoch.KIND, Epoch.VERSION + 1), (Round.KIND, Round.VERSION + 1), ("ledger.hold", 1)]
)
def test_a_fold_stops_at_a_record_that_it_does_not_know(kind: str, version: int) -> None:
    fold = LedgerFold()
    fold.apply(1, fold.encoded(Epoch(1, 0, 0, 0, "a", Settings())))
    record = open_envelope(other(kind, version))
    data = msgspec.structs.replace(record, chain=chained(fold.chain, 2, record)).encode()
    before = msgspec.to_builtins(fold.dump())
    for read in (facts_known, lambda found: record_head(open_envelope(found))):
        with pytest.raises(NewerVersionError):
            read(data)
    with pytest.raises(NewerVersionError, match=r"record 2: ledger\..* of version \d+ needs Berth 9\.7"):
        fold.apply(2, data)
    assert msgspec.to_builtins(fold.dump()) == before


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            StatedRule("tides", {"high": 3}),
            "record 2: rule 'tides' is unknown here: a newer release of Berth is needed",
        ),
        (StatedRule("easy", {"reserve_chips": 8, "depth": 2}), "record 2: rule 'easy' has other parameters than here"),
        (StatedRule("easy"), "record 2: rule 'easy' has other parameters than here"),
    ],
)
def test_a_fold_stops_at_an_epoch_with_a_rule_that_it_lacks(rule: StatedRule, sentence: str) -> None:
    fold = LedgerFold()
    fold.apply(1, fold.encoded(Epoch(1, 0, 0, 0, "a", Settings(), rules=[StatedRule("fifo")])))
    before = fold.dump()
    epoch = Epoch(2, 1, 0, 0, "a", Settings(), rules=[StatedRule("fifo"), rule])
    with pytest.raises(UnknownRuleError) as caught:
        fold.apply(2, fold.encoded(epoch))
    assert str(caught.value).startswith(sentence)
    assert fold.dump() == before
    snapshot = msgspec.structs.replace(before, rules=epoch.rules)
    with pytest.raises(UnknownRuleError, match=f"rule '{rule.name}'"):
        dump_of(msgspec.msgpack.encode(snapshot))
    fold.apply(2, fold.encoded(msgspec.structs.replace(epoch, epoch=1)))  # of an epoch that is past: void
    assert fold.voided == 1


@pytest.mark.parametrize("kind", [Epoch.KIND, Round.KIND])
def test_a_fold_stops_at_a_record_of_a_release_before_0_5(kind: str) -> None:
    fold = LedgerFold()
    with pytest.raises(OlderVersionError, match=rf"record 1: {kind} of version 1 was written by a release before 0\.5"):
        fold.apply(1, other(kind, 1, release=""))
    assert fold.head == 0


def test_behind_a_record_that_counts_one_of_such_a_release_is_void() -> None:
    fold = LedgerFold()
    fold.apply(1, fold.encoded(Epoch(1, 0, 0, 0, "a", Settings())))
    assert fold.apply(2, other(Round.KIND, 1, release="")).void


@pytest.mark.parametrize("data", [encode(TimerSeen(7)), msgspec.msgpack.encode(("fact.weather", 4, []))])
def test_a_message_that_is_no_record_is_void_in_the_ledger(data: bytes) -> None:
    fold = LedgerFold()
    assert fold.apply(1, data).void
    assert facts_known(data) == 0


@pytest.mark.parametrize("kind", [Epoch.KIND, Round.KIND])
def test_there_is_no_version_0(kind: str) -> None:
    with pytest.raises(DecodeError, match="version is 0"):
        facts_known(other(kind, 0, release=""))
