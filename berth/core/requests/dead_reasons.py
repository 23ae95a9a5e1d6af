"""Kinds of reasons why a message becomes a dead letter: few and fixed, for filters and metrics."""

from typing import Final

from berth.schemas.envelope import DecodeError, open_envelope
from berth.schemas.status import DeadLetter

UNDECODABLE: Final = "undecodable"
"""The bytes are no message of Berth, such as JSON."""
UNKNOWN_KIND: Final = "unknown-kind"
"""A message of a kind that this release does not read there, such as one of a newer release."""
INVALID: Final = "invalid"
"""A message of the right kind with a wrong field."""
WRONG_SUBJECT: Final = "wrong-subject"
"""A request on the subject of another job."""
UNSTORABLE: Final = "unstorable"
"""The server will never store the verdict, such as one that is too large."""
INTERNAL: Final = "internal-error"
"""An error of Berth."""
OTHER: Final = "other"
"""In a letter of another release."""
CODES: Final = (UNDECODABLE, UNKNOWN_KIND, INVALID, WRONG_SUBJECT, UNSTORABLE, INTERNAL, OTHER)


def code_of_bytes(data: bytes) -> str:
    """Kind of the reason why a fact cannot be applied."""
    try:
        open_envelope(data)
    except DecodeError:
        return UNDECODABLE
    return INVALID


def code_of(letter: DeadLetter) -> str:
    """Kind of the reason of a letter, one of :data:`CODES`, also for letters of other releases."""
    if letter.code in CODES:
        return letter.code
    if not letter.code and letter.data and code_of_bytes(letter.data) == UNDECODABLE:
        return UNDECODABLE
    return OTHER
