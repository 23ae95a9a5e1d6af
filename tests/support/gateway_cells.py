"""A cell with the service for programs and a gateway, as real processes, and an HTTP client of it."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from berth.lab.servers.ports import free_ports
from tests.support.processes import ROOT, Service, Services, services, until_started
from tests.support.waiting import until_true

CLUSTER: Final = ROOT / "docs" / "examples" / "cluster.yaml"
ADMIN: Final = "admin"
GRANTS: Final = [
    {"identity": ADMIN, "role": "operate", "namespaces": ["*"]},
    {"identity": "portal", "role": "submit", "namespaces": ["team-a"]},
    {"identity": "viewer", "role": "read", "namespaces": ["team-a"]},
]
IDENTITIES: Final = (ADMIN, "portal", "viewer", "stranger")


def token_of(identity: str) -> str:
    """The token of an identity in tests."""
    return f"of-{identity}"


def tokens() -> list[dict[str, str]]:
    """Settings of the tokens of all identities."""
    return [{"identity": one, "sha256": hashlib.sha256(token_of(one).encode()).hexdigest()} for one in IDENTITIES]


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # whatever it says
        """Its body as JSON."""
        return json.loads(self.body)


class SseEvent(NamedTuple):
    """An event of a stream."""

    id: int
    name: str
    data: Any


class Gateway:
    """A gateway that runs, and a client.

    Args:
        service: Its process.
        port: Its port.
        session: Sends requests.
    """

    def __init__(self, service: Service, port: int, session: aiohttp.ClientSession) -> None:
        self.service = service
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session

    async def ask(
        self,
        method: str,
        path: str,
        *,
        identity: str = ADMIN,
        headers: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Answer:
        """Answer to a request.

        Args:
            method: Its method.
            path: Its path with its query.
            identity: Whose token it carries; empty for none.
            headers: More headers.
            body: Sent as JSON; bytes as they are.
        """
        found = {**({"Authorization": f"Bearer {token_of(identity)}"} if identity else {}), **(headers or {})}
        data: object = None
        if body is not None:
            found.setdefault("Content-Type", "application/json")
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.request(
            method, f"{self.url}{path}", headers=found, data=data, skip_auto_headers=["Content-Type"]
        ) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def settled(self, method: str, path: str, *, identity: str = ADMIN, body: object = None) -> Answer:
        """Answer to a request; it is asked again as long as the cell is not whole yet, as the answer says."""
        answers: list[Answer] = []

        async def is_whole() -> bool:
            answers.append(await self.ask(method, path, identity=identity, body=body))
            return answers[-1].status != 503

        await until_true(is_whole, deadline_s=10, what=f"{method} {path}")
        return answers[-1]

    @asynccontextmanager
    async def stream(
        self, path: str, *, identity: str = ADMIN, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator["Stream"]:
        """An open stream of events."""
        found = {"Authorization": f"Bearer {token_of(identity)}", **(headers or {})}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self.session.get(f"{self.url}{path}", headers=found, timeout=timeout) as answer:
            assert answer.status == 200, await answer.text()
            yield Stream(answer)


class Stream:
    """An open stream of events.

    Attributes:
        comments: Comments so far.
    """

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.comments = 0

    async def next(self, *, within_s: float = 90) -> SseEvent | None:
        """The next event; None at the end."""
        position, name, data = 0, "", None
        async with asyncio.timeout(within_s):
            while line := await self.answer.content.readline():
                text = line.decode().rstrip("\n")
                field, _, value = text.partition(": ")
                if text.startswith(":"):
                    self.comments += 1
                elif field == "id":
                    position = int(value)
                elif field == "event":
                    name = value
                elif field == "data":
                    data = json.loads(value)
                elif not text and data is not None:
                    return SseEvent(position, name, data)
        return None

    async def until(self, phase: str) -> list[SseEvent]:
        """Events up to one with a phase.

        Raises:
            AssertionError: The stream ended before.
        """
        found: list[SseEvent] = []
        while (event := await self.next()) is not None:
            found.append(event)
            if event.data.get("phase") == phase:
                return found
        raise AssertionError(f"the stream ended before {phase}: {found}")

    async def rest(self) -> list[SseEvent]:
        """Events up to the end."""
        found: list[SseEvent] = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


def gateway_of(made: Services, cell: str, *, label: str = "", **settings: object) -> tuple[Service, int]:
    """A gateway that is not started, and its port."""
    (port,) = free_ports(1)
    return made.service("gateway", cell, label=label, port=port, **settings), port


async def answering(gateway: Gateway, *, identity: str = ADMIN) -> None:
    """Wait until a gateway and the service behind it answer; the rights of a caller are what it offers last."""

    async def is_there() -> bool:
        assert gateway.service.returncode is None, gateway.service.log()
        try:
            return (await gateway.ask("GET", "/api/v1/me", identity=identity)).status == 200
        except aiohttp.ClientConnectionError:
            return False

    await until_true(is_there, deadline_s=20, what="an answer of the gateway")


@asynccontextmanager
async def gateway_cell(
    folder: Path,
    url: str,
    cell: str,
    *,
    nodes: bool = True,
    api: Mapping[str, object] | None = None,
    **settings: object,
) -> AsyncIterator[tuple[Gateway, Mapping[str, Service]]]:
    """A cell with dispatcher, binder, simulated nodes and the service for programs, and a gateway.

    Args:
        folder: For settings and logs.
        url: Of NATS.
        cell: Name of the cell.
        nodes: Whether it has nodes.
        api: Settings of the service for programs.
        settings: Of the gateway, instead of tokens for all identities.
    """
    async with AsyncExitStack() as stack:
        made = stack.enter_context(services(folder, url))
        running = {
            "dispatcher": made.service("dispatcher", cell, shards=0),
            "api": made.service("api", cell, **dict(api or {"access": "grants", "grants": GRANTS})),  # type: ignore[arg-type]  # of its settings
        }
        if nodes:
            running["nodesim"] = made.service("nodesim", cell, topology_file=str(CLUSTER))
            running["binder"] = made.service("binder", cell)
        service, port = gateway_of(made, cell, **({"tokens": tokens()} | settings))  # type: ignore[arg-type]  # of its settings
        running["gateway"] = service
        for one in running.values():
            one.start()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        gateway = Gateway(service, port, session)
        await answering(gateway)
        await until_started(running.values())
        yield gateway, running
