"""Errors of the shell, sorted by what the one who catches them does next.

No exception of a library crosses an adapter: bus, cluster and server raise only these. The data are in fields; the text
is for people.
"""

from berth.schemas.envelope import NewerVersionError

DEFAULT_RETRY_AFTER_S = 0.5


class ShellError(Exception):
    """Root of the errors below; catch one of those instead."""


class TransientError(ShellError):
    """The world may heal: keep the position and try again after ``retry_after_s`` seconds, with a bounded back-off.

    Unless it is an :class:`AmbiguousError`, nothing was changed by what failed.
    """

    def __init__(self, reason: str = "", *, retry_after_s: float = DEFAULT_RETRY_AFTER_S) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_after_s = retry_after_s


class AmbiguousError(TransientError):
    """No answer came: what was sent may have landed, may land yet, or may be lost. Read back before another attempt."""


class ConflictError(ShellError):
    """A write was refused because somebody else wrote first: read up to the head, never repeat blindly.

    ``last_seq`` is the sequence the server named as the last one, of the stream or of the subject, whichever was
    expected; None when it named none.
    """

    def __init__(self, reason: str = "", *, last_seq: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.last_seq = last_seq


class PoisonError(ShellError):
    """This can never succeed: put it aside with the reason and go on."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class OversizeError(PoisonError):
    """A message is larger than may be sent; nothing was sent. Both numbers are bytes, headers included."""

    def __init__(self, subject: str, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"message to {subject} has {size_bytes} bytes, the limit is {limit_bytes}")
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class FatalError(ShellError):
    """The process cannot go on: keep the position, exit, be restarted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def newer_version(error: BaseException) -> NewerVersionError | None:
    """The message that only a newer release reads, if it is the error or its cause; None for other errors."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, NewerVersionError):
        cause = cause.__cause__
    return cause
