"""The Kubernetes API as services see it: a protocol, plain values and errors; no client."""

import asyncio
from collections.abc import Mapping
from typing import Literal, Protocol, TypeAlias, TypeVar

import msgspec

from berth.runtime.errors import PoisonError

T = TypeVar("T")
PatchKind: TypeAlias = Literal["merge", "strategic", "json", "apply"]
Change: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Body: TypeAlias = bytes | msgspec.Struct | Mapping[str, object]
"""A body as bytes of JSON, or what becomes JSON."""


class RefusedError(PoisonError):
    """The server refuses what was asked, and will again.

    Attributes:
        status: HTTP status: 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, ...
        cause: Kubernetes' own word, such as ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Invalid``, ``Forbidden``, ``Expired``.
    """

    def __init__(self, message: str, *, status: int, cause: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause

    @property
    def is_absent(self) -> bool:
        """Whether the thing is not there (404)."""
        return self.status == 404  # noqa: PLR2004 - HTTP's own number

    @property
    def is_conflict(self) -> bool:
        """Whether somebody else was first (409)."""
        return self.status == 409  # noqa: PLR2004 - HTTP's own number


class Reflection(Protocol):
    """A kind of objects, listed and then watched for ever; made by :meth:`Api.reflect`.

    ``synced`` is set once the first list was handed over. Numbers count what happened so far.
    """

    synced: asyncio.Event
    lists: int
    watches: int
    events: int
    errors: int

    async def run(self) -> None:
        """List and watch until cancelled. Errors of the server are answered by back-off; those of the handler are raised."""


class Handler(Protocol[T]):
    """Takes what a reflection sees; runs inside the event loop, must be short, and never awaits."""

    def replace(self, objects: list[T]) -> None:
        """All objects that there are: after the first list, and after each relist. What is not among them is gone."""

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Changes, oldest first."""


class Api(Protocol):
    """A connection to an API server.

    Paths start with ``/api`` or ``/apis``. Errors of every method, unless it says otherwise: :class:`TransientError`
    when the server does not answer, is overloaded (429, with its Retry-After) or fails (5xx) and nothing was changed;
    :class:`AmbiguousError` when a write may have happened (time-out, broken connection, 500 or 504 on a write);
    :class:`RefusedError` when it says no.
    """

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """An object, or a list of them, decoded as ``kind``."""

    async def create(self, path: str, body: Body) -> bytes:
        """POST; the server's answer."""

    async def update(self, path: str, body: Body) -> bytes:
        """PUT; the server's answer."""

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        """PATCH; the server's answer. ``apply`` is server-side apply and needs a field manager."""

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        """DELETE, only the object with this uid if one is given; an object that is absent already counts as deleted."""

    def reflect(
        self, path: str, kind: type[T], handler: Handler[T], *, params: Mapping[str, str] | None = None
    ) -> Reflection:
        """Reflection of the objects below ``path``, a collection; run it in a task group.

        Args:
            path: Collection, such as ``/api/v1/pods``.
            kind: Struct of one object.
            handler: Takes lists and changes.
            params: Selectors: ``labelSelector``, ``fieldSelector``.
        """

    async def serves(self, group_version: str, plural: str) -> bool:
        """Whether the server has a kind, such as ``scheduling.volcano.sh/v1beta1`` ``podgroups``."""

    async def version(self) -> str:
        """Version of the server, such as ``v1.36.3``."""

    async def close(self) -> None:
        """Close all connections."""
