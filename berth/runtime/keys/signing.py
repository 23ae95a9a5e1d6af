"""Keys that sign messages: the own one out of credentials, and checks with public ones."""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from typing import Final

import nkeys  # type: ignore[import-untyped]  # it brings no types
from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from berth.formats.shortened import cut
from berth.runtime.keys.tokens import Key

_SEED: Final = re.compile(r"BEGIN USER NKEY SEED-+\s+(\S+)\s")
_PUBLIC_BYTES: Final = 35
"""Of a decoded public key: prefix, key, checksum."""
_CHECKSUM_BYTES: Final = 2
_SIGNATURE_BYTES: Final = 64
_LINES_MAX: Final = 256
_KEY_SHOWN: Final = 64


def verifiers(text: str) -> dict[str, Callable[[bytes, bytes], bool]]:
    """Checks by public key, out of a file: one key a line, and comments after ``#``.

    Raises:
        ValueError: A line is no public key of a user, or there is none.
    """
    keys = [key for line in text.splitlines() if (key := line.partition("#")[0].strip())]
    if not 0 < len(keys) <= _LINES_MAX:
        raise ValueError(f"expected 1 to {_LINES_MAX} public keys, one a line")
    return {key: verifier(key) for key in keys}


def own_key(credentials: str) -> Key:
    """Key in the text of a credentials file.

    Raises:
        ValueError: The text has no key.
    """
    found = _SEED.search(credentials)
    if found is None:
        raise ValueError("expected credentials with the seed of a key")
    return Key(found[1])


def signers_text(cell: str, keys: Iterable[tuple[str, str]]) -> str:
    """Content of the file that :func:`verifiers` reads.

    Args:
        cell: Name of the cell.
        keys: Each public key, and whose it is.
    """
    about = f"# Public keys of those who write the ledger of cell {cell}: bus.signers_file of each process."
    lines = [f"{public} # {whose}" for public, whose in keys]
    return "\n".join([about, "# Made by berth keys. It has no secrets.", *lines, ""])


def verifier(public: str) -> Callable[[bytes, bytes], bool]:
    """Check of signatures with the public key of a user: (text, signature) gives whether it is right.

    Raises:
        ValueError: The text is no public key of a user.
    """
    try:
        raw = base64.b32decode(public + "=" * (-len(public) % 8))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{cut(public, _KEY_SHOWN)!r} is no public key of a user") from error
    checksum = int.from_bytes(raw[-_CHECKSUM_BYTES:], "little")
    if (
        len(raw) != _PUBLIC_BYTES
        or raw[0] != nkeys.PREFIX_BYTE_USER
        or nkeys.crc16(bytearray(raw[:-_CHECKSUM_BYTES])) != checksum
    ):
        raise ValueError(f"{cut(public, _KEY_SHOWN)!r} is no public key of a user")
    key = VerifyKey(raw[1:-_CHECKSUM_BYTES])

    def is_right(text: bytes, signature: bytes) -> bool:
        if len(signature) != _SIGNATURE_BYTES:
            return False
        try:
            key.verify(text, signature)
        except BadSignatureError:
            return False
        return True

    return is_right
