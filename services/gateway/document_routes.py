"""The OpenAPI document."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.schemas.gateway.openapi import openapi
from berth.services.gateway.application import JSON
from berth.services.gateway.guard import PUBLIC


class DocumentRoutes:
    """Route of the OpenAPI document, which is made once."""

    def __init__(self) -> None:
        self._document = msgspec.json.encode(openapi())

    def routes(self) -> list[Route]:
        """The routes."""
        return [Route(PUBLIC, self.document, methods=["GET"])]

    async def document(self, _: Request) -> Response:
        """The document."""
        return Response(self._document, media_type=JSON)
