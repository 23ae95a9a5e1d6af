"""The page: static files of the package ``berth.page``, read once at the start.

A path is looked up in what was read, so no path leads out of the folder.
"""

import mimetypes
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.services.gateway.errors import RequestError

_INDEX: Final = "index.html"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_REVALIDATE: Final = "no-cache"


class PageFile(NamedTuple):
    """A file.

    Attributes:
        content: Its bytes.
        media_type: Its type.
        etag: Changes with its content.
    """

    content: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, PageFile]:
    """Files of the page by their paths below its folder; none if this installation has no page."""
    root = files("berth").joinpath("page", "static")
    return dict(_files_in(root, "")) if root.is_dir() else {}


def _files_in(folder: Traversable, prefix: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for entry in sorted(folder.iterdir(), key=lambda one: one.name):
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            found += _files_in(entry, f"{path}/")
        elif entry.is_file():
            content = entry.read_bytes()
            found.append((path, PageFile(content, _type_of(path), f'"{sha256(content).hexdigest()[:32]}"')))
    return found


def _type_of(path: str) -> str:
    suffix = path[path.rfind(".") :]
    return _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"


class PageRoutes:
    """Routes of the page.

    Args:
        found: Its files by path.
    """

    def __init__(self, found: Mapping[str, PageFile]) -> None:
        self._files = found

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route("/", self.index, methods=["GET"]),
            Route("/assets/{path:path}", self.asset, methods=["GET"]),
        ]

    async def index(self, request: Request) -> Response:
        """The page."""
        return self._answer(request, _INDEX)

    async def asset(self, request: Request) -> Response:
        """A file of the page.

        Raises:
            RequestError: There is none with this path.
        """
        path = request.path_params["path"]
        if path == _INDEX or path not in self._files:
            raise RequestError(f"path is {request.url.path[:200]!r}, expected a file of the page", "not-found")
        return self._answer(request, path)

    def _answer(self, request: Request, path: str) -> Response:
        found = self._files.get(path)
        if found is None:
            raise RequestError(
                "page is not part of this installation, expected its files in berth/page/static", "not-found"
            )
        headers = {"Cache-Control": _REVALIDATE, "ETag": found.etag}
        if request.headers.get("if-none-match") == found.etag:
            return Response(status_code=304, headers=headers)
        return Response(found.content, media_type=found.media_type, headers=headers)
