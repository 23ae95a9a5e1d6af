"""Addresses of NATS on the command line and in the environment."""

import re
from typing import Final
from urllib.parse import urlsplit

from berth.cli.output import WRONG_USE, CommandError

_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_SECRET: Final = re.compile(r"^(\w+://)?.*@", re.DOTALL)
_SPACE: Final = re.compile(r"\s")


def checked(source: str, text: str) -> str:
    """An address, or several separated by commas, as it is.

    Args:
        source: Option or variable that holds it.
        text: The address.

    Raises:
        CommandError: It is no such address, or holds a user or a password, which the error does not contain.
    """
    if "@" in text:
        hidden = _SECRET.sub(r"\1***@", text)
        expected = "no user and no password: set BERTH_BUS__USER and BERTH_BUS__PASSWORD_FILE"
        raise CommandError(f"{source} is {hidden}, expected {expected}", code=WRONG_USE)
    for server in text.split(","):
        if expected := _expected(server):
            raise CommandError(f"{source} is {text}, expected {expected}", code=WRONG_USE)
    return text


def _expected(server: str) -> str:
    """What would be right, for an invalid address of one server; else empty."""
    scheme, mark, rest = server.partition("://")
    if mark and scheme not in _SCHEMES:
        return f"an address that begins with {', '.join(f'{one}://' for one in _SCHEMES[:-1])} or {_SCHEMES[-1]}://"
    if _SPACE.search(server):
        return "an address without spaces, such as nats://127.0.0.1:4222"
    try:
        parts = urlsplit(f"//{rest if mark else server}")
    except ValueError:  # a bracket of an IPv6 address without the other
        parts = urlsplit("")
    if not parts.hostname:
        return "an address with a host, such as nats://127.0.0.1:4222"
    try:
        is_port = parts.port is None or parts.port > 0
    except ValueError:
        is_port = False
    return "" if is_port else "a port from 1 to 65535"
