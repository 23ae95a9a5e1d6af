"""Signatures of messages that only a leader, or a person who repairs or restores, may write. See decision signatures.

A signature is a header: the public key of the writer, a number, and the signature in base64. It is over a fixed word,
the subject, the number, and a digest of the bytes. The number binds a message to its place: it is the sequence of a
record of the ledger, and the sequence of the message that a lease replaces.

Without public keys nothing is signed and nothing is checked.
"""

import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

from berth.runtime.config import BusConfig, ConfigError, text_of_setting
from berth.schemas.subjects import Subjects

HEADER: Final = "Berth-Signature"
_WORD: Final = b"berth signature 1\x00"
_SIGNED: Final = frozenset({"ledger", "lease", "skip"})
"""First tokens of the subjects of a cell whose messages are signed."""
_DIGEST_BYTES: Final = 32
_DIGITS_MAX: Final = 20
_OWN_MAX: Final = 1024
"""Own signatures that are remembered: a process reads what it wrote soon after."""

_Content = TypeVar("_Content")
Verify = Callable[[bytes, bytes], bool]
"""Whether a signature (second) of a text (first) is right."""
Sign = Callable[[bytes], bytes]


class Signed(Protocol):
    """A stored message, as far as its signature is about it."""

    @property
    def subject(self) -> str:
        """Where it was published."""
        ...

    @property
    def sequence(self) -> int:
        """Its number in its stream."""
        ...

    @property
    def data(self) -> bytes:
        """Its bytes."""
        ...

    @property
    def headers(self) -> Mapping[str, str] | None:
        """Its headers; None without any."""
        ...


class Signatures:
    """Signs and checks messages.

    Args:
        known: For the public key of each writer whose signature counts, its check; empty: nothing is signed or checked.
        public: Own public key; empty without one.
        sign: Makes a signature with the own key.
    """

    def __init__(
        self, known: Mapping[str, Verify] | None = None, *, public: str = "", sign: Sign | None = None
    ) -> None:
        self._known = dict(known or {})
        self._public = public
        self._sign = sign if public in self._known else None
        self._own: OrderedDict[bytes, None] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether messages are signed and checked."""
        return bool(self._known)

    def headers(self, subjects: Subjects, subject: str, data: bytes, number: int) -> dict[str, str]:
        """Headers with the signature of a message; none while signatures are off, and for other messages.

        Args:
            subjects: Of the cell.
            subject: Where it is published.
            data: Its bytes.
            number: Sequence that a record gets, or of the message that a lease replaces.

        Raises:
            ConfigError: The key of this process is not one of the known ones: what it writes would count for nothing.
        """
        if not self._known or subject.removeprefix(subjects.root).partition(".")[0] not in _SIGNED:
            return {}
        if self._sign is None:
            raise ConfigError(
                field="bus.signers_file",
                expected=f"the file must have the public key of this process, for it writes {subject}:"
                f" {self._public or 'bus.creds_file has none'}",
            )
        text = _text(subject, data, number)
        self._own[text] = None
        if len(self._own) > _OWN_MAX:
            self._own.popitem(last=False)
        return {HEADER: f"{self._public} {number} {base64.b64encode(self._sign(text)).decode()}"}

    def number_of(self, stored: Signed) -> int | None:
        """Number in the signature of a message; None if it has no valid one of a known key."""
        parts = (stored.headers or {}).get(HEADER, "").split(" ")
        if len(parts) != 3 or not _is_number(parts[1]):  # noqa: PLR2004  # key, number, signature
            return None
        verify = self._known.get(parts[0])
        if verify is None:
            return None
        number = int(parts[1])
        text = _text(stored.subject, stored.data, number)
        if parts[0] == self._public and text in self._own:
            return number
        try:
            signature = base64.b64decode(parts[2], validate=True)
        except (binascii.Error, ValueError):
            return None
        return number if verify(text, signature) else None

    def counts(self, stored: Signed) -> bool:
        """Whether a message may count that is not bound to a place; always while signatures are off."""
        return not self._known or self.number_of(stored) is not None

    def is_record(self, stored: Signed) -> bool:
        """Whether a message of the ledger has a valid signature for its sequence."""
        return self.number_of(stored) == stored.sequence


def signatures_of(config: BusConfig) -> Signatures | None:
    """Read the keys in the settings; None if they name none.

    Raises:
        ConfigError: A public key is none, or the credentials cannot be read.
    """
    if config.signers_file is None:
        return None
    from berth.runtime.keys.signing import own_key, verifiers  # noqa: PLC0415  # libraries that few need

    known = _read("bus.signers_file", config.signers_file, verifiers)
    if config.creds_file is None:
        return Signatures(known)
    key = _read("bus.creds_file", config.creds_file, own_key)
    return Signatures(known, public=key.public, sign=key.sign_bytes)


def _read(field: str, path: Path, read: Callable[[str], _Content]) -> _Content:
    """Content of a file of the settings.

    Raises:
        ConfigError: It cannot be read, or has no such content.
    """
    text = text_of_setting(field, path)
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(field=field, value=repr(str(path)), expected=str(error)) from error


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX


def _text(subject: str, data: bytes, number: int) -> bytes:
    """What is signed; the digest is at the end, so that no part can run into the next."""
    digest = hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return b"%b%b\x00%d\x00%b" % (_WORD, subject.encode(), number, digest)
