"""Tokens of clients: who a request comes from."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, NamedTuple

from berth.runtime.clock import Clock
from berth.services.gateway.config import Token
from berth.services.gateway.errors import RequestError

_SCHEME: Final = "bearer"
_TOKEN_MAX: Final = 1_000
_HOW: Final = "header Authorization: Bearer TOKEN"


class Caller(NamedTuple):
    """Who a request comes from.

    Attributes:
        identity: Its identity; empty if the gateway is open, or the path is for everybody.
        expires_ms: From when on its token does not count, in milliseconds since 1970; 0 for never.
    """

    identity: str = ""
    expires_ms: int = 0


class Tokens:
    """Finds the identity of a token.

    Args:
        tokens: Those that are accepted.
        clock: Of the process.
    """

    def __init__(self, tokens: Sequence[Token], clock: Clock) -> None:
        self._clock = clock
        self._tokens = [(bytes.fromhex(one.sha256), one) for one in tokens]

    def caller(self, authorization: str | None) -> Caller:
        """Holder of a token.

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
        caller = Caller(found.identity, int(found.expires_at.timestamp() * 1000) if found.expires_at else 0)
        self.check_valid(caller)
        return caller

    def check_valid(self, caller: Caller) -> None:
        """Check that the token of a caller has not expired.

        Raises:
            RequestError: The token has expired.
        """
        if caller.expires_ms and caller.expires_ms <= self._clock.now_ms():
            raise RequestError(f"token of {caller.identity} has expired, expected one that is valid", "no-token")
