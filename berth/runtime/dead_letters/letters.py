"""Reading of dead letters, and what identifies one: the stream and the sequence of its message."""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from berth.runtime.bus.port import Bus
from berth.runtime.dead_letters.writing import DATA_MAX
from berth.runtime.errors import ShellError
from berth.schemas.envelope import DecodeError, decode
from berth.schemas.status import DeadLetter
from berth.schemas.subjects import StreamName

State = Literal["open", "replaying", "replayed", "purged"]
_ID: Final = re.compile(r"(?:(?P<stream>[A-Za-z]+):)?(?P<sequence>[0-9]{1,19})")


class LetterError(ShellError):
    """A dead letter is not what the caller takes it for; the message says why, and what helps."""


class Letter(NamedTuple):
    """A dead letter as it is stored.

    Attributes:
        revision: Its sequence in DEAD, which changes with each change of the letter.
        body: The letter.
    """

    revision: int
    body: DeadLetter

    @property
    def id(self) -> str:
        """Its name for people, such as ``intake:12``: the stream and the sequence of its message."""
        return f"{self.body.stream.lower()}:{self.body.sequence}"

    @property
    def state(self) -> State:
        """What became of it; ``replaying`` if a replay was begun and its end is not known."""
        if self.body.purge is not None:
            return "purged"
        if self.body.replay is not None:
            return "replayed" if self.body.replay.sequence else "replaying"
        return "open"

    @property
    def is_open(self) -> bool:
        """Whether nobody has settled it."""
        return self.state in {"open", "replaying"}

    @property
    def is_cut(self) -> bool:
        """Whether it does not contain the whole message."""
        size = self.body.size_bytes or len(self.body.data)
        return size > len(self.body.data) or (not self.body.size_bytes and size >= DATA_MAX)


class Found(NamedTuple):
    """All dead letters of a cell.

    Attributes:
        letters: In the order in which they were written or changed.
        unreadable: Sequences in DEAD of messages that are no dead letters.
    """

    letters: list[Letter]
    unreadable: list[int]


async def read_letters(bus: Bus) -> Found:
    """Read all dead letters.

    Raises:
        TransientError: The bus did not answer.
    """
    found = Found([], [])
    for stored in await bus.read(StreamName.DEAD):
        try:
            found.letters.append(Letter(stored.sequence, decode(stored.data, DeadLetter)))
        except DecodeError:
            found.unreadable.append(stored.sequence)
    return found


async def find_letter(bus: Bus, name: str) -> Letter:
    """The dead letter of a name such as ``intake:12``, or of the sequence alone if that is clear.

    Raises:
        LetterError: There is no such letter, or the name is none.
        TransientError: The bus did not answer.
    """
    match = _ID.fullmatch(name)
    streams = [stream for stream in (StreamName.INTAKE, StreamName.FACTS) if match and _is_meant(match, stream)]
    if match is None or not streams:
        raise LetterError(f"dead letter {name!r}: expected a name as berth dead list prints it, such as intake:12")
    found = []
    for stream in streams:
        stored = await bus.last(StreamName.DEAD, bus.subjects.dead(stream, int(match["sequence"])))
        if stored is not None:
            try:
                found.append(Letter(stored.sequence, decode(stored.data, DeadLetter)))
            except DecodeError as error:
                raise LetterError(f"the message for {name} in DEAD is no dead letter: {error}") from error
    if not found:
        raise LetterError(f"there is no dead letter {name}; see: berth dead list --all")
    if len(found) > 1:
        raise LetterError(f"dead letter {name}: say which of {' and '.join(one.id for one in found)} is meant")
    return found[0]


async def find_each(bus: Bus, names: Iterable[str]) -> list[Letter]:
    """The dead letters of several names, each once; see :func:`find_letter`."""
    letters = [await find_letter(bus, name) for name in names]
    return list({one.id: one for one in letters}.values())


def _is_meant(match: re.Match[str], stream: StreamName) -> bool:
    return (match["stream"] or stream.value).upper() == stream.value
