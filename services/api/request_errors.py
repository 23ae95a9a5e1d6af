"""Requests that are not carried out, and the decoding of requests, with errors that name the field."""

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET

from berth.formats.shortened import cut, shortened
from berth.formats.yaml_tree import nearest
from berth.runtime.errors import AmbiguousError, OversizeError, TransientError
from berth.schemas.intake import JobRequest
from berth.schemas.programs.replies import ErrorReply
from berth.schemas.programs.shape import Request
from berth.schemas.refusal import Refusal

T = TypeVar("T", bound=Request)
BYTES_MAX: Final = 4_000_000
"""Longest request in bytes."""
_ERROR_MAX: Final = 2_000
_SHAPE: Final = "job-shape"
_LARGER: Final = "raise max_payload of NATS"
_SHORTER: Final = {
    "status": f"{_LARGER}, or read the job with berth jobs",
    "explain": f"{_LARGER}, or ask with berth explain, which reads the history itself",
    "submit-many": f"submit fewer jobs at once, or {_LARGER}",
    "nodes": f"ask for fewer nodes with limit or names, or {_LARGER}",
}
"""What to do about a reply that is too large."""
_AT: Final = re.compile(r"(?P<reason>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)


class RequestError(Exception):
    """A request that is not carried out.

    Attributes:
        error: ``<field> is <value>, expected <what>``.
        code: Kind of the error.
        retry_after_ms: When the same request may succeed; 0: nobody knows.
    """

    def __init__(
        self, field: str, value: str, expected: str, *, code: str = "invalid-request", retry_after_ms: int = 0
    ) -> None:
        self.error = cut(f"{field} is {value}, expected {expected}", _ERROR_MAX)
        self.code = code
        self.retry_after_ms = retry_after_ms
        super().__init__(self.error)

    def reply(self) -> ErrorReply:
        """The reply to the program."""
        return ErrorReply(error=self.error, code=self.code, retry_after_ms=self.retry_after_ms or UNSET)


class RefusedError(RequestError):
    """A request that the dispatcher would refuse.

    What is refused because of the product form is well written, and can never have a place: it has a code of its own.

    Args:
        refusal: Why.
        name_of: Gives a field of the request its path in what was sent.
    """

    def __init__(self, refusal: Refusal, name_of: Callable[[str], str]) -> None:
        is_shape = bool(refusal.form) and refusal.code == "invalid-request"
        super().__init__(
            name_of(refusal.field),
            refusal.value or ("missing" if refusal.field else "this"),
            refusal.expected or "another",
            code=_SHAPE if is_shape else refusal.code,
        )


class UidInUseError(RequestError):
    """A request whose uid another job has, or a job that is over had.

    Args:
        request: The request.
        owner: Namespace and name of that job. It is named only if it is in the namespace of the request.
        name_of: Gives a field of the request its path in what was sent.
    """

    def __init__(self, request: JobRequest, owner: tuple[str, str], name_of: Callable[[str], str]) -> None:
        job = f"the job {'/'.join(owner)}" if owner[0] == request.namespace else "a job of another namespace"
        expected = f"another uid: {job} has or had this one"
        super().__init__(name_of("uid"), repr(request.uid), expected, code="uid-in-use")


def reply_of(error: RequestError | OversizeError | TransientError) -> ErrorReply:
    """The reply to a request that failed."""
    match error:
        case RequestError():
            return error.reply()
        case OversizeError():
            size = f"request is {error.size_bytes} bytes, expected at most {error.limit_bytes}"
            return ErrorReply(error=size, code="too-large")
        case AmbiguousError():
            more = "; it may be stored: ask again with the same uid"
        case _:
            more = ""
    return ErrorReply(error=f"NATS is unavailable ({error.reason}), expected its answer{more}", code="unavailable")


def reply_too_large(verb: str, *, size_bytes: int, limit_bytes: int) -> ErrorReply:
    """The reply instead of one that NATS would not take.

    Args:
        verb: The operation.
        size_bytes: Of the reply.
        limit_bytes: Longest that NATS takes.
    """
    text = f"reply is {size_bytes} bytes, expected at most {limit_bytes}: {_SHORTER.get(verb, _LARGER)}"
    return ErrorReply(error=text, code="reply-too-large")


def decoded(data: bytes, kind: type[T]) -> T:
    """Request out of its bytes.

    Raises:
        RequestError: It is too long, is not JSON, or a field is unknown, missing or wrong.
    """
    if len(data) > BYTES_MAX:
        raise RequestError("request", f"{len(data)} bytes", f"at most {BYTES_MAX} bytes", code="too-large")
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise RequestError(*_wrong(str(error), data, kind)) from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        text = shortened(data[:_ERROR_MAX].decode(errors="replace"))
        raise RequestError("request", text, f"a JSON object ({error})") from error


def _wrong(message: str, data: bytes, kind: type[Request]) -> tuple[str, str, str]:
    """Field, its value, and what is expected."""
    found = _AT.fullmatch(message)
    reason, path = (found["reason"], found["path"] or "") if found else (message, "")
    path = path.removeprefix(".")
    if (unknown := _UNKNOWN.fullmatch(reason)) is not None:
        known = [field.encode_name for field in msgspec.structs.fields(kind)]
        field = ".".join(filter(None, (path, unknown["name"])))
        return field, "an unknown field", nearest(unknown["name"], known)
    if (missing := _MISSING.fullmatch(reason)) is not None:
        return ".".join(filter(None, (path, missing["name"]))), "missing", "a value"
    what = reason.removeprefix("Expected ").partition(", got ")[0]
    return path or "request", _value_at(data, path), what


def _value_at(data: bytes, path: str) -> str:
    """The value at a path, shortened; the whole request without one, or if it is not JSON from there on."""
    try:
        value: object = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return shortened(data[:_ERROR_MAX].decode(errors="replace"))
    for step in re.findall(r"[^.\[\]]+", path):
        value = _below(value, step)
    return shortened(value) if not isinstance(value, dict) else "an object"


def _below(value: object, step: str) -> object:
    """The value below another one; None without one: the path may be that of a key that a later one replaces."""
    if isinstance(value, list):
        return value[int(step)] if step.isdecimal() and int(step) < len(value) else None
    return value.get(step) if isinstance(value, dict) else None
