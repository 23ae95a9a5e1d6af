"""Routes of the cell: lists of what it has, its status, and dead letters."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.runtime.bus.nats_bus import NatsBus
from berth.runtime.bus.port import Bus
from berth.runtime.cell_status.gathering import gather_status
from berth.runtime.cell_status.model import StatusResult
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import read_letters
from berth.runtime.dead_letters.rows import row_of
from berth.runtime.errors import ShellError
from berth.schemas.programs.operations import OPERATIONS
from berth.schemas.programs.shape import Request as Asked
from berth.services.gateway.application import JSON, identity_of
from berth.services.gateway.cell_requests import EVERY, CellRequests
from berth.services.gateway.errors import RequestError
from berth.services.gateway.job_routes import converted, fields

CELL: Final = "/api/v1/cell"
DEAD: Final = "/api/v1/dead"
_LISTS: Final = ("jobs", "expected-starts", "nodes", "usage", "leaves", "superpods", "faults", "drains", "queues")
"""Operations whose request is a query."""
_NAMES: Final = "names"
"""Field of a query with several values, separated by commas."""
_KEPT_S: Final = 2.0


class _Kept:
    """A document, or why there is none, that is read again when it is older than some seconds, for all who ask at once.

    Args:
        clock: Of the process.
        read: Reads it.
    """

    def __init__(self, clock: Clock, read: Callable[[], Awaitable[bytes]]) -> None:
        self._clock = clock
        self._read = read
        self._reading = asyncio.Lock()
        self._data = b""
        self._error: RequestError | None = None
        self._until_s = 0.0

    async def newest(self) -> bytes:
        """The document.

        Raises:
            RequestError: It cannot be read.
        """
        async with self._reading:
            if self._until_s <= self._clock.monotonic_s():
                try:
                    self._data, self._error = await self._read(), None
                except RequestError as error:
                    self._error = error
                self._until_s = self._clock.monotonic_s() + _KEPT_S
        if self._error is not None:
            raise RequestError(self._error.error, self._error.code)
        return self._data


class CellRoutes:
    """Routes of the cell.

    Args:
        cell: Knows the rights of callers.
        bus: The cell.
        clock: Of the process.
    """

    def __init__(self, cell: CellRequests, bus: Bus, clock: Clock) -> None:
        self._cell = cell
        self._bus = bus
        self._clock = clock
        self._status = _Kept(clock, self._read_status)
        self._letters = _Kept(clock, self._read_letters)

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            *(
                Route(f"/api/v1/{one.verb}", self._listing(one.verb, one.request), methods=["GET"])
                for one in OPERATIONS
                if one.verb in _LISTS
            ),
            Route(CELL, self.status, methods=["GET"]),
            Route(DEAD, self.dead, methods=["GET"]),
        ]

    def _listing(self, verb: str, kind: type[Asked]) -> Callable[[Request], Awaitable[Response]]:
        known = frozenset(field.name for field in msgspec.structs.fields(kind))

        async def listing(request: Request) -> Response:
            found: dict[str, object] = {**fields(request, known)}
            if _NAMES in found:
                found[_NAMES] = [name for name in str(found[_NAMES]).split(",") if name]
            asked = converted(found, kind)
            return Response(await self._cell.ask(verb, identity_of(request), asked), media_type=JSON)

        return listing

    async def status(self, request: Request) -> Response:
        """Who leads, what runs, how far each process is behind, and how NATS does."""
        fields(request)
        identity = identity_of(request)
        await self._cell.check_reader(identity)
        with self._cell.waiting(identity):
            return Response(await self._status.newest(), media_type=JSON)

    async def dead(self, request: Request) -> Response:
        """Dead letters that are open, the newest first. They name jobs of all namespaces.

        Raises:
            RequestError: The caller may not read all namespaces.
        """
        fields(request)
        identity = identity_of(request)
        rights = await self._cell.check_reader(identity)
        if EVERY not in rights.read:
            shown = repr(identity) if identity else "missing"
            raise RequestError(f"identity is {shown}, expected one that may read all namespaces", "denied")
        with self._cell.waiting(identity):
            return Response(await self._letters.newest(), media_type=JSON)

    async def _read_status(self) -> bytes:
        if not isinstance(self._bus, NatsBus):
            raise RequestError("cell is unavailable (no NATS), expected its status", "unavailable")
        try:
            found = await gather_status(self._bus, self._clock)
        except ShellError as error:
            raise RequestError(
                f"cell is unavailable ({error}), expected its status; ask again", "unavailable"
            ) from error
        problems = found.problems
        return msgspec.json.encode(StatusResult(not problems, problems, found))

    async def _read_letters(self) -> bytes:
        try:
            letters = (await read_letters(self._bus)).letters
        except ShellError as error:
            raise RequestError(f"dead is unavailable ({error}), expected letters; ask again", "unavailable") from error
        newest = sorted(letters, key=lambda one: (one.body.at_ms, one.body.stream, one.body.sequence), reverse=True)
        return msgspec.json.encode([row_of(one) for one in newest if one.is_open])
