"""Versions of messages that every reader must know, as ``docs/messages.md`` says: who writes and who reads which."""

import msgspec
import pytest

from berth.core.state.ledger import LedgerFold
from berth.schemas.catalogue import MESSAGES
from berth.schemas.chain import chained
from berth.schemas.envelope import LEDGER, DecodeError, NewerVersionError, body_of, decode, encode, open_envelope
from berth.schemas.facts import TimerSeen
from berth.schemas.ledger import Epoch, Round, Settings, facts_known, record_head
from berth.schemas.message import Message
from berth.schemas.status import SnapshotBody
from berth.schemas.versions import VERSIONS, Version, Versions, encode_record, withdrawn
from tests.contract.sample_messages import FOLDER, RELEASE, stored

MUST_READ = [message for message in MESSAGES if message.MUST_READ]
PLANTED: Versions = {**VERSIONS, Round.KIND: (Version(1), Version(2, "9.7", "strict_product_support"))}
"""A release in which rounds have a version 2."""


class Round2(Round, frozen=True):
    """Rounds as that release reads them."""

    VERSION = 2

    wanted: int = 0


each_must_read = pytest.mark.parametrize("message", MUST_READ, ids=lambda message: message.KIND)


def newer(kind: str, version: int, *, release: str = "9.7") -> bytes:
    body = msgspec.Raw(msgspec.msgpack.encode([1, 0, 4, 9]))
    return msgspec.msgpack.encode((kind, version, body, release) if release else (kind, version, body))


def test_all_kinds_of_the_ledger_and_snapshots_must_be_read_and_no_others() -> None:
    assert {message.KIND for message in MUST_READ} == set(VERSIONS)
    assert {message.KIND for message in MESSAGES if message.KIND.startswith(LEDGER)} | {SnapshotBody.KIND} == set(
        VERSIONS
    )


@each_must_read
def test_the_last_version_is_that_of_the_message_and_names_the_release_that_reads_it(message: type[Message]) -> None:
    last = VERSIONS[message.KIND][-1]
    assert (last.number, last.release) == (message.VERSION, "0.5")


def test_messages_that_may_be_skipped_have_one_version() -> None:
    assert {message.KIND for message in MESSAGES if message.VERSION != 1 and not message.MUST_READ} == set()


def test_a_setting_of_the_epoch_enables_a_version() -> None:
    record = Round(1, 1, 4, 9, 1)
    before = encode_record(record, Settings(), versions=PLANTED)
    after = encode_record(record, Settings(strict_product_support=True), versions=PLANTED)
    assert before == encode(record)
    envelope = open_envelope(after)
    assert (envelope.kind, envelope.version, envelope.release) == (Round.KIND, 2, "9.7")


def test_a_newer_release_reads_both_versions() -> None:
    record = Round(1, 1, 4, 9, 1)
    old, new = (encode_record(record, Settings(strict_product_support=on), versions=PLANTED) for on in (False, True))
    assert decode(old, Round2) == Round2(1, 1, 4, 9, 1)
    assert decode(new, Round2) == Round2(1, 1, 4, 9, 1)
    with pytest.raises(NewerVersionError):
        decode(encode(record, version=3, release="9.9"), Round2)


def test_a_version_that_was_enabled_cannot_be_withdrawn() -> None:
    on, off = Settings(strict_product_support=True), Settings()
    assert withdrawn(on, off, versions=PLANTED) == ["strict_product_support"]
    assert withdrawn(off, on, versions=PLANTED) == []
    assert withdrawn(on, on, versions=PLANTED) == []
    assert withdrawn(on, off) == []


@each_must_read
def test_an_older_release_says_which_one_it_needs(message: type[Message]) -> None:
    number = message.VERSION + 1
    with pytest.raises(NewerVersionError) as caught:
        body_of(open_envelope(newer(message.KIND, number)), message)
    assert str(caught.value) == f"{message.KIND} of version {number} needs Berth 9.7 or later"
    assert (caught.value.kind, caught.value.version, caught.value.release) == (message.KIND, number, "9.7")
    with pytest.raises(NewerVersionError, match="needs a newer release of Berth"):
        body_of(open_envelope(newer(message.KIND, number, release="")), message)


@pytest.mark.parametrize(
    ("kind", "version"), [(Epoch.KIND, Epoch.VERSION + 1), (Round.KIND, Round.VERSION + 1), ("ledger.hold", 1)]
)
def test_a_fold_stops_at_a_record_that_it_does_not_know(kind: str, version: int) -> None:
    fold = LedgerFold()
    fold.apply(1, fold.encoded(Epoch(1, 0, 0, 0, "a", Settings())))
    record = open_envelope(newer(kind, version))
    data = msgspec.structs.replace(record, chain=chained(fold.chain, 2, record)).encode()
    before = msgspec.to_builtins(fold.dump())
    for read in (facts_known, lambda found: record_head(open_envelope(found))):
        with pytest.raises(NewerVersionError):
            read(data)
    with pytest.raises(NewerVersionError, match=r"record 2: ledger\..* of version \d+ needs Berth 9\.7"):
        fold.apply(2, data)
    assert msgspec.to_builtins(fold.dump()) == before


@pytest.mark.parametrize("data", [encode(TimerSeen(7)), msgspec.msgpack.encode(("fact.weather", 4, []))])
def test_a_message_that_is_no_record_is_void_in_the_ledger(data: bytes) -> None:
    fold = LedgerFold()
    assert fold.apply(1, data).void
    assert facts_known(data) == 0


@pytest.mark.parametrize("kind", [Epoch.KIND, Round.KIND])
def test_there_is_no_version_0(kind: str) -> None:
    with pytest.raises(DecodeError, match="version is 0"):
        facts_known(newer(kind, 0, release=""))


@pytest.mark.parametrize(
    ("release", "kind"),
    [
        (folder.name, kind)
        for folder in sorted(FOLDER.iterdir())
        for kind in sorted(stored(folder.name))
        if kind in VERSIONS and folder.name != RELEASE
    ],
)
def test_records_and_snapshots_of_older_releases_are_read(release: str, kind: str) -> None:
    envelope = open_envelope(stored(release)[kind])
    assert (envelope.version, envelope.release) == (1, "")
    message = next(message for message in MUST_READ if kind == message.KIND)
    assert isinstance(body_of(envelope, message), message)
