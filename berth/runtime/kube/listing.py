"""Objects of a collection, read once and page by page; a reflection is for those who go on watching."""

from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final, TypeVar

from berth.formats.kubernetes.objects import Listed
from berth.runtime.errors import TransientError
from berth.runtime.kube.port import Api, RefusedError

PAGE_SIZE: Final = 1_000
"""Objects in one page of a list."""

T = TypeVar("T")


async def objects_of(
    api: Api, path: str, kind: type[Listed[T]], *, page_size: int, selectors: Mapping[str, str] | None = None
) -> AsyncIterator[T]:
    """Objects of a collection as they are at one moment.

    Args:
        api: The API server.
        path: Collection, such as ``/api/v1/pods``.
        kind: Page of a list of the struct of one object.
        page_size: Most objects of a page; at least 1.
        selectors: ``labelSelector`` and ``fieldSelector``.

    Raises:
        TransientError: The server did not answer, or forgot that moment before the last page; read the list again.
        RefusedError: The server rejects the request.
    """
    params = {**(selectors or {}), "limit": str(page_size)}
    while True:
        try:
            page = await api.get(path, kind, params=params)
        except RefusedError as error:
            if error.status == HTTPStatus.GONE and "continue" in params:
                raise TransientError(f"list of {path}: {error.reason}") from error
            raise
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        params["continue"] = page.metadata.continue_
