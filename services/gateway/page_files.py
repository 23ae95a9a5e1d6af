"""The page: its files, read once at the start, and its settings.

A path is looked up in what was read, so no path leads out of the folder.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.page.files import INDEX, PageFile
from berth.schemas.page.view import Link, PageSettings
from berth.services.gateway.application import JSON
from berth.services.gateway.config import PageLink
from berth.services.gateway.errors import RequestError
from berth.services.gateway.job_routes import fields

_REVALIDATE: Final = "no-cache"
"""Browsers keep a file, and ask whether it is still the same: an upgrade of the gateway changes all of them at once."""


class PageRoutes:
    """Routes of the page.

    Args:
        found: Its files by name.
        links: Its links to other sites.
    """

    def __init__(self, found: Mapping[str, PageFile], links: Sequence[PageLink]) -> None:
        self._files = found
        self._settings = msgspec.json.encode(PageSettings(links=[Link(name=one.name, url=one.url) for one in links]))
        self._etags = {name: f'"{sha256(one.content).hexdigest()[:32]}"' for name, one in found.items()}

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/api/v1/page", self.settings, methods=["GET"]),
            Route("/assets/{path:path}", self.asset, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._answer(request, INDEX)

    async def settings(self, request: Request) -> Response:
        """Settings of the page."""
        fields(request)
        return Response(self._settings, media_type=JSON)

    async def asset(self, request: Request) -> Response:
        """A file of the page.

        Raises:
            RequestError: There is none with this path.
        """
        name = request.path_params["path"]
        if name == INDEX:
            raise RequestError("path is that of the page, expected / for it", "not-found")
        return self._answer(request, name)

    def _answer(self, request: Request, name: str) -> Response:
        found = self._files.get(name)
        if found is None:
            raise RequestError(f"path is {request.scope['path'][:200]!r}, expected a file of the page", "not-found")
        headers = {"Cache-Control": _REVALIDATE, "ETag": self._etags[name]}
        if request.headers.get("if-none-match") == self._etags[name]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)
