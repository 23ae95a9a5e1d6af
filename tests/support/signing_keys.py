"""Signatures of processes in tests: each has a key, and knows those of some."""

import hashlib
from typing import NamedTuple

from berth.runtime.bus.signatures import Signatures
from berth.runtime.keys.signing import verifier
from berth.runtime.keys.tokens import Key, user_key


class Signer(NamedTuple):
    """A writer."""

    key: Key

    def knowing(self, *others: "Signer") -> Signatures:
        """Its signatures, if it knows itself and some others."""
        known = {one.key.public: verifier(one.key.public) for one in (self, *others)}
        return Signatures(known, public=self.key.public, sign=self.key.sign_bytes)

    def alone_knowing(self, *others: "Signer") -> Signatures:
        """Its signatures, if it knows some others and not itself."""
        known = {one.key.public: verifier(one.key.public) for one in others}
        return Signatures(known, public=self.key.public, sign=self.key.sign_bytes)


def quick_signatures() -> Signatures:
    """Signatures that all processes can make and check, by a digest: as real ones, but for what they keep out."""

    def sign(text: bytes) -> bytes:
        return hashlib.blake2b(text).digest()

    return Signatures({"everybody": lambda text, found: sign(text) == found}, public="everybody", sign=sign)


def signer(number: int) -> Signer:
    """The writer of a number, up to 255: it always has the same key."""
    return Signer(user_key(bytes([number]) * 32))
