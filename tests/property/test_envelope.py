"""Bytes from anywhere: a message, a DecodeError, or the version of another release; nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth.schemas.catalogue import MESSAGES
from berth.schemas.envelope import DecodeError, NewerVersionError, VersionError, body_of, decode, encode, open_envelope
from berth.schemas.intake import JobCancel
from berth.schemas.message import Message
from tests.contract.sample_messages import samples

SAMPLES = samples()
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
messages = st.sampled_from(MESSAGES)


def nothing_else(data: bytes, message: type[Message]) -> None:
    try:
        read = decode(data, message)
    except (DecodeError, VersionError):
        return
    assert decode(encode(read), message) == read


@given(st.binary(), messages)
def test_random_bytes(data: bytes, message: type[Message]) -> None:
    nothing_else(data, message)


@given(PLAIN, messages)
def test_random_values_as_an_envelope(value: object, message: type[Message]) -> None:
    nothing_else(msgspec.msgpack.encode(value), message)


@given(st.binary(), messages)
def test_random_bytes_as_a_body(body: bytes, message: type[Message]) -> None:
    nothing_else(b"\x93" + msgspec.msgpack.encode(message.KIND) + bytes([message.VERSION]) + body, message)


@given(st.lists(PLAIN, max_size=20), messages)
def test_random_values_as_a_body(body: list[object], message: type[Message]) -> None:
    nothing_else(msgspec.msgpack.encode([message.KIND, message.VERSION, body]), message)


@given(messages, st.data())
def test_a_message_with_a_damaged_byte(message: type[Message], data: st.DataObject) -> None:
    damaged = bytearray(encode(SAMPLES[message.KIND]))
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    nothing_else(bytes(damaged), message)


@given(st.text(), st.integers(-(2**63), 2**63 - 1), PLAIN)
def test_any_kind_and_version_open_and_are_skipped_or_refused(kind: str, version: int, body: object) -> None:
    envelope = open_envelope(msgspec.msgpack.encode([kind, version, body]))
    assert (envelope.kind, envelope.version) == (kind, version)
    for message in MESSAGES:
        if kind == message.KIND and version > message.VERSION and message.MUST_READ:
            with pytest.raises(NewerVersionError):
                body_of(envelope, message)
        elif (kind, version) != (message.KIND, message.VERSION):
            with pytest.raises(DecodeError) as caught:
                body_of(envelope, message)
            assert caught.value.kind == kind
            assert caught.value.reason


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.KIND)
def test_nesting_without_end(message: type[Message]) -> None:
    deep = b"\x91" * 1_000_000
    for data in (deep, b"\x93" + msgspec.msgpack.encode(message.KIND) + bytes([message.VERSION]) + deep + b"\x00"):
        with pytest.raises(DecodeError):
            decode(data, message)


@pytest.mark.parametrize("text", [b"\x80ead", b"\xed\xa0\x80"], ids=["no start byte", "surrogate"])
def test_text_that_is_not_utf8(text: bytes) -> None:
    packed = bytes([0xA0 + len(text)]) + text
    with pytest.raises(DecodeError):
        open_envelope(b"\x93" + packed + b"\x01\xc0")
    with pytest.raises(DecodeError, match=r"intake\.cancel: "):
        decode(b"\x93\xadintake.cancel\x01\x94" + b"\xa1a\xa1b" + packed + b"\xa0", JobCancel)
