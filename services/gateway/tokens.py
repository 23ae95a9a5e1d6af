"""Tokens of clients: who a request comes from."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

from berth.runtime.clock import Clock
from berth.services.gateway.config import Token
from berth.services.gateway.errors import RequestError

_SCHEME: Final = "bearer"
_TOKEN_MAX: Final = 1_000
_HOW: Final = "header Authorization: Bearer TOKEN"


class Tokens:
    """Finds the identity of a token.

    Args:
        tokens: Those that are accepted.
        clock: Of the process.
    """

    def __init__(self, tokens: Sequence[Token], clock: Clock) -> None:
        self._clock = clock
        self._tokens = [(bytes.fromhex(one.sha256), one) for one in tokens]

    def identity(self, authorization: str | None) -> str:
        """Identity of the holder of a token.

        All tokens are compared, each in constant time: how long it takes tells nothing about any of them.

        Args:
            authorization: The header ``Authorization``; None without one.

        Raises:
            RequestError: There is no token, it is unknown, or it has expired.
        """
        if not self._tokens:
            raise RequestError("setting tokens is empty, expected one that berth token makes", "no-token")
        if authorization is None:
            raise RequestError(f"token is missing, expected the {_HOW}", "no-token")
        scheme, _, text = authorization.strip().partition(" ")
        text = text.strip()
        if scheme.lower() != _SCHEME or not text:
            raise RequestError(f"header Authorization is of another form, expected the {_HOW}", "no-token")
        if len(text) > _TOKEN_MAX:
            raise RequestError(f"token is {len(text)} letters long, expected at most {_TOKEN_MAX}", "no-token")
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
        found: Token | None = None
        for known, one in self._tokens:
            if hmac.compare_digest(known, digest):
                found = one
        if found is None:
            raise RequestError("token is unknown, expected one of the setting tokens", "no-token")
        if found.expires_at is not None and found.expires_at.timestamp() * 1000 <= self._clock.now_ms():
            raise RequestError(
                f"token is of {found.identity} and has expired at {found.expires_at.isoformat()}, expected one that is"
                " valid",
                "no-token",
            )
        return found.identity
