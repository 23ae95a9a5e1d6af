"""Dead letters as rows of a list, for programs."""

import msgspec

from berth.core.requests.dead_reasons import code_of
from berth.runtime.dead_letters.letters import Letter


class LetterRow(msgspec.Struct, frozen=True):
    """A dead letter in a list.

    Attributes:
        id: Its name for the other commands.
        stream: Stream of its message.
        sequence: Sequence of its message there.
        subject: Subject of its message.
        code: Kind of the reason.
        reason: Why the message can never be handled.
        at_ms: When the letter was written.
        stored_ms: When the message was stored.
        size_bytes: Bytes of the message.
        state: ``open``, ``replaying``, ``replayed`` or ``purged``.
    """

    id: str
    stream: str
    sequence: int
    subject: str
    code: str
    reason: str
    at_ms: int
    stored_ms: int
    size_bytes: int
    state: str


def row_of(letter: Letter) -> LetterRow:
    """A dead letter in a list."""
    body = letter.body
    return LetterRow(
        letter.id,
        body.stream,
        body.sequence,
        body.subject,
        code_of(body),
        body.reason,
        body.at_ms,
        body.stored_ms,
        body.size_bytes or len(body.data),
        letter.state,
    )
