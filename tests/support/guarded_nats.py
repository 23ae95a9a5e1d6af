"""A server of NATS with keys of each kind of identity, the streams of a cell, and somebody who sees everything."""

import base64
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from berth.lab.servers.nats_server import EmbeddedServer
from berth.runtime.bus.streams import stream_config
from berth.runtime.keys.key_folder import KeyFolder
from berth.runtime.keys.rights import BOUNDS, COMMANDS, ONE_PROCESS, STREAMS, Rights
from berth.runtime.keys.tokens import Key, credentials, user_key, user_token
from berth.schemas.subjects import StreamName, Subjects
from tests.support.nats_line import Line, line
from tests.support.nats_rights import of_command, of_page, rights

CELL: Final = "guarded"
SUBJECTS: Final = Subjects(CELL)
PROGRAM: Final = "portal"
AGENT: Final = "plug-in"
NODE: Final = "n1"
PERSON: Final = "ops"
QUIET_TARGETS: Final = (
    SUBJECTS.intake_request("a", "b"),
    SUBJECTS.fact_namespace("a"),
    SUBJECTS.snapshot_end(1),
    SUBJECTS.api_as("rights", "admin"),
    SUBJECTS.gate("rights", "admin"),
    f"$JS.API.STREAM.PURGE.{SUBJECTS.stream(StreamName.LEDGER)}",
    "_INBOX.gateway.r.x1.1",
    "_INBOX.dispatcher.d.x1.1",
    "_INBOX.person.berth.r.x1.1",
)
"""Subjects that a cell without work does not use, where somebody without the right would like to have a message."""
_NOW_S: Final = 1_700_000_000
_SEED_BYTES: Final = 32


def identities() -> dict[str, Rights]:
    """Rights of each user as the page about trust has them, by name."""
    return {
        **rights(CELL),
        **{command: of_command(CELL, command, command) for command in COMMANDS if command != STREAMS},
        PERSON: of_page(CELL, "a person", user=PERSON),
        PROGRAM: of_page(CELL, "a program", user=PROGRAM, namespace="team-a"),
        AGENT: of_page(CELL, "an agent", node=NODE),
    }


class Guarded:
    """Keys of a cell and its server.

    Args:
        keys: The keys.
        folder: Where they are.
        server: The server.
    """

    def __init__(self, keys: KeyFolder, folder: Path, server: EmbeddedServer) -> None:
        self.keys = keys
        self.server = server
        self._account = Key(msgspec.json.decode((folder / "keys.json").read_bytes())["account_seed"])

    def line(self, user: str) -> AbstractAsyncContextManager[Line]:
        """A connection of a user that ``berth keys`` made."""
        return line(self.server.url, self.keys.credentials_file(user).read_text("utf-8"))

    def line_with(self, may: Rights, *, replies: bool = False) -> AbstractAsyncContextManager[Line]:
        """A connection of a user with rights that ``berth keys`` gives to nobody.

        Args:
            may: Its rights.
            replies: Whether it may reply to whoever asks, as with ``allow_responses``.
        """
        key = user_key(secrets.token_bytes(_SEED_BYTES))
        token = user_token(self._account, key.public, "other", may, BOUNDS["service"], _NOW_S)
        if replies:
            head, claims, _ = token.split(".")
            about = msgspec.json.decode(base64.urlsafe_b64decode(claims + "=="))
            about["nats"]["resp"] = {"max": 1, "ttl": 120_000_000_000}
            token = f"{head}.{_in_base64(msgspec.json.encode(about))}"
            token += f".{_in_base64(self._account.sign(token))}"
        return line(self.server.url, credentials(token, key))

    def observer(self) -> AbstractAsyncContextManager[Line]:
        """A connection that sees and may do everything."""
        return self.line_with(Rights((">",), (">",)))


@asynccontextmanager
async def guarded_nats(folder: Path) -> AsyncIterator[Guarded]:
    """A server with users of :func:`identities`, and the streams of the cell."""
    keys = KeyFolder.make(folder / "keys", CELL, lambda: _NOW_S)
    for service in ("gateway", "nodesim", ONE_PROCESS):
        keys.add(service, "service")
    for command in COMMANDS:
        if command != STREAMS:
            keys.add(command, "person", commands=[command])
    keys.add(PERSON, "person")
    keys.add(PROGRAM, "program", namespaces=["team-a"])
    keys.add(AGENT, "agent", node=NODE)
    async with EmbeddedServer(folder / "nats", more=keys.access_file.read_text("utf-8")) as server:
        made = Guarded(keys, folder / "keys", server)
        async with made.observer() as observer:
            for spec in SUBJECTS.streams():
                config = stream_config(SUBJECTS, spec, replicas=1, max_bytes=0)
                await answered(observer, f"$JS.API.STREAM.CREATE.{config['name']}", config)
        yield made


async def answered(who: Line, subject: str, body: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401  # JSON
    """Answer of the server to a request of an observer, in an inbox of its own."""
    inbox = f"_INBOX.observer.d.{secrets.token_hex(8)}"
    who.subscribe(inbox)
    who.publish(subject, msgspec.json.encode(body) if body is not None else b"", reply=inbox)
    found = msgspec.json.decode((await who.first(inbox)).data)
    assert "error" not in found, found
    return found


async def content(who: Line) -> dict[str, tuple[int, object]]:
    """Last sequence and settings of each stream, as an observer sees them."""
    found = {}
    for name in StreamName:
        info = await answered(who, f"$JS.API.STREAM.INFO.{SUBJECTS.stream(name)}")
        found[name.value] = (info["state"]["last_seq"], info["config"])
    return found


def _in_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
