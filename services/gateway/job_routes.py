"""Jobs, rights, and what operators do: the operations of programs under paths."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from berth.schemas.programs import requests as shapes
from berth.schemas.programs.shape import Request as Asked
from berth.services.gateway.application import JSON, identity_of
from berth.services.gateway.bodies import json_body, stated_length
from berth.services.gateway.cell_requests import LONG_BYTES, CellRequests
from berth.services.gateway.errors import RequestError
from berth.services.gateway.shares import Shares

JOBS: Final = "/api/v1/jobs"
JOB: Final = "/api/v1/jobs/{namespace}/{name}"
_BATCH: Final = "/api/v1/jobs/batch"
_SHOWN_MAX: Final = 80
_LONG_MAX: Final = 32
"""Most long bodies of one identity that arrive at the same time: they may be slow, and are in memory meanwhile."""

T = TypeVar("T", bound=Asked)


class _Submitted(msgspec.Struct, frozen=True, gc=False):
    duplicate: bool = False


class _Status(msgspec.Struct, frozen=True, gc=False):
    job: msgspec.Raw


class JobRoutes:
    """Routes of jobs.

    Args:
        cell: Asks the service ``api``.
        body_bytes_max: Longest body of a request.
    """

    def __init__(self, cell: CellRequests, *, body_bytes_max: int) -> None:
        self._cell = cell
        self._body_bytes_max = body_bytes_max
        self._long = Shares(f"bodies over {LONG_BYTES} bytes that arrive at once", _LONG_MAX)

    def routes(self) -> list[Route]:
        """The routes."""
        return [
            Route(JOBS, self.submit, methods=["POST"]),
            Route(_BATCH, self.submit_many, methods=["POST"]),
            Route("/api/v1/ask", self.ask, methods=["POST"]),
            Route(JOB, self.status, methods=["GET"]),
            Route(JOB, self.update, methods=["PATCH"]),
            Route(JOB, self.cancel, methods=["DELETE"]),
            Route(f"{JOB}/explain", self.explain, methods=["GET"]),
            Route("/api/v1/drains", self.drain, methods=["POST"]),
            Route("/api/v1/drains/{kind}/{name:path}", self.undrain, methods=["DELETE"]),
            Route("/api/v1/approvals", self.approve, methods=["POST"]),
            Route("/api/v1/me", self.me, methods=["GET"]),
        ]

    async def submit(self, request: Request) -> Response:
        """Submit the job in the body."""
        fields(request)
        identity = identity_of(request)
        reply = await self._cell.ask("submit", identity, b'{"job":%b}' % await self._object_in(request, identity))
        is_old = msgspec.json.decode(reply, type=_Submitted).duplicate
        return Response(reply, HTTPStatus.OK if is_old else HTTPStatus.CREATED, media_type=JSON)

    async def submit_many(self, request: Request) -> Response:
        """Submit the jobs in the body."""
        fields(request)
        identity = identity_of(request)
        reply = await self._cell.ask("submit-many", identity, await self._object_in(request, identity))
        return Response(reply, media_type=JSON)

    async def ask(self, request: Request) -> Response:
        """When the job in the body would be expected to start."""
        fields(request)
        identity = identity_of(request)
        reply = await self._cell.ask("ask", identity, await self._object_in(request, identity))
        return Response(reply, media_type=JSON)

    async def _object_in(self, request: Request, identity: str) -> bytes:
        """Body of a request, which is a JSON object."""
        if stated_length(request, self._body_bytes_max) <= LONG_BYTES:
            body = await json_body(request, self._body_bytes_max)
        else:
            self._cell.check_long_request(identity)
            with self._long.taken(identity):
                body = await json_body(request, self._body_bytes_max)
        check_object(body)
        return body

    async def status(self, request: Request) -> Response:
        """State of a job."""
        asked = asked_in(request, shapes.StatusRequest, {"uid"})
        reply = await self._cell.ask("status", identity_of(request), asked)
        return Response(bytes(msgspec.json.decode(reply, type=_Status).job), media_type=JSON)

    async def explain(self, request: Request) -> Response:
        """Explanation of a job."""
        asked = asked_in(request, shapes.ExplainRequest, {"uid", "nodes"})
        return Response(await self._cell.ask("explain", identity_of(request), asked), media_type=JSON)

    async def update(self, request: Request) -> Response:
        """Hold or release a job, or change its priority."""
        identity = identity_of(request)
        about = asked_in(request, shapes.StatusRequest, {"uid"})
        change = msgspec.Raw(await self._object_in(request, identity))
        asked = {"name": about.name, "namespace": about.namespace, "uid": about.uid, "change": change}
        reply = await self._cell.ask("update", identity, msgspec.json.encode(asked))
        return Response(reply, HTTPStatus.ACCEPTED, media_type=JSON)

    async def cancel(self, request: Request) -> Response:
        """Cancel a job."""
        asked = asked_in(request, shapes.CancelRequest, {"uid", "reason"})
        reply = await self._cell.ask("cancel", identity_of(request), asked)
        return Response(reply, HTTPStatus.ACCEPTED, media_type=JSON)

    async def drain(self, request: Request) -> Response:
        """Drain what the body names."""
        return await self._stored("drain", request)

    async def undrain(self, request: Request) -> Response:
        """Withdraw a drain."""
        asked = asked_in(request, shapes.UndrainRequest, set())
        reply = await self._cell.ask("undrain", identity_of(request), asked)
        return Response(reply, HTTPStatus.ACCEPTED, media_type=JSON)

    async def approve(self, request: Request) -> Response:
        """Approve what the body names, or withdraw that."""
        return await self._stored("approve", request)

    async def _stored(self, verb: str, request: Request) -> Response:
        """Answer to a request whose body is that of an operation which stores something."""
        fields(request)
        identity = identity_of(request)
        reply = await self._cell.ask(verb, identity, await self._object_in(request, identity))
        return Response(reply, HTTPStatus.ACCEPTED, media_type=JSON)

    async def me(self, request: Request) -> Response:
        """What the caller may do."""
        fields(request)
        return Response(msgspec.json.encode(await self._cell.rights(identity_of(request))), media_type=JSON)


def fields(request: Request, known: set[str] | frozenset[str] = frozenset()) -> dict[str, str]:
    """Fields of the query of a request.

    Args:
        request: The request.
        known: Names that it may have, each once.

    Raises:
        RequestError: It has another one, or one twice.
    """
    if not request.scope["query_string"]:
        return {}
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            words = ", ".join(sorted(known)) or "none"
            raise RequestError(f"query field {name[:_SHOWN_MAX]} is unknown, expected one of {words}")
        if name in found:
            raise RequestError(f"query field {name} is there twice, expected once")
        found[name] = value
    return found


def asked_in(request: Request, kind: type[T], known: set[str]) -> T:
    """Request to the service ``api`` out of a path and a query.

    Raises:
        RequestError: A name or field is wrong.
    """
    return converted({**request.path_params, **fields(request, known)}, kind)


def converted(tree: dict[str, object], kind: type[T]) -> T:
    """Request to the service ``api`` out of texts.

    Raises:
        RequestError: A field is wrong.
    """
    try:
        return msgspec.convert(tree, kind, strict=False)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).rpartition(" - at `$.")
        field = path.removesuffix("`").partition("[")[0]
        value = repr(str(tree.get(field, ""))[:_SHOWN_MAX])
        what = (reason or str(error)).removeprefix("Expected ").partition(", got ")[0]
        raise RequestError(f"{field or 'request'} is {value}, expected {what}") from error


def check_object(body: bytes) -> None:
    """Check that a body is one JSON object, so that it can be a part of another.

    Raises:
        RequestError: The body is not one JSON object.
    """
    try:
        value = bytes(msgspec.json.decode(body, type=msgspec.Raw))
    except RecursionError as error:
        raise RequestError("body is nested too deeply, expected a job file in JSON") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RequestError(f"body is malformed, expected a job file in JSON ({error})") from error
    if not value.startswith(b"{"):
        raise RequestError(f"body is {value[:_SHOWN_MAX].decode(errors='replace')}, expected a JSON object")


def job_in(path_params: dict[str, str]) -> Sequence[str]:
    """Namespace and name in a path.

    Raises:
        RequestError: A part of the path is not a name.
    """
    asked = converted(dict(path_params), shapes.StatusRequest)
    return asked.namespace, asked.name
