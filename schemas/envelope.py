"""Envelope of messages: kind and version outside, body as raw bytes inside.

A reader skips an unknown kind without decoding its body. Two exceptions stop the reader: other versions of messages
with ``MUST_READ`` (:func:`body_of`), and unknown kinds of the ledger (``LedgerFold.apply``). ``docs/messages.md``
states the rule.
"""

from typing import Final, TypeVar

import msgspec

from berth.schemas.message import BASELINE, BASELINE_RELEASE, Message, msgpack_decoder

M = TypeVar("M", bound=Message)
_REASON_MAX: Final = 1_000
_KIND_MAX: Final = 100
LEDGER: Final = "ledger."
"""Prefix of the kinds that the ledger consists of."""


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class Envelope(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Outer form of every message: ``[kind, version, body]``, then ``release`` and ``chain`` where there are any."""

    kind: str
    version: int
    body: msgspec.Raw
    release: str = ""
    """First release that reads this version of the kind; empty for messages that every release reads."""
    chain: bytes = b""
    """Digest of a record of the ledger and of all before it (``berth.schemas.chain``); empty for other messages."""

    def encode(self) -> bytes:
        """The bytes, without the elements that are empty at the end."""
        if self.chain:
            return _ENCODER.encode((self.kind, self.version, self.body, self.release, self.chain))
        if self.release:
            return _ENCODER.encode((self.kind, self.version, self.body, self.release))
        return _ENCODER.encode((self.kind, self.version, self.body))


class DecodeError(ValueError):
    """Bytes that are not the expected message.

    Attributes:
        reason: What is wrong, with the path of the field where one is known, cut to 1,000 characters.
        kind: Kind of the envelope, cut to 100 characters; empty if the envelope itself is broken.
    """

    def __init__(self, reason: str, *, kind: str = "") -> None:
        self.reason = _cut(reason, _REASON_MAX)
        self.kind = _cut(kind, _KIND_MAX)
        super().__init__(f"{self.kind}: {self.reason}" if kind else self.reason)


class VersionError(Exception):
    """Something that only another release reads, and without which this one must not go on.

    It is no :class:`DecodeError`: code that skips what does not decode must not skip it. A process ends with exit code
    2, and changes nothing.

    Attributes:
        release: First release that reads it; empty if that is not known.
    """

    release: str = ""


class NewerVersionError(VersionError):
    """A message that only a newer release reads.

    Attributes:
        kind: Kind of the message.
        version: Its version.
        sequence: Its sequence in the ledger; 0 where that is not known.
    """

    def __init__(self, envelope: Envelope, *, sequence: int = 0) -> None:
        self.kind, self.version, self.release = envelope.kind, envelope.version, envelope.release
        self.sequence = sequence
        needed = f"Berth {_cut(self.release, _KIND_MAX)} or later" if self.release else "a newer release of Berth"
        where = f"record {sequence}: " if sequence else ""
        super().__init__(f"{where}{_cut(self.kind, _KIND_MAX)} of version {self.version} needs {needed}")


class OlderVersionError(VersionError):
    """What a release before 0.5.0 wrote: a message, or the streams of its cell.

    Args:
        what: What it is, as the subject of a sentence.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} was written by a release before {BASELINE_RELEASE}, of which this one reads nothing: use that"
            " release for it, or begin on empty streams (docs/upgrading.md)"
        )


_ENCODER: Final = msgspec.msgpack.Encoder()
_ENVELOPE: Final = msgspec.msgpack.Decoder(Envelope)
_BROKEN: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec. Text that is not UTF-8 and unbounded nesting raise errors that are not its own."""


def encode(message: Message) -> bytes:
    """Encode a message in its envelope. The bytes depend on the message alone."""
    return sealed(message).encode()


def sealed(message: Message) -> Envelope:
    """A message in its envelope."""
    release = BASELINE_RELEASE if message.MUST_READ else ""
    return Envelope(message.KIND, message.VERSION, msgspec.Raw(_ENCODER.encode(message)), release)


def open_envelope(data: bytes | memoryview) -> Envelope:
    """Decode the envelope without its body.

    Raises:
        DecodeError: The bytes are not an envelope.
    """
    try:
        return _ENVELOPE.decode(data)
    except _BROKEN as error:
        raise DecodeError(f"not an envelope [kind, version, body]: {error}") from error


def check_version(envelope: Envelope, known: int, *, sequence: int = 0) -> None:
    """Check that a message that every reader must know has the version that this release reads, or none that exists.

    Args:
        envelope: The message.
        known: The version.
        sequence: Its sequence in the ledger; 0 where that is not known.

    Raises:
        NewerVersionError: Only a newer release reads it.
        OlderVersionError: A release before 0.5 wrote it.
    """
    if envelope.version > known:
        raise NewerVersionError(envelope, sequence=sequence)
    check_not_older(envelope, known, sequence=sequence)


def check_not_older(envelope: Envelope, known: int = BASELINE, *, sequence: int = 0) -> None:
    """Check that no release before 0.5 wrote a message; see :func:`check_version`.

    Raises:
        OlderVersionError: A release before 0.5 wrote the message.
    """
    if 1 <= envelope.version < known:
        where = f"record {sequence}: " if sequence else ""
        raise OlderVersionError(f"{where}{_cut(envelope.kind, _KIND_MAX)} of version {envelope.version}")


def body_of(envelope: Envelope, message: type[M]) -> M:
    """Decode the body as ``message``.

    Raises:
        DecodeError: Another kind, a version that this release does not read, or a wrong body.
        VersionError: Only another release reads this version, and the message has ``MUST_READ``.
    """
    if envelope.kind != message.KIND:
        raise DecodeError(f"kind is {envelope.kind!r}, expected {message.KIND!r}", kind=envelope.kind)
    if message.MUST_READ:
        check_version(envelope, message.VERSION)
    if envelope.version != message.VERSION:
        raise DecodeError(f"version is {envelope.version}, this release reads {message.VERSION}", kind=envelope.kind)
    try:
        return msgpack_decoder(message).decode(envelope.body)
    except _BROKEN as error:
        raise DecodeError(str(error), kind=envelope.kind) from error


def decode(data: bytes | memoryview, message: type[M]) -> M:
    """Decode the envelope, and its body as ``message``.

    Raises:
        DecodeError: See :func:`open_envelope` and :func:`body_of`.
        VersionError: See :func:`body_of`.
    """
    return body_of(open_envelope(data), message)
