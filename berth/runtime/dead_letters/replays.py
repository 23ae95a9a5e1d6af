"""Replay of dead letters: the bytes of a request are published again on its subject, once.

A letter says that a replay was begun before the message is published, with the last message that its subject had until
then. The publication names that message as the last one, so two that replay the same letter store one message. After an
interruption the next try finds out whether the message was stored, and does not publish it again if it was.
"""

import contextlib
from typing import Final

import msgspec

from berth.core.requests.intake_messages import NoRequestError, read_request
from berth.runtime.bus.port import Bus
from berth.runtime.clock import Clock
from berth.runtime.dead_letters.letters import Letter, LetterError, find_letter
from berth.runtime.errors import AmbiguousError, ConflictError
from berth.schemas.envelope import encode
from berth.schemas.status import DeadLetter, Replay
from berth.schemas.subjects import StreamName

_TRIES: Final = 5


class Replayed(msgspec.Struct, frozen=True):
    """What became of a replay.

    Attributes:
        id: Name of the letter.
        subject: Subject on which its message was published.
        sequence: Sequence of the message that was published, in the stream of the subject.
        is_resumed: Whether an earlier replay had published it, and only its end was not noted.
    """

    id: str
    subject: str
    sequence: int
    is_resumed: bool


async def message_of(bus: Bus, letter: Letter) -> bytes:
    """The whole message of a letter; from its stream if the letter has only the beginning.

    Raises:
        LetterError: It is not there any more.
        TransientError: The bus did not answer.
    """
    body = letter.body
    if body.purge is not None:
        raise LetterError(f"{letter.id} was purged: its message is not there any more")
    if not letter.is_cut:
        return body.data
    stored = await bus.message(StreamName(body.stream), body.sequence)
    if stored is None or stored.subject != body.subject or not stored.data.startswith(body.data):
        raise LetterError(
            f"{letter.id}: the letter has the first {len(body.data)} bytes of the message, and {body.stream} does not"
            " have the message any more"
        )
    return stored.data


async def check_replay(bus: Bus, letter: Letter) -> bytes:
    """Check that a letter may be replayed; returns its message.

    Raises:
        LetterError: It may not, or would become a dead letter again; the message says why.
        TransientError: The bus did not answer.
    """
    body = letter.body
    if body.stream != StreamName.INTAKE:
        raise LetterError(
            f"{letter.id} is not replayed: a fact says how something was at its time, and would replace newer facts;"
            " the service that wrote it publishes what is so now"
        )
    if body.replay is not None and body.replay.sequence:
        raise LetterError(
            f"{letter.id} was replayed already, by {body.replay.by} as request {body.replay.sequence}; a letter is"
            " replayed once"
        )
    data = await message_of(bus, letter)
    try:
        read_request(bus.subjects, body.subject, data)
    except NoRequestError as error:
        raise LetterError(
            f"{letter.id} is not replayed, it would become a dead letter again: {error}; correct the request and"
            " submit that"
        ) from error
    return data


async def replay(bus: Bus, clock: Clock, name: str, *, by: str) -> Replayed:
    """Publish the message of a dead letter again on its subject.

    Args:
        bus: The cell.
        clock: For the time in the letter.
        name: Of the letter.
        by: Name of this process.

    Raises:
        LetterError: It is not replayed; the message says why.
        AmbiguousError: No acknowledgement came. The next replay of the letter finds out, and publishes once.
        TransientError: The bus did not answer.
    """
    for _ in range(_TRIES):
        letter = await find_letter(bus, name)
        data = await check_replay(bus, letter)
        # Read before the look for an earlier replay: a message that comes after it is in the way of the publication.
        last = await bus.last(StreamName.INTAKE, letter.body.subject)
        begun = letter.body.replay
        if begun is not None and (stored_seq := await _stored_since(bus, letter.body, data, begun.after_seq)):
            await _note_end(bus, letter, msgspec.structs.replace(begun, sequence=stored_seq))
            return Replayed(letter.id, letter.body.subject, stored_seq, is_resumed=True)
        after_seq = last.sequence if last is not None else 0
        mark = Replay(clock.now_ms(), by, after_seq)
        try:
            letter = await _note(bus, letter, mark)
            sequence = await bus.publish(letter.body.subject, data, expected_subject_seq=after_seq)
        except ConflictError:
            continue  # another process replays it, or a newer request for the same job came in between
        except AmbiguousError as error:
            raise AmbiguousError(
                f"{letter.id}: no acknowledgement came ({error.reason}); the same command finds out, and publishes once"
            ) from error
        await _note_end(bus, letter, msgspec.structs.replace(mark, sequence=sequence))
        return Replayed(letter.id, letter.body.subject, sequence, is_resumed=False)
    raise LetterError(f"{name}: others write to the same subject all the time; start the command again")


async def _stored_since(bus: Bus, letter: DeadLetter, data: bytes, after_seq: int) -> int:
    """Sequence of the same message on the same subject, after another one; 0 if there is none.

    Raises:
        LetterError: The messages of that time are not kept any more.
        TransientError: The bus did not answer.
    """
    state = await bus.state(StreamName.INTAKE)
    oldest = await bus.message(StreamName.INTAKE, after_seq) if after_seq else None
    if after_seq and oldest is None and state.first_seq > after_seq + 1:
        raise LetterError(
            f"{letter.stream.lower()}:{letter.sequence}: a replay was begun and not finished, and INTAKE does not keep"
            " the requests of that time any more: whether it was published is not known. Submit the request anew"
        )
    for stored in await bus.read(StreamName.INTAKE, start_seq=after_seq + 1, filters=(letter.subject,)):
        if stored.data == data:
            return stored.sequence
    return 0


async def _note(bus: Bus, letter: Letter, mark: Replay) -> Letter:
    """Store how far the replay of a letter is; returns the letter with it.

    Raises:
        ConflictError: The letter was changed meanwhile.
        TransientError: The bus did not answer.
    """
    body = msgspec.structs.replace(letter.body, replay=mark)
    subject = bus.subjects.dead(StreamName(body.stream), body.sequence)
    return Letter(await bus.publish(subject, encode(body), expected_subject_seq=letter.revision), body)


async def _note_end(bus: Bus, letter: Letter, mark: Replay) -> None:
    """Store that the message of a letter was published.

    Raises:
        TransientError: The bus did not answer; the next replay of the letter finds the message.
    """
    with contextlib.suppress(ConflictError):  # another process has noted it, or will find the message
        await _note(bus, letter, mark)
