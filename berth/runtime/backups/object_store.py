"""Backups in an object store, such as S3: copies of files, whole or not at all.

A file is made and checked on this machine first. The library, obstore, is imported only when a URL is given. Its
blocking calls are used: with those for asyncio the process may abort when it ends.
"""

import os
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from berth.runtime.errors import FatalError, ShellError
from berth.runtime.release import install_extra

SCHEMES: Final = ("s3", "gs", "az")
_PART_BYTES: Final = 8 << 20
_PARTS_AT_ONCE: Final = 4
"""Parts that are on their way at a time; with :data:`_PART_BYTES` it bounds the memory of an upload."""


_TRIES: Final = 4
_RETRY_S: Final = 60


class ObjectStoreError(ShellError):
    """The object store refuses a request, or does not answer."""


class ObjectUrl(NamedTuple):
    """Where an object is.

    Attributes:
        store: Scheme and bucket, such as ``s3://backups``.
        key: Name of the object in it.
    """

    store: str
    key: str

    def __str__(self) -> str:
        return f"{self.store}/{self.key}"


def object_url(text: str) -> ObjectUrl | None:
    """The URL of an object; None if the text is no URL of an object store, and so the name of a file.

    Raises:
        ValueError: Bucket or key is missing.
    """
    scheme, separator, _ = text.partition("://")
    if not separator or scheme not in SCHEMES:
        return None
    parts = urlsplit(text)
    key = parts.path.removeprefix("/")
    if not parts.netloc or not key or key.endswith("/") or parts.query or parts.fragment:
        raise ValueError(f"{text!r} names no object: expected such as {scheme}://bucket/folder/cell.backup")
    return ObjectUrl(f"{scheme}://{parts.netloc}", key)


def upload(path: Path, url: ObjectUrl) -> None:
    """Copy a file to an object, in parts; nobody sees the object before all of it is there.

    Raises:
        ObjectStoreError: It was not stored, or not all of it; what was there before is still there.
        FatalError: The library is not installed.
        OSError: The file cannot be read.
    """
    library = _library()
    try:
        store = _store(library, url)
        library.put(store, url.key, path, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        stored = library.head(store, url.key)["size"]
    except library.exceptions.BaseError as error:
        raise ObjectStoreError(f"{url} was not stored: {_reason(error)}") from error
    expected = path.stat().st_size
    if stored != expected:
        raise ObjectStoreError(f"{url} has {stored} bytes after the upload, expected {expected}")


def exists(url: ObjectUrl) -> bool:
    """Whether there is such an object.

    Raises:
        ObjectStoreError: The store does not say.
        FatalError: The library is not installed.
    """
    library = _library()
    try:
        library.head(_store(library, url), url.key)
    except (library.exceptions.NotFoundError, FileNotFoundError):
        return False
    except library.exceptions.BaseError as error:
        raise ObjectStoreError(f"{url} cannot be looked up: {_reason(error)}") from error
    return True


def download(url: ObjectUrl, path: Path) -> None:
    """Copy an object to a file, in pieces.

    Raises:
        ObjectStoreError: There is no such object, or not all of it came.
        FatalError: The library is not installed.
        OSError: The file cannot be written.
    """
    library = _library()
    try:
        found = library.get(_store(library, url), url.key)
        with path.open("wb") as file:
            for piece in found.stream(min_chunk_size=_PART_BYTES):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
    except (library.exceptions.NotFoundError, FileNotFoundError) as error:
        raise ObjectStoreError(f"there is no {url}") from error
    except library.exceptions.BaseError as error:
        raise ObjectStoreError(f"{url} cannot be read: {_reason(error)}") from error
    if path.stat().st_size != found.meta["size"]:
        raise ObjectStoreError(f"{url} ended after {path.stat().st_size} of {found.meta['size']} bytes")


def _library() -> ModuleType:
    try:
        import obstore  # noqa: PLC0415  # an extra, for those who name a URL
    except ImportError as error:
        raise FatalError(f"object stores need obstore: {install_extra('object-store')}") from error
    return obstore


def _store(library: ModuleType, url: ObjectUrl) -> Any:  # noqa: ANN401  # a class of the library for each scheme
    """The store, with address and credentials from the environment (``AWS_...``, ``GOOGLE_...``, ``AZURE_...``)."""
    patience = {"max_retries": _TRIES, "retry_timeout": timedelta(seconds=_RETRY_S)}
    return library.store.from_url(url.store, retry_config=patience)


def _reason(error: Exception) -> str:
    """First line of an error of the library; the rest is its own structure."""
    return str(error).strip().partition("\n")[0]
