"""Routes of the picture of a cell."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.runtime.clock import Clock
from berth.services.gateway.application import JSON, identity_of
from berth.services.gateway.cell_requests import CellRequests, has
from berth.services.gateway.config import GatewayConfig
from berth.services.gateway.errors import RequestError
from berth.services.gateway.event_streams import RIGHTS_GONE
from berth.services.gateway.guard import Guard
from berth.services.gateway.job_routes import fields
from berth.services.gateway.view.cell_view import CellView
from berth.services.gateway.view.view_streams import Rights, ViewResponse, ViewStreams, rights_of

VIEW: Final = "/api/v1/view"
CHANGES: Final = "/api/v1/view/changes"
HOUR: Final = "/api/v1/view/hour"
_KEPT_S: Final = 2.0
"""So long an answer about the last hour serves for readers with the same rights."""
_KEPT_MAX: Final = 256


class ViewRoutes:
    """Routes of the picture.

    Args:
        cell: Knows the rights of callers.
        view: The picture.
        streams: Its readers.
        guard: Knows the callers.
        clock: Of the process.
        config: Settings of the gateway.
    """

    def __init__(
        self,
        cell: CellRequests,
        view: CellView,
        streams: ViewStreams,
        guard: Guard,
        clock: Clock,
        config: GatewayConfig,
    ) -> None:
        self._cell = cell
        self._view = view
        self._streams = streams
        self._guard = guard
        self._clock = clock
        self._config = config
        self._hours: dict[Rights, tuple[float, bytes]] = {}
        """By rights: until when it serves, and the last hour as JSON."""

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route(VIEW, self.view, methods=["GET"]),
            Route(CHANGES, self.changes, methods=["GET"]),
            Route(HOUR, self.hour, methods=["GET"]),
        ]

    async def view(self, request: Request) -> Response:
        """The whole picture."""
        fields(request)
        rights = await self._cell.check_reader(identity_of(request))
        self._check_known()
        return Response(self._streams.view_json(rights.read), media_type=JSON)

    async def changes(self, request: Request) -> ViewResponse:
        """The whole picture, then its changes.

        Raises:
            RequestError: There is no picture now, or too many streams are open.
        """
        fields(request)
        rights = await self._cell.check_reader(identity_of(request))
        self._check_known()
        reader = self._streams.open(rights.read, identity_of(request))
        headers = dict(request.headers)

        async def may_go_on() -> bool:
            return await self._has_still(request.url.path, headers, reader.rights)

        return ViewResponse(
            self._streams, reader, self._clock, keepalive_s=self._config.keepalive_s, may_go_on=may_go_on
        )

    async def hour(self, request: Request) -> Response:
        """What changed within the last hour."""
        fields(request)
        rights = rights_of((await self._cell.check_reader(identity_of(request))).read)
        self._check_known()
        now_s = self._clock.monotonic_s()
        until_s, data = self._hours.get(rights, (0.0, b""))
        if until_s <= now_s:
            if len(self._hours) >= _KEPT_MAX:
                self._hours.clear()
            data = msgspec.json.encode(self._view.hour(lambda namespace: has(rights, namespace)))
            self._hours[rights] = (now_s + _KEPT_S, data)
        return Response(data, media_type=JSON)

    async def _has_still(self, path: str, headers: Mapping[str, str], rights: Rights) -> bool:
        """Whether a caller has the same rights as before; also if they are not known now."""
        try:
            identity = self._guard.caller(path, b"", headers).identity
            return rights_of((await self._cell.check_reader(identity)).read) == rights
        except RequestError as error:
            return error.code not in RIGHTS_GONE

    def _check_known(self) -> None:
        """Check that there is a picture.

        Raises:
            RequestError: There is no picture now.
        """
        if not self._view.is_known:
            raise RequestError(f"view is unavailable ({self._view.reason}), expected it soon; ask again", "unavailable")
