"""What a request must fulfil before anything reads it: host, origin, and a token in its header."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers

from berth.runtime.clock import Clock
from berth.services.gateway.config import GatewayConfig, is_loopback
from berth.services.gateway.errors import RequestError
from berth.services.gateway.tokens import Caller, Tokens

API: Final = "/api/"
PUBLIC: Final = "/api/v1/openapi.json"
_IN_URL: Final = frozenset({"token", "access_token", "authorization", "bearer", "api_key", "apikey"})
_ONCE: Final = ("host", "origin", "authorization", "sec-fetch-site")
_HOST: Final = re.compile(r"(?:[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN: Final = re.compile(rf"(https?)://({_HOST.pattern})", re.IGNORECASE)
_OPAQUE: Final = "null"
"""Origin of pages that have none to show, such as files."""
_OWN_SITES: Final = frozenset({"same-origin", "none"})
_SHOWN_MAX: Final = 80


def check_headers(headers: Headers) -> None:
    """Check the headers on which decisions depend: there is one host, and none of the others is there twice.

    Source: RFC 9112, "Request Target".

    Raises:
        RequestError: A header is there twice, or the host is missing or malformed.
    """
    for name in _ONCE:
        if len(headers.getlist(name)) > 1:
            raise RequestError(f"header {name.title()} is there twice, expected once")
    host = headers.get("host", "")
    if _HOST.fullmatch(host) is None:
        raise RequestError(f"header Host is {_shown(host)}, expected a name or an address, with a port")


class Guard:
    """Refuses requests of strangers.

    Args:
        config: Settings of the gateway.
        clock: Of the process.
    """

    def __init__(self, config: GatewayConfig, clock: Clock) -> None:
        self._is_open = config.access == "open"
        self._tokens = Tokens(config.tokens, clock)
        self._has_tls = config.has_tls
        self._origins = frozenset(origin.lower() for origin in config.origins)

    def caller(self, path: str, query: bytes, headers: Mapping[str, str]) -> Caller:
        """Check a request; returns the caller, without an identity if none is needed.

        Args:
            path: Path of the request, decoded.
            query: Query of the request, not decoded.
            headers: Headers of the request, with names in small letters.

        Raises:
            RequestError: The request is refused.
        """
        if query:
            _check_no_token_in(query)
        host = headers.get("host", "")
        if self._is_open and not is_loopback(_name_of(host)):
            raise RequestError(
                f"header Host is {_shown(host)}, expected a loopback address such as 127.0.0.1 or localhost",
                "wrong-host",
            )
        if not path.startswith(API):
            return Caller()
        self._check_own_site(host, headers)
        if self._is_open or path == PUBLIC:
            return Caller()
        return self._tokens.caller(headers.get("authorization"))

    def check_valid(self, caller: Caller) -> None:
        """Check that the token of a caller has not expired since.

        Raises:
            RequestError: The token has expired.
        """
        self._tokens.check_valid(caller)

    def _check_own_site(self, host: str, headers: Mapping[str, str]) -> None:
        """Check that no page of another site has made a browser send the request.

        Raises:
            RequestError: A page of another site has sent the request.
        """
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        is_known = origin is None or origin.lower() in self._origins
        is_own = is_known or self._is_own(origin or "", host)
        if site is not None:
            if site not in _OWN_SITES and (origin is None or not is_known):
                raise RequestError(
                    f"header Sec-Fetch-Site is {_shown(site)}, expected same-origin: pages of other sites may not use"
                    " the gateway",
                    "cross-site",
                )
        elif not is_own:
            raise RequestError(
                f"header Origin is {_shown(origin or '')}, expected the host {_shown(host)} or one of the setting origins",
                "cross-site",
            )

    def _is_own(self, origin: str, host: str) -> bool:
        """Whether an origin is that of the page of this gateway.

        Source: RFC 6454, "ASCII Serialization of an Origin".

        Raises:
            RequestError: The origin is none of HTTP.
        """
        found = _ORIGIN.fullmatch(origin)
        if found is None:
            if origin == _OPAQUE:
                return False
            raise RequestError(f"header Origin is {_shown(origin)}, expected http:// or https:// and a host")
        scheme, name = found.groups()
        return name.lower() == host.lower() and not (self._has_tls and scheme.lower() == "http")


def _check_no_token_in(query: bytes) -> None:
    """Check that a query has no token: URLs are in logs, histories and the header ``Referer``.

    Raises:
        RequestError: The query has a token.
    """
    for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name.lower() in _IN_URL:
            raise RequestError(
                f"query field {name} is a token in a URL, expected the header Authorization: Bearer TOKEN;"
                " make a new token, this one may be in logs",
                "token-in-url",
            )


def _name_of(host: str) -> str:
    """Host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _shown(text: str) -> str:
    return repr(text[:_SHOWN_MAX])
