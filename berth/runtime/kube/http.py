"""Requests to a Kubernetes API server: one HTTP session, its credentials, and its errors as ours."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import aiohttp
import msgspec

from berth.formats.kubernetes.objects import StatusReply
from berth.runtime.clock import Clock
from berth.runtime.errors import DEFAULT_RETRY_AFTER_S, AmbiguousError, TransientError
from berth.runtime.kube.config import KubeConfig
from berth.runtime.kube.port import RefusedError

TOKEN_AGE_MAX_S: Final = 60.0
"""Longest time between two readings of credentials that may change."""

_CONNECT_S: Final = 5.0
_KEEP_ALIVE_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 2 << 20
_SHOWN_LENGTH_MAX: Final = 200
_REDIRECTS: Final = 300
_UNAUTHORIZED: Final = 401
_FAILURES: Final = 500
# The server, or a proxy before it, broke off in the middle; with 503 it did not begin.
_UNCERTAIN: Final = frozenset({500, 502, 504})
_BUSY: Final = frozenset({408, 425, 429})
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
BROKEN_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises: also a text that is not UTF-8, and nesting without end, come as errors that are not its own."""
_status = msgspec.json.Decoder(StatusReply)


class SilenceError(TransientError):
    """Nothing came on a watch for as long as was allowed."""


class Credentials(Protocol):
    """Who we are, as something that may change."""

    async def authorization(self, *, afresh: bool) -> str:
        """Value of the header ``Authorization``; empty for none. ``afresh`` looks at everything again.

        Raises:
            TransientError: It cannot be told now.
        """


class Endpoint(NamedTuple):
    """Where the server is: ``https://host:port`` and perhaps a path, no slash at the end.

    ``tls`` is None without encryption. ``server_name`` is the name in the certificate where it is not the host's.
    """

    url: str
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    proxy: str = ""


class KubeHttp:
    """A session with an API server. Make it in the event loop that uses it; close it.

    Args:
        endpoint: Where the server is.
        credentials: Who we are; asked again every 60 s, and when the server does not know us.
        config: Time-outs and the number of connections.
        clock: Tells when credentials are old.
        user_agent: How we call ourselves.
    """

    def __init__(
        self, endpoint: Endpoint, credentials: Credentials, *, config: KubeConfig, clock: Clock, user_agent: str
    ) -> None:
        self._url = endpoint.url
        self._credentials = credentials
        self._clock = clock
        self._authorization: str | None = None
        self._asked_at_s = 0.0
        self._times_asked = 0
        self._asking = asyncio.Lock()
        self._request_timeout = aiohttp.ClientTimeout(total=config.timeout_s, sock_connect=_CONNECT_S)
        self._list_timeout = aiohttp.ClientTimeout(total=config.list_timeout_s, sock_connect=_CONNECT_S)
        self._way: dict[str, Any] = {"allow_redirects": False}
        if endpoint.server_name:
            self._way["server_hostname"] = endpoint.server_name
        if endpoint.proxy:
            self._way["proxy"] = endpoint.proxy
        near = (urlsplit(endpoint.url).hostname or "") in _LOOPBACK
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=config.connections,
                ssl=endpoint.tls if endpoint.tls is not None else True,
                keepalive_timeout=_KEEP_ALIVE_S,
            ),
            headers={
                "Accept": "application/json",
                "Accept-Encoding": "identity" if near else "gzip",  # to pack costs more than a loopback
                "User-Agent": user_agent,
            },
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        is_list: bool = False,
    ) -> bytes:
        """Ask and take the answer.

        Args:
            method: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
            path: Path, which begins with a slash.
            params: Query.
            body: What is sent.
            content_type: Form of the body.
            is_list: Whether the answer is a page of a list, which may take longer.

        Raises:
            TransientError: No answer, and nothing was changed.
            AmbiguousError: No answer to a write, or one that does not tell.
            RefusedError: The server says no.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        timeout = self._list_timeout if is_list else self._request_timeout
        afresh = False
        while True:
            if authorization := await self._authorize(afresh=afresh):
                headers["Authorization"] = authorization
            with _translated(method, path):
                async with self._session.request(
                    method, self._url + path, params=params, data=body, headers=headers, timeout=timeout, **self._way
                ) as answer:
                    content = await answer.read()
            if answer.status < _REDIRECTS:
                return content
            if answer.status != _UNAUTHORIZED or afresh:
                error = _error_of(answer, content, f"{method} {path}", is_write=method in _WRITES)
                raise error
            afresh = True

    async def lines(self, path: str, params: Mapping[str, str], *, idle_s: float) -> AsyncGenerator[list[bytes]]:
        """Whole lines of an answer without end, as they come: a few at a time, without their ends, none of them empty.

        What comes after the last end of a line when the answer breaks off is dropped.

        Raises:
            TransientError: The answer broke off, or none came.
            SilenceError: Nothing came for ``idle_s`` seconds.
            RefusedError: The server says no.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        for afresh in (False, True):
            authorization = await self._authorize(afresh=afresh)
            headers = {"Authorization": authorization} if authorization else {}
            with _translated("GET", path):
                async with self._session.get(
                    self._url + path, params=params, headers=headers, timeout=timeout, **self._way
                ) as answer:
                    if answer.status == _UNAUTHORIZED and not afresh:
                        continue
                    if answer.status >= _REDIRECTS:
                        error = _error_of(answer, await answer.read(), f"GET {path}", is_write=False)
                        raise error
                    rest = bytearray()
                    async for chunk in answer.content.iter_any():
                        end = chunk.rfind(b"\n")
                        rest += chunk[: end + 1] if end >= 0 else chunk
                        if end >= 0:
                            whole, rest = rest, bytearray(chunk[end + 1 :])
                            yield [line for line in bytes(whole).split(b"\n") if line]
                    return

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def _authorize(self, *, afresh: bool) -> str:
        """Header of the credentials, asked for again when they are old; what holds is kept while they cannot be told.

        Raises:
            TransientError: They cannot be told, and there are none yet or those that there are do not help.
        """
        asked = self._times_asked
        now_s = self._clock.monotonic_s()
        if self._authorization is not None and not afresh and now_s - self._asked_at_s < TOKEN_AGE_MAX_S:
            return self._authorization
        async with self._asking:
            if self._authorization is None or self._times_asked == asked:  # else somebody asked while we waited
                try:
                    self._authorization = await self._credentials.authorization(afresh=afresh)
                except TransientError:
                    if self._authorization is None or afresh:
                        raise
                self._asked_at_s = now_s
                self._times_asked += 1
            return self._authorization


@contextmanager
def _translated(method: str, path: str) -> Iterator[None]:
    """Raise what the library raises as errors of ours.

    Raises:
        TransientError: No connection, or a read that broke off.
        AmbiguousError: A write that broke off.
        SilenceError: Nothing came for as long as was allowed.
    """
    kind = AmbiguousError if method in _WRITES else TransientError
    what = f"{method} {path}"
    try:
        yield
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
        raise TransientError(f"{what}: no connection: {error}") from error
    except aiohttp.SocketTimeoutError as error:
        raise SilenceError(f"{what}: silent for too long") from error
    except TimeoutError as error:
        raise kind(f"{what}: no answer in time") from error
    except (aiohttp.ClientError, OSError) as error:
        raise kind(f"{what}: {str(error) or type(error).__name__}") from error


def _error_of(
    answer: aiohttp.ClientResponse, content: bytes, what: str, *, is_write: bool
) -> RefusedError | TransientError:
    """What an answer that is no success means."""
    status = answer.status
    try:
        said = _status.decode(content)
    except BROKEN_JSON:
        said = StatusReply(message=content[:_SHOWN_LENGTH_MAX].decode(errors="replace").strip())
    message = said.message or f"{what}: HTTP {status} {answer.reason}"
    if status < _FAILURES and status not in _BUSY and status != _UNAUTHORIZED:
        return RefusedError(message, status=status, cause=said.reason)
    kind = AmbiguousError if is_write and status in _UNCERTAIN else TransientError
    return kind(
        f"{what}: HTTP {status}: {message}", retry_after_s=_retry_after_s(answer.headers.get("Retry-After", ""))
    )


def _retry_after_s(text: str) -> float:
    """Seconds that a server asks to wait; a date, which Kubernetes never sends, counts as nothing said."""
    return float(text) if text.isascii() and text.isdigit() else DEFAULT_RETRY_AFTER_S
