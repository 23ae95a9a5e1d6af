"""The HTTP server: a socket that is bound first, and uvicorn in the event loop of the process."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvicorn
from starlette.types import ASGIApp

from berth.runtime.config import ConfigError
from berth.runtime.errors import FatalError
from berth.services.gateway.http_protocol import BoundedProtocol, Bounds

_BACKLOG: Final = 2_048
_KEEP_ALIVE_S: Final = 75
"""So long a connection may be idle between two requests."""
_GOODBYE_S: Final = 5
"""Longest time for unfinished answers at the end."""
_OWN_FILES: Final = 200
"""Files that the process needs beside connections."""


class Tls(NamedTuple):
    """Files of TLS, in PEM.

    Attributes:
        cert_file: Certificate chain; None: without TLS.
        key_file: Its key.
        client_ca_file: Authority that has signed the certificates of clients; None: clients need none.
    """

    cert_file: Path | None
    key_file: Path | None
    client_ca_file: Path | None = None


class Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process has those."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def listen(host: str, port: int, *, section: str = "") -> socket.socket:
    """A socket that is bound to the address of the settings.

    Args:
        host: Address, or name.
        port: Port; 0: a free one.
        section: Section of the two settings with a dot, for errors.

    Raises:
        FatalError: The address is in use, or is none of this machine.
        ConfigError: The host is not known.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(
            field=f"{section}host", value=repr(host), expected=f"expected an address of this machine ({error.strerror})"
        ) from error
    family, kind, protocol, _, address = found[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise FatalError(
            f"setting {section}port is {port}: cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    made.setblocking(False)  # noqa: FBT003  # takes no keyword
    return made


def server_of(app: ASGIApp, bounds: Bounds, tls: Tls, *, section: str = "") -> Server:
    """A server that is not started.

    Args:
        app: Answers requests.
        bounds: Of connections.
        tls: Files of TLS.
        section: Section of their settings with a dot, for errors.

    Raises:
        ConfigError: The certificate, its key or the authority cannot be used.
    """
    settings = uvicorn.Config(
        app,
        loop="none",
        http=partial(BoundedProtocol, bounds),  # type: ignore[arg-type]  # only called, with the arguments of the class
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # its warnings are about what clients send, which the application counts
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GOODBYE_S,
        ssl_certfile=tls.cert_file,
        ssl_keyfile=tls.key_file,
        ssl_ca_certs=str(tls.client_ca_file) if tls.client_ca_file is not None else None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls.client_ca_file is not None else ssl.CERT_NONE,
    )
    try:
        settings.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            field=f"{section}tls_cert_file",
            value=repr(str(tls.cert_file)),
            expected=f"expected a certificate in PEM with the key in tls_key_file{_authority(tls)}"
            f" ({error.strerror or error})",
        ) from error
    return Server(settings)


def _authority(tls: Tls) -> str:
    return "" if tls.client_ca_file is None else f", and an authority in client_ca_file {str(tls.client_ca_file)!r}"


def raise_file_limit(connections_max: int) -> int:
    """Let the process have as many connections as the settings permit, as far as the system lets it.

    Returns:
        How many it may have.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return connections_max if soft == resource.RLIM_INFINITY else min(connections_max, soft - _OWN_FILES)


async def serve_until(server: Server, listening: socket.socket, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, then finish the answers that have begun."""

    async def end() -> None:
        await stop.wait()
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        ending = group.create_task(end(), name="end the server")
        await server.serve(sockets=[listening])
        ending.cancel()
