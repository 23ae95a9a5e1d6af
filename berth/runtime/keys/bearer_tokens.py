"""Tokens of clients of the gateway: random texts, of which the settings have the digest alone."""

import hashlib
import secrets
from typing import Final, NamedTuple

_PREFIX: Final = "berth_"
"""Lets tools that search for secrets find a token."""
_BYTES: Final = 32


class BearerToken(NamedTuple):
    """A token.

    Attributes:
        text: What the client sends; it is nowhere else.
        sha256: Its digest in hex, for the settings.
    """

    text: str
    sha256: str


def new_token() -> BearerToken:
    """A token that nobody can guess: 256 random bits."""
    return of_text(_PREFIX + secrets.token_urlsafe(_BYTES))


def of_text(text: str) -> BearerToken:
    """A token that is known already."""
    return BearerToken(text, hashlib.sha256(text.encode()).hexdigest())
