"""The gateway of a cell on this machine: its port, its token, and what is said of it."""

import os
import secrets
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from berth.cli.output import WRONG_USE, CommandError
from berth.lab.servers.ports import free_ports
from berth.runtime.keys.bearer_tokens import new_token, of_text
from berth.runtime.release import install_extra

HOST: Final = "127.0.0.1"
PORT: Final = 8222
"""Port of the page, unless it is in use."""
_IDENTITY: Final = "page"
_FILE: Final = "page-token"
_LIBRARIES: Final = ("starlette", "uvicorn", "httptools")


class LocalPage(NamedTuple):
    """A gateway that listens on this machine alone.

    Attributes:
        port: Its port.
        token: What a browser shows it.
    """

    port: int
    token: str

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{HOST}:{self.port}/"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the gateway."""
        digest = of_text(self.token).sha256
        return {
            "host": HOST,
            "port": self.port,
            "access": "token",
            "tokens": [{"identity": _IDENTITY, "sha256": digest}],
        }


def missing_libraries() -> str:
    """What to say if this installation has no gateway; empty if it has one."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    return f"no page: it needs {', '.join(missing)}: {install_extra('gateway')}" if missing else ""


def page_in(folder: Path, port: int | None, *, nats_port: int = 0) -> LocalPage:
    """The page of a cell whose files are in a folder, which keeps its token.

    Args:
        folder: The folder; made if it is missing.
        port: Port to listen on; 0 selects a free one, None the usual one or, if that is in use, a free one.
        nats_port: Port that the server will listen on; 0 if it selects a free one.

    Raises:
        CommandError: The port is in use or that of NATS, or the token cannot be stored.
    """
    if port is None:
        port = PORT if nats_port != PORT and _is_free(PORT) else 0
    elif port and port == nats_port:
        raise CommandError(f"--page-port is {port}, expected another port than --port", code=WRONG_USE)
    elif port and not _is_free(port):
        raise CommandError(
            f"port {port} is in use; name another with --page-port, or leave the page out with --no-page"
        )
    try:
        token = _token_in(folder)
    except OSError as error:
        raise CommandError(f"cannot store {error.filename}: {error.strerror}", code=WRONG_USE) from error
    return LocalPage(port or free_ports(1)[0], token)


def _token_in(folder: Path) -> str:
    """Token in a folder; made there, readable for its owner alone, if it is missing."""
    path = folder / _FILE
    if path.exists():
        return path.read_text("utf-8").strip()
    folder.mkdir(parents=True, exist_ok=True)
    token = new_token().text
    part = folder / f".{_FILE}.{secrets.token_hex(4)}"
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(f"{token}\n")
    part.replace(path)
    return token


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True
