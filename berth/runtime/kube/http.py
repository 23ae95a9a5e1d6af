"""Requests to a Kubernetes API server: an HTTP session, its credentials, and the translation of errors."""

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
from berth.runtime.kube.port import RefusedError, refuse_other_paths

TOKEN_AGE_MAX_S: Final = 60.0
"""Longest time between two reads of credentials that may change."""

_CONNECT_S: Final = 5.0
_LIST_TIMEOUT_S: Final = 60.0
"""Timeout of one page of a list."""
_CONNECTIONS_MAX: Final = 256
"""Most concurrent connections, watches included."""
_KEEP_ALIVE_S: Final = 60.0
_READ_BUFFER_BYTES: Final = 2 << 20
_SHOWN_LENGTH_MAX: Final = 200
_REDIRECTS: Final = 300
_UNAUTHORIZED: Final = 401
_FAILURES: Final = 500
# The server, or a proxy before it, failed during the request; with 503 it did not start it.
_UNCERTAIN: Final = frozenset({500, 502, 504})
_BUSY: Final = frozenset({408, 425, 429})
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
BROKEN_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec. Text that is not UTF-8, and unbounded nesting, raise errors of Python."""
_status = msgspec.json.Decoder(StatusReply)


class SilenceError(TransientError):
    """A watch received no data for the allowed time."""


class Credentials(Protocol):
    """Credentials that may change.

    Attributes:
        tls: Context with the client certificate as of the last call of :meth:`authorization`; another one if the
            certificate was renewed. None without encryption.
    """

    tls: ssl.SSLContext | None

    async def authorization(self, *, afresh: bool) -> str:
        """Value of the header ``Authorization``; empty for none. ``afresh`` reads all sources again.

        Raises:
            TransientError: The credentials cannot be read now.
        """


class Endpoint(NamedTuple):
    """Address of the server: ``https://host:port`` and an optional path, without a slash at the end.

    ``server_name`` is the name in the certificate, if it is not that of the host.
    """

    url: str
    server_name: str = ""
    proxy: str = ""


class KubeHttp:
    """A session with an API server. Create it in the event loop that uses it, and close it.

    Args:
        endpoint: Address of the server.
        credentials: Read again every 60 s, and after status 401.
        config: Timeout of a request.
        clock: Source of the age of the credentials.
        user_agent: Value of the header ``User-Agent``.
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
        self._list_timeout = aiohttp.ClientTimeout(total=_LIST_TIMEOUT_S, sock_connect=_CONNECT_S)
        self._options: dict[str, Any] = {"allow_redirects": False}
        if endpoint.server_name:
            self._options["server_hostname"] = endpoint.server_name
        if endpoint.proxy:
            self._options["proxy"] = endpoint.proxy
        near = (urlsplit(endpoint.url).hostname or "") in _LOOPBACK
        self._headers = {
            "Accept": "application/json",
            # compression costs more than a loopback connection saves
            "Accept-Encoding": "identity" if near else "gzip",
            "User-Agent": user_agent,
        }
        self._tls = credentials.tls
        self._session = self._new_session()
        self._former: aiohttp.ClientSession | None = None

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=_CONNECTIONS_MAX,
                ssl=self._tls if self._tls is not None else True,
                keepalive_timeout=_KEEP_ALIVE_S,
            ),
            headers=self._headers,
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
        """Send a request and read the answer.

        Args:
            method: ``GET``, ``POST``, ``PUT``, ``PATCH`` or ``DELETE``.
            path: Path, with a leading slash, without escapes; see :func:`berth.formats.kubernetes.paths.is_path`.
            params: Query.
            body: Content of the request.
            content_type: Media type of the body.
            is_list: Whether the answer is a page of a list, which has a longer timeout.

        Raises:
            TransientError: No answer, and nothing changed.
            AmbiguousError: No answer to a write, or one that leaves its outcome open.
            RefusedError: The server rejects the request.
        """
        url = self._url_of(path)
        headers = {"Content-Type": content_type} if body is not None else {}
        timeout = self._list_timeout if is_list else self._request_timeout
        afresh = False
        while True:
            if authorization := await self._authorize(afresh=afresh):
                headers["Authorization"] = authorization
            with _translated(method, path):
                async with self._session.request(
                    method,
                    url,
                    params=params,
                    data=body,
                    headers=headers,
                    timeout=timeout,
                    **self._options,
                ) as answer:
                    content = await answer.read()
            if answer.status < _REDIRECTS:
                return content
            if answer.status != _UNAUTHORIZED or afresh:
                error = _error_of(answer, content, f"{method} {path}", is_write=method in _WRITES)
                raise error
            afresh = True

    async def lines(self, path: str, params: Mapping[str, str], *, idle_s: float) -> AsyncGenerator[list[bytes]]:
        """Complete lines of a streaming answer, in batches, without line ends and without empty lines.

        An incomplete line at the end of the answer is dropped.

        Raises:
            TransientError: The answer ended early, or none came.
            SilenceError: No data came for ``idle_s`` seconds.
            RefusedError: The server rejects the request.
        """
        url = self._url_of(path)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=idle_s)
        for afresh in (False, True):
            authorization = await self._authorize(afresh=afresh)
            headers = {"Authorization": authorization} if authorization else {}
            with _translated("GET", path):
                async with self._session.get(
                    url, params=params, headers=headers, timeout=timeout, **self._options
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
        if self._former is not None:
            await self._former.close()

    def _url_of(self, path: str) -> str:
        """Address of a path. It has nothing that the library would resolve, decode or escape.

        Raises:
            RefusedError: The path could reach another object than the one that it names.
        """
        refuse_other_paths(path)
        return self._url + path

    async def _authorize(self, *, afresh: bool) -> str:
        """Header of the credentials, read again when they are old. If they cannot be read, the previous ones are kept.

        Raises:
            TransientError: They cannot be read, and there are no previous ones or the server rejected those.
        """
        asked = self._times_asked
        now_s = self._clock.monotonic_s()
        if self._authorization is not None and not afresh and now_s - self._asked_at_s < TOKEN_AGE_MAX_S:
            return self._authorization
        async with self._asking:
            if self._authorization is None or self._times_asked == asked:  # otherwise another task read them meanwhile
                try:
                    self._authorization = await self._credentials.authorization(afresh=afresh)
                except TransientError:
                    if self._authorization is None or afresh:
                        raise
                await self._follow_tls()
                self._asked_at_s = now_s
                self._times_asked += 1
            return self._authorization

    async def _follow_tls(self) -> None:
        """Use new connections if the client certificate was renewed: a connection keeps the one that it began with.

        Requests that run end on theirs. Those that still run at the next renewal are broken.
        """
        if self._credentials.tls is self._tls:
            return
        self._tls = self._credentials.tls
        former, self._former, self._session = self._former, self._session, self._new_session()
        if former is not None:
            await former.close()


@contextmanager
def _translated(method: str, path: str) -> Iterator[None]:
    """Translate errors of the library.

    Raises:
        TransientError: No connection, or an interrupted read.
        AmbiguousError: An interrupted write.
        SilenceError: No data came for the allowed time.
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
    """Error for an answer with an error status."""
    status = answer.status
    try:
        reply = _status.decode(content)
    except BROKEN_JSON:
        reply = StatusReply(message=content[:_SHOWN_LENGTH_MAX].decode(errors="replace").strip())
    message = reply.message or f"{what}: HTTP {status} {answer.reason}"
    if status < _FAILURES and status not in _BUSY and status != _UNAUTHORIZED:
        return RefusedError(message, status=status, cause=reply.reason)
    kind = AmbiguousError if is_write and status in _UNCERTAIN else TransientError
    return kind(
        f"{what}: HTTP {status}: {message}", retry_after_s=_retry_after_s(answer.headers.get("Retry-After", ""))
    )


def _retry_after_s(text: str) -> float:
    """Seconds in the header ``Retry-After``; a date, which Kubernetes never sends, is ignored."""
    return float(text) if text.isascii() and text.isdigit() else DEFAULT_RETRY_AFTER_S
