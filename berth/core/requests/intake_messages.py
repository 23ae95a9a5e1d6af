"""Messages of the intake: which bytes on which subject are a request, a cancellation, or a change of a job."""

from typing import Final

from berth.core.requests.dead_reasons import INVALID, UNDECODABLE, UNKNOWN_KIND, WRONG_SUBJECT
from berth.schemas.envelope import DecodeError, body_of, open_envelope
from berth.schemas.intake import JobCancel, JobRequest, JobSteer
from berth.schemas.subjects import PLAIN_CHARACTERS_MAX, Subjects, is_plain

_SHOWN_MAX: Final = 100
_Wish = JobRequest | JobCancel | JobSteer
_KINDS: Final[dict[str, type[_Wish]]] = {kind.KIND: kind for kind in (JobRequest, JobCancel, JobSteer)}


class NoRequestError(DecodeError):
    """A message of the intake that is none of those which it is for.

    Attributes:
        code: Kind of the reason (:mod:`berth.core.requests.dead_reasons`).
    """

    def __init__(self, reason: str, *, kind: str = "", code: str) -> None:
        super().__init__(reason, kind=kind)
        self.code = code


def read_request(subjects: Subjects, subject: str, data: bytes) -> _Wish:
    """The request, cancellation or change of a job in a message of the intake.

    Args:
        subjects: Those of the cell.
        subject: Subject on which the message was stored.
        data: The message.

    Raises:
        NoRequestError: It is none of them, or is on the subject of another job.
    """
    try:
        envelope = open_envelope(data)
    except DecodeError as error:
        hint = "; it looks like JSON" if data.lstrip()[:1] in {b"{", b"["} else ""
        raise NoRequestError(error.reason + hint, code=UNDECODABLE) from error
    try:
        message: _Wish = body_of(envelope, _KINDS.get(envelope.kind, JobRequest))
    except DecodeError as error:
        code = INVALID if envelope.kind in _KINDS else UNKNOWN_KIND
        raise NoRequestError(error.reason, kind=error.kind, code=code) from error
    if subject != _subject_of(subjects, message):
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


def _subject_of(subjects: Subjects, message: _Wish) -> str:
    match message:
        case JobCancel():
            own = subjects.intake_cancel
        case JobSteer():
            own = subjects.intake_steer
        case _:
            own = subjects.intake_request
    return own(message.namespace, message.name)
