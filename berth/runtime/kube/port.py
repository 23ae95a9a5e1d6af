"""Port of the Kubernetes API: a protocol, plain values and errors, without a client."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from berth.formats.kubernetes.paths import is_path
from berth.runtime.errors import PoisonError

T = TypeVar("T")
PatchKind: TypeAlias = Literal["merge", "strategic", "json", "apply"]
Change: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Body: TypeAlias = bytes | msgspec.Struct | Mapping[str, object]
"""A body: JSON as bytes, or a value that is encoded as JSON."""
_SHOWN_LENGTH_MAX: Final = 200


class RefusedError(PoisonError):
    """The server rejects the request, and would reject a repetition.

    Attributes:
        status: HTTP status: 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, ...
        cause: Reason in the status of Kubernetes, such as ``NotFound``, ``AlreadyExists``, ``Conflict``, ``Invalid``,
            ``Forbidden``, ``Expired``.
    """

    def __init__(self, message: str, *, status: int, cause: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause

    @property
    def is_absent(self) -> bool:
        """Whether the object does not exist (404)."""
        return self.status == 404  # noqa: PLR2004 - HTTP's own number

    @property
    def is_conflict(self) -> bool:
        """Whether another writer was first (409)."""
        return self.status == 409  # noqa: PLR2004 - HTTP's own number


def refuse_other_paths(path: str) -> None:
    """Refuse a path that could reach another object than the one that it names; nothing is sent.

    Raises:
        RefusedError: 404, as the object cannot exist.
    """
    if not is_path(path):
        raise RefusedError(
            f"path is {path[:_SHOWN_LENGTH_MAX]!r}, expected names of Kubernetes objects", status=404, cause="NotFound"
        )


class Reflection(Protocol):
    """Reflector of a collection, which lists and then watches it; made by :meth:`Api.reflect`.

    ``synced`` is set when the handler has the first list. The numbers count lists, watches, events and errors.
    """

    synced: asyncio.Event
    lists: int
    watches: int
    events: int
    errors: int

    async def run(self) -> None:
        """List and watch until cancelled. Errors of the server are retried, those of the handler are raised.

        Raises:
            RefusedError: The server refuses to list or to watch an optional collection. It may be run again.
        """


class Handler(Protocol[T]):
    """Consumer of a reflection; runs inside the event loop, must be short, and never awaits."""

    def replace(self, objects: list[T]) -> None:
        """Take all objects, after the first list and each relist. Objects that are not in the list are deleted."""

    def change(self, changes: list[tuple[Change, T]]) -> None:
        """Take changes, oldest first."""


class Api(Protocol):
    """A connection to an API server.

    Paths start with ``/api`` or ``/apis``; ``berth.formats.kubernetes.paths`` builds them from names. A path with an
    empty step, ``.``, ``..``, an escape, a query or a fragment is refused with 404 and not sent.

    Errors of every method, unless it states otherwise: :class:`TransientError` if the server does not answer, is
    overloaded (429, with its Retry-After) or fails (5xx) and nothing changed; :class:`AmbiguousError` if a write may
    have happened (timeout, broken connection, 500 or 504 on a write); :class:`RefusedError` if the server rejects the
    request.
    """

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, str] | None = None) -> T:
        """GET; returns an object or a list, decoded as ``kind``."""

    async def create(self, path: str, body: Body) -> bytes:
        """POST; returns the answer of the server."""

    async def update(self, path: str, body: Body) -> bytes:
        """PUT; returns the answer of the server."""

    async def patch(self, path: str, body: Body, *, how: PatchKind = "merge", field_manager: str = "") -> bytes:
        """PATCH; returns the answer of the server. ``apply`` is server-side apply and needs a field manager."""

    async def delete(self, path: str, *, uid: str = "", grace_s: int | None = None, propagation: str = "") -> None:
        """DELETE, with a uid only the object with that uid; an object that does not exist counts as deleted."""

    def reflect(
        self,
        path: str,
        kind: type[T],
        handler: Handler[T],
        *,
        params: Mapping[str, str] | None = None,
        is_optional: bool = False,
    ) -> Reflection:
        """Reflection of the collection ``path``; run it in a task group.

        Args:
            path: Collection, such as ``/api/v1/pods``.
            kind: Struct of one object.
            handler: Consumer of lists and changes.
            params: Selectors: ``labelSelector``, ``fieldSelector``.
            is_optional: The server may not have it, or may refuse it: that ends a run.
        """

    async def serves(self, group_version: str, plural: str) -> bool:
        """Whether the server has a kind, such as ``scheduling.volcano.sh/v1beta1`` ``podgroups``."""

    async def version(self) -> str:
        """Version of the server, such as ``v1.36.3``."""

    async def close(self) -> None:
        """Close all connections."""
