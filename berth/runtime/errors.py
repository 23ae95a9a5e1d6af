"""Errors of the runtime, classified by what a handler does next.

Adapters translate exceptions of libraries into these, so that no other exception leaves them. Fields carry the data;
the text is for people.
"""

from berth.schemas.envelope import VersionError

DEFAULT_RETRY_AFTER_S = 0.5


class ShellError(Exception):
    """Base class of the errors below; catch one of those instead."""


class TransientError(ShellError):
    """A temporary failure: keep the position and try again after ``retry_after_s`` seconds, with a bounded backoff.

    Unless it is an :class:`AmbiguousError`, the failed operation changed nothing.
    """

    def __init__(self, reason: str = "", *, retry_after_s: float = DEFAULT_RETRY_AFTER_S) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class NoStreamError(TransientError):
    """A stream does not exist, as the server says itself; it may be created at any time."""


class AmbiguousError(TransientError):
    """No answer came: the request may have taken effect, may still do so, or may be lost. Read back before a retry."""


class ConflictError(ShellError):
    """A write was rejected because another writer was first: read up to the head before a retry.

    ``last_seq`` is the last sequence that the server reported, of the stream or of the subject, whichever the write
    expected; None if it reported none.
    """

    def __init__(self, reason: str = "", *, last_seq: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_seq = last_seq


class DuplicateError(ConflictError):
    """Nothing was stored, because a message with the same id was stored some minutes ago, on whatever subject."""


class PoisonError(ShellError):
    """Permanent failure of one message: store it as a dead letter with the reason, and continue."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OversizeError(PoisonError):
    """A message exceeds the size limit; nothing was sent. Both numbers are bytes and include headers."""

    def __init__(self, subject: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"message to {subject} has {size_bytes} bytes, the limit is {limit_bytes}")
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class FatalError(ShellError):
    """The process cannot continue: keep the position and exit; the supervisor restarts it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DeniedError(FatalError):
    """A server rejects the credentials, does not permit a subject, or offers no TLS: a restart alone does not help."""


class UntrustedError(DeniedError):
    """The certificate of a server is not trusted, or is for another name."""


def other_version(error: BaseException) -> VersionError | None:
    """What only another release reads, if it is the error or its cause; None for other errors."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, VersionError):
        cause = cause.__cause__
    return cause
