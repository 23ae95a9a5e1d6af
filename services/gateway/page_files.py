"""The page: its files, read once at the start.

A path is looked up in what was read, so no path leads out of the folder.
"""

from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.page.files import INDEX, PageFile
from berth.services.gateway.errors import RequestError

_REVALIDATE: Final = "no-cache"
"""Browsers keep a file, and ask whether it is still the same: an upgrade of the gateway changes all of them at once."""


class PageRoutes:
    """Routes of the page.

    Args:
        found: Its files by name.
    """

    def __init__(self, found: Mapping[str, PageFile]) -> None:
        self._files = found
        self._etags = {name: f'"{sha256(one.content).hexdigest()[:32]}"' for name, one in found.items()}

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/assets/{path:path}", self.asset, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._answer(request, INDEX)

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
