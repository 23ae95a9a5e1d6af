"""Stored bytes decode, readers and writers of other fields read one another, and broken bytes are told apart."""

import msgspec
import pytest

from berth.schemas.catalogue import MESSAGES
from berth.schemas.envelope import (
    DecodeError,
    Envelope,
    NewerVersionError,
    OlderVersionError,
    body_of,
    decode,
    encode,
    open_envelope,
)
from berth.schemas.facts import TimerSeen
from berth.schemas.message import BASELINE_RELEASE, Message
from tests.contract.sample_messages import RELEASE, samples, stored

BY_KIND = {message.KIND: message for message in MESSAGES}

every_kind = pytest.mark.parametrize("kind", sorted(BY_KIND))


def wrapped(kind: str, version: int, body: bytes) -> bytes:
    return msgspec.msgpack.encode((kind, version, msgspec.Raw(body)))


def body_items(message: Message) -> list[object]:
    items: list[object] = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
    return items


def test_every_message_has_a_sample_and_stored_bytes_of_this_release() -> None:
    assert sorted(samples()) == sorted(BY_KIND)
    assert sorted(stored(RELEASE)) == sorted(BY_KIND), "run `make samples`"


@every_kind
def test_stored_bytes_decode_to_the_message(kind: str) -> None:
    assert decode(stored(RELEASE)[kind], BY_KIND[kind]) == samples()[kind]


@every_kind
def test_this_release_writes_the_stored_bytes(kind: str) -> None:
    assert encode(samples()[kind]) == stored(RELEASE)[kind]


@every_kind
def test_a_sample_has_a_value_in_every_field(kind: str) -> None:
    message = samples()[kind]
    left = [
        field.name
        for field in msgspec.structs.fields(message)
        if not field.required and getattr(message, field.name) == field.default
    ]
    assert left == []


@every_kind
def test_an_old_reader_skips_a_field_that_a_new_writer_appended(kind: str) -> None:
    message = samples()[kind]
    longer = msgspec.msgpack.encode([*body_items(message), {"new": ["field"]}])
    assert decode(wrapped(kind, message.VERSION, longer), BY_KIND[kind]) == message


@every_kind
def test_a_new_reader_takes_defaults_for_fields_that_an_old_writer_did_not_know(kind: str) -> None:
    message = samples()[kind]
    fields = msgspec.structs.fields(message)
    required = sum(field.required for field in fields)
    shorter = msgspec.msgpack.encode(body_items(message)[:required])
    read = decode(wrapped(kind, message.VERSION, shorter), BY_KIND[kind])
    for position, field in enumerate(fields):
        want = getattr(message, field.name) if position < required else default(field)
        assert getattr(read, field.name) == want


def default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


@every_kind
def test_a_body_that_lacks_a_required_field_is_broken(kind: str) -> None:
    message = samples()[kind]
    required = sum(field.required for field in msgspec.structs.fields(message))
    short = msgspec.msgpack.encode(body_items(message)[: required - 1])
    with pytest.raises(DecodeError) as caught:
        decode(wrapped(kind, message.VERSION, short), BY_KIND[kind])
    assert caught.value.kind == kind


@every_kind
def test_bytes_that_are_cut_off_are_broken_wherever_the_cut_is(kind: str) -> None:
    data = stored(RELEASE)[kind]
    for end in range(len(data)):
        with pytest.raises(DecodeError):
            decode(data[:end], BY_KIND[kind])


@every_kind
def test_a_version_that_this_release_does_not_read_is_refused(kind: str) -> None:
    message = samples()[kind]
    expected = NewerVersionError if message.MUST_READ else DecodeError
    words = f"of version {message.VERSION + 1}" if message.MUST_READ else f"version is {message.VERSION + 1}"
    data = wrapped(kind, message.VERSION + 1, msgspec.msgpack.encode(message))
    with pytest.raises(expected, match=words):
        decode(data, BY_KIND[kind])
    with pytest.raises(DecodeError, match="version is 0"):
        decode(wrapped(kind, 0, msgspec.msgpack.encode(message)), BY_KIND[kind])


@pytest.mark.parametrize("kind", [kind for kind in sorted(BY_KIND) if BY_KIND[kind].MUST_READ])
def test_what_a_release_before_0_5_wrote_is_refused_with_what_to_do(kind: str) -> None:
    data = wrapped(kind, 1, msgspec.msgpack.encode(samples()[kind]))
    with pytest.raises(
        OlderVersionError, match=rf"^{kind} of version 1 was written by a release before 0\.5, .* empty"
    ):
        decode(data, BY_KIND[kind])


@every_kind
def test_another_kind_is_refused(kind: str) -> None:
    other = next(name for name in BY_KIND if name != kind)
    with pytest.raises(DecodeError, match="kind is"):
        decode(encode(samples()[kind]), BY_KIND[other])


@every_kind
def test_an_envelope_keeps_its_body_apart(kind: str) -> None:
    envelope = open_envelope(memoryview(stored(RELEASE)[kind]))
    assert (envelope.kind, envelope.version) == (kind, BY_KIND[kind].VERSION)
    assert body_of(envelope, BY_KIND[kind]) == samples()[kind]


def test_an_envelope_of_an_unknown_kind_opens_and_can_be_skipped() -> None:
    envelope = open_envelope(wrapped("fact.weather", 4, msgspec.msgpack.encode({"rain": True})))
    assert (envelope.kind, envelope.version) == ("fact.weather", 4)


def test_an_envelope_with_appended_fields_opens() -> None:
    data = msgspec.msgpack.encode(("fact.timer", 1, msgspec.Raw(msgspec.msgpack.encode([5])), "trace"))
    assert decode(data, TimerSeen) == TimerSeen(at_ms=5)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x90", b"text", msgspec.msgpack.encode({"kind": "fact.timer"}), msgspec.msgpack.encode([1, 2, 3])],
    ids=["empty", "never used", "no fields", "text", "a map", "other types"],
)
def test_bytes_that_are_no_envelope_are_broken(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not an envelope"):
        open_envelope(data)


def test_the_path_of_the_wrong_field_is_named() -> None:
    with pytest.raises(DecodeError, match=r"fact\.timer: Expected `int` >= 0 - at `\$\[0\]`"):
        decode(wrapped("fact.timer", 1, msgspec.msgpack.encode([-1])), TimerSeen)


def test_an_envelope_is_made_of_three_fields_a_release_and_a_chain_value() -> None:
    assert [field.name for field in msgspec.structs.fields(Envelope)] == ["kind", "version", "body", "release", "chain"]
    assert open_envelope(encode(TimerSeen(5))).release == ""
    assert open_envelope(encode(samples()["snapshot"])).release == BASELINE_RELEASE
