"""Errors of requests: one form in JSON, and the HTTP status of each code."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from berth.schemas.programs.replies import ErrorReply

RETRY_AFTER_S: Final = 1
INTERNAL: Final = "internal"
"""Code of a fault of Berth."""
_STATUS: Final[Mapping[str, HTTPStatus]] = {
    "invalid-request": HTTPStatus.BAD_REQUEST,
    "token-in-url": HTTPStatus.BAD_REQUEST,
    "no-token": HTTPStatus.UNAUTHORIZED,
    "denied": HTTPStatus.FORBIDDEN,
    "cross-site": HTTPStatus.FORBIDDEN,
    "not-found": HTTPStatus.NOT_FOUND,
    "wrong-method": HTTPStatus.METHOD_NOT_ALLOWED,
    "request-timeout": HTTPStatus.REQUEST_TIMEOUT,
    "name-in-use": HTTPStatus.CONFLICT,
    "uid-in-use": HTTPStatus.CONFLICT,
    "over": HTTPStatus.CONFLICT,
    "conflict": HTTPStatus.CONFLICT,
    "events-lost": HTTPStatus.GONE,
    "too-large": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "wrong-content-type": HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    "wrong-host": HTTPStatus.MISDIRECTED_REQUEST,
    "reply-too-large": HTTPStatus.INTERNAL_SERVER_ERROR,
    INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    "unavailable": HTTPStatus.SERVICE_UNAVAILABLE,
    "too-many": HTTPStatus.SERVICE_UNAVAILABLE,
}
"""Codes that are not here are those of refusals: the job is wrong."""
CODES: Final = tuple(_STATUS)


def status_of(code: str) -> HTTPStatus:
    """HTTP status of a code of :class:`ErrorReply`."""
    return _STATUS.get(code, HTTPStatus.BAD_REQUEST)


class RequestError(Exception):
    """A request that is not carried out.

    Attributes:
        error: ``<field> is <value>, expected <what>``.
        code: Kind of the error.
        headers: More headers of the answer.
    """

    def __init__(self, error: str, code: str = "invalid-request", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.headers = dict(headers or {})

    @property
    def status(self) -> HTTPStatus:
        """HTTP status of the answer."""
        return status_of(self.code)

    @property
    def body(self) -> bytes:
        """Body of the answer."""
        return error_body(self.error, self.code)

    def all_headers(self) -> dict[str, str]:
        """Headers that belong to the status, and those of this error."""
        own: dict[str, str] = {}
        if self.status == HTTPStatus.UNAUTHORIZED:
            own["WWW-Authenticate"] = 'Bearer realm="berth"'
            own["Connection"] = "close"  # strangers hold no connections
        if self.status == HTTPStatus.SERVICE_UNAVAILABLE:
            own["Retry-After"] = str(RETRY_AFTER_S)
        return own | self.headers


def error_body(error: str, code: str) -> bytes:
    """JSON of an error."""
    return msgspec.json.encode(ErrorReply(error=error, code=code))
