"""Bodies of requests: read up to a limit, whatever the client says of their length."""

from typing import Final

from starlette.requests import ClientDisconnect, Request

from berth.services.gateway.errors import RequestError

_JSON: Final = "application/json"
_DIGITS_MAX: Final = 18


def stated_length(request: Request, bytes_max: int) -> int:
    """Bytes of a body as the client says, at most ``bytes_max``; so many also if it says nothing of use."""
    length = request.headers.get("content-length", "")
    return min(bytes_max, int(length)) if length.isdecimal() and len(length) <= _DIGITS_MAX else bytes_max


async def json_body(request: Request, bytes_max: int) -> bytes:
    """Body of a request that says it is JSON.

    Args:
        request: The request.
        bytes_max: Longest body in bytes.

    Raises:
        RequestError: It says something else, or is too long.
        ClientDisconnect: The client has gone.
    """
    kind = request.headers.get("content-type", "")
    media = kind.partition(";")[0].strip().lower()
    if media != _JSON:
        accepts = {"Accept-Patch" if request.method == "PATCH" else "Accept-Post": _JSON}
        raise RequestError(f"header Content-Type is {kind[:80]!r}, expected {_JSON}", "wrong-content-type", accepts)
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise RequestError("header Content-Encoding is set, expected a body that is not packed", "wrong-content-type")
    length = request.headers.get("content-length", "0")
    if len(length) > _DIGITS_MAX or (length.isdecimal() and int(length) > bytes_max):
        raise RequestError(_too_long(length[:_DIGITS_MAX], bytes_max), "too-large")
    parts: list[bytes] = []
    size = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > bytes_max:
            raise RequestError(_too_long(f"over {bytes_max}", bytes_max), "too-large")
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if len(parts) > 1 else part


def _too_long(size: str, bytes_max: int) -> str:
    return f"body is {size} bytes, expected at most {bytes_max}"
