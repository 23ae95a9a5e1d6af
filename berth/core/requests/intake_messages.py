"""Messages of the intake: which bytes on which subject are a request or a cancellation."""

from typing import Final

from berth.core.requests.dead_reasons import INVALID, UNDECODABLE, UNKNOWN_KIND, WRONG_SUBJECT
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.intake import JobCancel, JobRequest
from berth.schemas.subjects import PLAIN_CHARACTERS_MAX, Subjects, is_plain

_SHOWN_MAX: Final = 100


class NoRequestError(DecodeError):
    """A message of the intake that is neither a request nor a cancellation.

    Attributes:
        code: Kind of the reason (:mod:`berth.core.requests.dead_reasons`).
    """

    def __init__(self, reason: str, *, kind: str = "", code: str) -> None:
        super().__init__(reason, kind=kind)
        self.code = code


def read_request(subjects: Subjects, subject: str, data: bytes) -> JobRequest | JobCancel:
    """The request or cancellation in a message of the intake.

    Args:
        subjects: Those of the cell.
        subject: Subject on which the message was stored.
        data: The message.

    Raises:
        NoRequestError: It is neither, or is on the subject of another job.
    """
    try:
        envelope = open_envelope(data)
    except DecodeError as error:
        hint = "; it looks like JSON" if data.lstrip()[:1] in {b"{", b"["} else ""
        raise NoRequestError(error.reason + hint, code=UNDECODABLE) from error
    is_cancel = envelope.kind == JobCancel.KIND
    try:
        message = body_of(envelope, JobCancel) if is_cancel else body_of(envelope, JobRequest)
    except DecodeError as error:
        code = INVALID if is_cancel or envelope.kind == JobRequest.KIND else UNKNOWN_KIND
        raise NoRequestError(error.reason, kind=error.kind, code=code) from error
    own = subjects.intake_cancel if is_cancel else subjects.intake_request
    if subject != own(message.namespace, message.name):
        raise NoRequestError(
            f"namespace and name are {message.namespace}/{message.name}, the subject is {subject}",
            kind=message.KIND,
            code=WRONG_SUBJECT,
        )
    if isinstance(message, JobRequest) and not is_plain(message.uid):
        raise NoRequestError(
            f"uid is {message.uid[:_SHOWN_MAX]!r}, expected at most {PLAIN_CHARACTERS_MAX} characters that can be printed",
            kind=message.KIND,
            code=INVALID,
        )
    return message
